//! What there is to measure of a daemon or an agent, as OpenMetrics text.

use std::fmt::Write as _;

use midspan_assist::agent::AgentStatus;
use midspan_assist::daemon::{DaemonStatus, SourceStatus};
use midspan_units::Span;

/// OpenMetrics text, family by family.
#[derive(Default)]
struct Metrics(String);

impl Metrics {
    fn family<T: std::fmt::Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, T)>,
    ) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}\n# HELP {name} {help}");
        let total = if kind == "counter" { "_total" } else { "" };
        for (labels, value) in samples {
            let _ = writeln!(self.0, "{name}{total}{labels} {value}");
        }
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, kind, help, [(String::new(), value)]);
    }

    fn end(mut self) -> String {
        self.0.push_str("# EOF\n");
        self.0
    }
}

fn label(name: &str, value: &str) -> String {
    format!("{{{name}={value:?}}}")
}

/// How long legs may be without feedback before they count as silent.
const SILENT: Span = Span::from_secs(1);

/// Of an agent.
pub(super) fn agent(status: &AgentStatus) -> String {
    let mut metrics = Metrics::default();
    let ages = status.ues.iter().map(|ue| ue.age.as_secs_f64());
    metrics.one(
        "midspan_assist_feedback_age_seconds",
        "gauge",
        "age of the oldest measurement that the legs of a UE go by",
        ages.fold(0.0, f64::max),
    );
    metrics.one(
        "midspan_assist_legs",
        "gauge",
        "legs that go by feedback",
        status.legs.iter().map(|legs| u64::from(legs.legs)).sum::<u64>(),
    );
    let silent = status.legs.iter().filter(|legs| legs.silent >= SILENT);
    metrics.one(
        "midspan_assist_legs_silent",
        "gauge",
        "legs that go by feedback and have had none for a second",
        silent.map(|legs| u64::from(legs.legs)).sum::<u64>(),
    );
    metrics.one(
        "midspan_assist_legs_watched_seconds",
        "counter",
        "time that UEs had legs that go by feedback",
        status.watched.as_secs_f64(),
    );
    metrics.one(
        "midspan_assist_legs_fallback_seconds",
        "counter",
        "time of that in which no feedback held",
        status.fallback.as_secs_f64(),
    );
    metrics.one(
        "midspan_assist_alarms",
        "counter",
        "times that a UE's legs had no feedback for a second",
        status.alarms,
    );
    metrics.family(
        "midspan_assist_connected",
        "gauge",
        "whether there is a connection to the daemon",
        status
            .daemons
            .iter()
            .map(|daemon| (label("daemon", &daemon.daemon), u8::from(daemon.connected))),
    );
    metrics.one(
        "midspan_assist_write_errors",
        "counter",
        "entries that could not be left for the congestion controls",
        status.write_errors,
    );
    metrics.end()
}

/// Of a daemon.
pub(super) fn daemon(status: &DaemonStatus) -> String {
    let mut metrics = Metrics::default();
    let sources = || status.sources.iter();
    let name = |source: &SourceStatus| label("source", &source.name);
    metrics.family(
        "midspan_assist_source_age_seconds",
        "gauge",
        "age of a source's newest reading",
        sources().map(|source| (name(source), source.age.map_or(0.0, Span::as_secs_f64))),
    );
    metrics.family(
        "midspan_assist_source_readings",
        "counter",
        "readings of a source",
        sources().map(|source| (name(source), source.counts.readings)),
    );
    metrics.family(
        "midspan_assist_source_believed",
        "gauge",
        "whether a source is believed",
        sources().map(|source| (name(source), u8::from(source.verdict.is_believed()))),
    );
    metrics.one(
        "midspan_assist_feedback_sent",
        "counter",
        "datagrams of feedback",
        status.counts.sent,
    );
    metrics.one(
        "midspan_assist_feedback_stale",
        "counter",
        "times that a registration found its UE's measurement too old",
        status.counts.stale,
    );
    metrics.one(
        "midspan_assist_late_seconds",
        "gauge",
        "99th percentile of how late feedback goes out, in the last minute",
        status.late_us[1] as f64 / 1e6,
    );
    metrics.one(
        "midspan_assist_sessions",
        "gauge",
        "connections of senders and UEs",
        status.sessions.len(),
    );
    metrics.end()
}

#[cfg(test)]
mod tests {
    use super::super::text::tests::agent_status;

    #[test]
    fn what_an_agent_counts_has_its_families() {
        let metrics = super::agent(&agent_status());
        let has = |line: &str| assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
        has("# TYPE midspan_assist_legs_silent gauge");
        has("midspan_assist_legs_silent 3");
        has("midspan_assist_legs_fallback_seconds_total 3");
        has("midspan_assist_alarms_total 2");
        has("midspan_assist_connected{daemon=\"127.0.0.1:49460\"} 1");
        has("# EOF");
    }
}
