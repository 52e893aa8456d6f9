//! The headers of a SYN as the kernel has kept them. What is cut short promises no more than the whole.
#![no_main]

use midspan_sockets::SynOptions;

libfuzzer_sys::fuzz_target!(|headers: &[u8]| {
    let whole = SynOptions::of(headers);
    if let Some(part) = headers.len().checked_sub(1).map(|most| SynOptions::of(&headers[..most])) {
        let unknown = part == SynOptions::default();
        assert!(unknown || part.server.is_none() || part.server == whole.server);
    }
});
