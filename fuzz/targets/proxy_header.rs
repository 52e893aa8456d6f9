//! Headers of the PROXY protocol.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| midspan_relay::fuzz::proxy_header(bytes));
