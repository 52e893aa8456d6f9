//! Prometheus' text format (version 0.0.4), for who does not know OpenMetrics.

use std::fmt::Write;

/// The same numbers as OpenMetrics has them. There a counter's name is without the `_total` of its samples, an info is a
/// type of its own, units and the end are told; here names are those of the samples, and there are neither infos, nor
/// units, nor an end.
pub(crate) fn from_open_metrics(page: &str) -> String {
    let mut text = String::with_capacity(page.len());
    // It comes before the type, which says what it is about.
    let mut help = "";
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                kind => ("", kind),
            };
            let _ = write!(text, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n");
        } else if !line.starts_with('#') {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_samples() {
        let page = "# HELP build The program.\n# TYPE build info\nbuild_info{version=\"1\"} 1\n\
                    # HELP sent_bytes Bytes.\n# TYPE sent_bytes counter\n# UNIT sent_bytes bytes\n\
                    sent_bytes_total{leg=\"client\"} 3\n\
                    # HELP open Open.\n# TYPE open gauge\nopen 2\n# EOF\n";
        let text = "# HELP build_info The program.\n# TYPE build_info gauge\nbuild_info{version=\"1\"} 1\n\
                    # HELP sent_bytes_total Bytes.\n# TYPE sent_bytes_total counter\n\
                    sent_bytes_total{leg=\"client\"} 3\n\
                    # HELP open Open.\n# TYPE open gauge\nopen 2\n";
        assert_eq!(from_open_metrics(page), text);
    }
}
