//! Radio data of all sources: the first byte says which.
#![no_main]

use libfuzzer_sys::fuzz_target;
use midspan_assist::source::{Feed, Format, Records, Rni, Splitter, SrsEnb, SrsGnb};

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let (mut format, records): (Box<dyn Format>, _) = match which % 4 {
        0 => (Box::new(SrsEnb::new(None)), Records::Objects),
        1 => (Box::new(SrsGnb::new(None)), Records::Objects),
        2 => (Box::new(Rni), Records::Objects),
        _ => (Box::new(Feed::new(None)), Records::Lines),
    };
    let _ = Splitter::new(records).feed(bytes, |record| {
        let _ = format.read(record);
    });
});
