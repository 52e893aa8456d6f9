//! NetAssist's protocol: what is understood is the same bytes when written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use midspan_assist_proto::{FeedbackDatagram, Frames, ToDaemon, ToSender, UeMap};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(feedback) = FeedbackDatagram::parse(bytes) {
        assert_eq!(&feedback.encode()[..], bytes);
    }
    Frames::default().feed(bytes, |frame| {
        if let Ok(message) = ToDaemon::parse(frame) {
            assert_eq!(&message.encode(), frame);
        }
        if let Ok(message) = ToSender::parse(frame) {
            assert_eq!(&message.encode(), frame);
        }
    });
    if let Ok(Ok(map)) = std::str::from_utf8(bytes).map(UeMap::parse) {
        assert!(map.iter().all(|(rnti, address)| map.address(rnti) == Some(address)));
    }
});
