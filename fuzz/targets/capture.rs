//! Captured packets: link type, then each with how long after the last it came, its length, and its bytes.
#![no_main]

use midspan_advise::capture::{Capture, LinkType};
use midspan_units::{Span, Time};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((link, mut rest)) = bytes.split_first() else { return };
    let Some(link) = LinkType::of(i32::from(*link)) else { return };
    let (mut capture, mut now) = (Capture::default(), Time::ZERO);
    while let [later, length, packets @ ..] = rest {
        now = now + Span::from_micros(u64::from(*later) * 500);
        let (packet, others) = packets.split_at(usize::from(*length).min(packets.len()));
        capture.add(now, link, packet);
        rest = others;
    }
    let _ = capture.known();
});
