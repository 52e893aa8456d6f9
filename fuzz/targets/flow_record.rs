//! Records of ended connections.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| midspan_steer::fuzz::flow_record(bytes));
