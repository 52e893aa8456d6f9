//! A scenario file: read, or refused with a text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use midspan_scenario::Scenario;

fuzz_target!(|text: &str| {
    if let Err(error) = Scenario::parse(text, "fuzz.toml") {
        assert!(!error.to_string().is_empty());
    }
});
