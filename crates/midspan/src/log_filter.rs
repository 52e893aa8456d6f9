//! How much is logged, as MIDSPAN_LOG and `midspan relay log` say it.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// What MIDSPAN_LOG asks for; warnings and news if it is not set.
///
/// # Errors
/// What of it is no filter, in one line.
pub(crate) fn from_environment() -> Result<EnvFilter, String> {
    const NAME: &str = "MIDSPAN_LOG";
    match std::env::var(NAME) {
        Ok(text) => parse(&text).map_err(|error| format!("{NAME}: {error}")),
        Err(_) => parse(""),
    }
}

/// A level, or one of a part of the program (`midspan_relay=debug`), or several with commas.
///
/// # Errors
/// What of it is no filter, in one line.
pub(crate) fn parse(text: &str) -> Result<EnvFilter, String> {
    // A word that is no level would be taken for a part of the program.
    let is_level = |word: &str| word.parse::<LevelFilter>().is_ok();
    let directives = text.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    for directive in directives.filter(|directive| !directive.contains('[')) {
        let level = directive.rsplit('=').next().unwrap_or_default();
        if !is_level(level) {
            return Err(format!(
                "`{level}` is no level: off, error, warn, info, debug or trace, or one for a part of the program such as \
                 midspan_relay=debug"
            ));
        }
    }
    let builder = EnvFilter::builder().with_default_directive(LevelFilter::INFO.into());
    builder.parse(text).map_err(|error| format!("`{text}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_parts_are_taken_and_nothing_else() {
        for good in ["", "debug", "off", "warn,midspan_relay=trace"] {
            assert!(parse(good).is_ok(), "{good}");
        }
        for bad in ["shouting", "info,shouting", "midspan_relay=loud", "midspan_relay"] {
            let said = parse(bad).unwrap_err();
            assert!(said.contains("is no level") && !said.contains('\n'), "{said}");
        }
    }
}
