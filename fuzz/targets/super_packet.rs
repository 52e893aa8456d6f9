//! Packets that emulated links take from hosts.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| midspan_emu::fuzz::super_packet(bytes));
