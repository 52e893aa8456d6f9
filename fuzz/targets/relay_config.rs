//! The relay's configuration: refused in one line, or means what it says when written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use midspan_relay::Config;

fuzz_target!(|text: &str| {
    match text.parse::<Config>() {
        Ok(config) => {
            let written = toml::to_string(&config).expect("what was read can be written");
            assert_eq!(written.parse::<Config>().as_ref(), Ok(&config), "{written}");
        }
        Err(error) => {
            let said = error.to_string();
            assert!(!said.is_empty() && !said.chars().any(char::is_control), "{said:?}");
        }
    }
});
