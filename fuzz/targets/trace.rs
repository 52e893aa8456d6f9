//! Traces of a cellular link.
#![no_main]

use libfuzzer_sys::fuzz_target;
use midspan_path::Trace;

fuzz_target!(|bytes: &[u8]| {
    if let Err(error) = Trace::parse(bytes) {
        assert!(!error.to_string().is_empty());
    }
});
