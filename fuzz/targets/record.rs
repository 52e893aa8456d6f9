//! Result records: read, or refused with a text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use midspan_scenario::record;

fuzz_target!(|text: &str| {
    if let Err(error) = record::parse_lines(text, "fuzz.jsonl") {
        assert!(!error.to_string().is_empty());
    }
});
