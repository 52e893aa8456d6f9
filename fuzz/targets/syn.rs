//! Headers of a client's SYN.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| midspan_relay::fuzz::syn(bytes));
