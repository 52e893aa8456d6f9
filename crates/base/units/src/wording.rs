//! How files that people write are refused: what is not known, what comes near it, and what is known.

/// Says that `name` is not known here, what comes near it, and what is known.
pub fn unknown<'n>(kind: &str, name: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let nearest = known
        .iter()
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .min();
    let list = quoted(&known);
    match nearest {
        Some((_, candidate)) => {
            format!("unknown {kind} `{name}`; did you mean `{candidate}`? Known here: {list}")
        }
        None if known.is_empty() => format!("unknown {kind} `{name}`; there are none here"),
        None => format!("unknown {kind} `{name}`; known here: {list}"),
    }
}

/// Names as they stand in an error.
pub fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// What `serde` says of a file, in one line. It speaks of fields and types; who reads a scenario or a configuration thinks of
/// keys and values.
pub fn reword(message: &str) -> String {
    let message = message.replace('\n', "; ");
    for (prefix, kind) in [("unknown field `", "key"), ("unknown variant `", "value")] {
        let parts = message.strip_prefix(prefix).and_then(|rest| rest.split_once('`'));
        if let Some((name, rest)) = parts {
            // Every second piece between backquotes is a known name.
            return unknown(kind, name, rest.split('`').skip(1).step_by(2));
        }
    }
    if let Some(name) = message.strip_prefix("missing field ") {
        return format!("{name} is missing");
    }
    for kind in ["type", "value"] {
        let found = message.strip_prefix(&format!("invalid {kind}: "));
        if let Some((found, expected)) = found.and_then(|rest| rest.split_once(", expected ")) {
            return format!("found {found}; expected {expected}");
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_names_are_suggested() {
        assert_eq!(
            unknown("key", "warm_up", ["time", "warmup"]),
            "unknown key `warm_up`; did you mean `warmup`? Known here: `time`, `warmup`"
        );
        assert_eq!(unknown("key", "x", ["time"]), "unknown key `x`; known here: `time`");
    }

    #[test]
    fn serde_is_reworded() {
        assert_eq!(
            reword("unknown field `los`, expected one of `rate`, `loss`"),
            "unknown key `los`; did you mean `loss`? Known here: `rate`, `loss`"
        );
        assert_eq!(reword("missing field `path`"), "`path` is missing");
        assert_eq!(
            reword("invalid type: integer `5`, expected a rate"),
            "found integer `5`; expected a rate"
        );
    }
}
