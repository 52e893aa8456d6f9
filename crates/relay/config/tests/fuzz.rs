//! Configurations that nobody would write: each is refused in one line, or means what it says.

#![allow(clippy::disallowed_methods, reason = "tests are longer if asked")]

use midspan_config::Config;
use proptest::prelude::*;
use proptest::sample::{Index, select};

const FULL: &str = include_str!("full.toml");
const FORWARDS: &str = include_str!("forwards.toml");

/// What to put where something else should be.
const VALUES: &[&str] = &[
    "0",
    "1",
    "-1",
    "63",
    "64",
    "65535",
    "65536",
    "1000000",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "0x7fffffff",
    "1e308",
    "1e999",
    "-0.0",
    "nan",
    "inf",
    "true",
    "\"\"",
    "\"copy\"",
    "\"auto\"",
    "\"bpf\"",
    "\"none\"",
    "\"1 s\"",
    "\"-1 s\"",
    "\"1e30 h\"",
    "\"0 B\"",
    "\"99999999999 GiB\"",
    "\"1 bit/s\"",
    "\"0.0.0.0/0\"",
    "\"::/129\"",
    "\"10.0.0.0/33\"",
    "\"[::1]:0\"",
    "\"a:1\"",
    "\":1\"",
    "\"\\u0000\"",
    "\"\u{1f4e1}\"",
    "\"5060-5059\"",
    "\"1-65536\"",
    "[]",
    "[[]]",
    "[0]",
    "[\"\"]",
    "[-1, 70000]",
    "{}",
    "{ from = [] }",
    "{ send = \"v2\", send = \"v1\" }",
    "1979-05-27T07:32:00Z",
    "'''",
    "\"\"\"",
    "",
    "=",
    "[",
    "]]",
    "#",
    "\r",
    "\0",
];

/// One thing done to a text.
#[derive(Debug, Clone)]
enum Damage {
    /// Another value for what a line sets.
    Value(Index, &'static str),
    /// Another line's value.
    Swap(Index, Index),
    Repeat(Index, Index),
    Remove(Index),
    Cut(Index),
    Character(Index, char),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    prop_oneof![
        8 => (at(), select(VALUES)).prop_map(|(line, value)| Damage::Value(line, value)),
        2 => (at(), at()).prop_map(|(line, other)| Damage::Swap(line, other)),
        1 => (at(), at()).prop_map(|(line, to)| Damage::Repeat(line, to)),
        2 => at().prop_map(Damage::Remove),
        1 => at().prop_map(Damage::Cut),
        2 => (at(), any::<char>()).prop_map(|(place, with)| Damage::Character(place, with)),
    ]
}

fn damaged(text: &str, all: &[Damage]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for damage in all {
        if lines.is_empty() {
            break;
        }
        let count = lines.len();
        let value_of = |line: &str| line.split_once('=').map(|(_, value)| value.to_owned());
        let set = |line: &mut String, value: &str| {
            if let Some((key, _)) = line.split_once('=') {
                *line = format!("{key}={value}");
            }
        };
        match damage {
            Damage::Value(line, value) => set(&mut lines[line.index(count)], value),
            Damage::Swap(line, other) => {
                if let Some(value) = value_of(&lines[other.index(count)]) {
                    set(&mut lines[line.index(count)], &value);
                }
            }
            Damage::Repeat(line, to) => {
                let line = lines[line.index(count)].clone();
                lines.insert(to.index(count), line);
            }
            Damage::Remove(line) => drop(lines.remove(line.index(count))),
            Damage::Cut(place) => {
                let text: Vec<char> = lines.join("\n").chars().collect();
                let text: String = text[..place.index(text.len() + 1)].iter().collect();
                lines = text.lines().map(str::to_owned).collect();
            }
            Damage::Character(place, with) => {
                let mut text: Vec<char> = lines.join("\n").chars().collect();
                let place = place.index(text.len() + 1);
                text.splice(place..(place + 1).min(text.len()), [*with]);
                lines = text.iter().collect::<String>().lines().map(str::to_owned).collect();
            }
        }
    }
    lines.join("\n")
}

/// Whether one was taken.
fn is_handled(text: &str) -> Result<bool, TestCaseError> {
    match text.parse::<Config>() {
        Ok(config) => {
            prop_assert_eq!(config.check(), Ok(()));
            // What `--check` prints means the same.
            let written = toml::to_string(&config);
            prop_assert!(written.is_ok(), "{:?}", written);
            prop_assert_eq!(written.unwrap().parse::<Config>(), Ok(config));
            Ok(true)
        }
        Err(error) => {
            let said = error.to_string();
            prop_assert!(!said.is_empty() && !said.contains(char::is_control), "{:?}", said);
            Ok(false)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        if std::env::var_os("MIDSPAN_TEST_ALL").is_some() { 100_000 } else { 2000 }
    ))]

    #[test]
    fn damaged_files_are_refused_in_one_line(
        whole in prop_oneof![Just(FULL.to_owned()), Just(FORWARDS.to_owned()), Just([FULL, FORWARDS].concat())],
        damage in prop::collection::vec(damage(), 1..5),
    ) {
        is_handled(&damaged(&whole, &damage))?;
    }

    #[test]
    fn any_text_is_refused_in_one_line(text in "\\PC{0,200}|[a-z_\\[\\]{}=\"',.#0-9 \n]{0,300}") {
        prop_assert!(!is_handled(&text)?);
    }
}
