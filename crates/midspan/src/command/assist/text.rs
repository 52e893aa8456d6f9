//! What a daemon or an agent knows, as text in columns.

use std::fmt::Write as _;

use midspan_assist::agent::{AgentStatus, Legs};
use midspan_assist::daemon::DaemonStatus;
use midspan_units::Span;

const HEADINGS: [&str; 3] = ["source ", "daemon ", "UE "];

/// Whether a line names columns.
pub(super) fn is_heading(line: &str) -> bool {
    HEADINGS.iter().any(|heading| line.starts_with(heading))
}

/// Of a daemon.
pub(super) fn daemon(status: &DaemonStatus) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{} ({}): {} sent, {} refused, late by {} us (median), {} us (99 %)\n",
        status.listen,
        status.basis,
        status.counts.sent,
        status.refused.values().sum::<u64>()
            + status.counts.refused_not_allowed
            + status.counts.refused_too_many,
        status.late_us[0],
        status.late_us[1],
    );
    let _ = writeln!(
        text,
        "{:20} {:14} {:>10} {:>10} {:>9} {:>10}  last fault",
        "source", "worth", "readings", "unmapped", "clipped", "age"
    );
    for source in &status.sources {
        let _ = writeln!(
            text,
            "{:20} {:14} {:>10} {:>10} {:>9} {:>10}  {}",
            source.name,
            source.verdict.label(),
            source.counts.readings,
            source.counts.unmapped,
            source.counts.implausible,
            or_none(source.age.map(time)),
            fault(source.last_fault.as_deref()),
        );
    }
    let _ = writeln!(
        text,
        "\n{:20} {:>14} {:>10} {:>10} {:>10} {:>6}  known from, who asks",
        "UE", "capacity", "minRTT", "queue", "age", "flows"
    );
    for ue in &status.ues {
        let sessions: Vec<String> = ue.sessions.iter().map(|id| who(status, *id)).collect();
        let _ = writeln!(
            text,
            "{:20} {:>14} {:>10} {:>10} {:>10} {:>6}  {}, {}",
            ue.ue.to_string(),
            or_none(ue.bandwidth_bps.map(mbps)),
            or_none(ue.min_rtt.map(time)),
            or_none(ue.backlog.map(|bytes| format!("{bytes} B"))),
            or_none(ue.age.map(time)),
            or_none(ue.flows.map(|flows| flows.to_string())),
            ue.evidence.map_or("-", |evidence| evidence.label()),
            sessions.join(" "),
        );
    }
    text
}

/// Of an agent.
pub(super) fn agent(status: &AgentStatus) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:28} {:>6} {:>10} {:>9} {:>9}  last fault",
        "daemon", "up", "datagrams", "refused", "RTT"
    );
    for daemon in &status.daemons {
        let _ = writeln!(
            text,
            "{:28} {:>6} {:>10} {:>9} {:>6} us  {}",
            daemon.daemon,
            if daemon.connected { "yes" } else { "no" },
            daemon.tally.accepted,
            daemon.tally.refused(),
            daemon.rtt_us,
            fault(daemon.last_fault.as_deref()),
        );
    }
    let _ = writeln!(
        text,
        "\n{:20} {:>14} {:>12} {:>6} {:>12} {:>6} {:>9}",
        "UE", "capacity", "minRTT", "flows", "age", "legs", "fallback"
    );
    for ue in &status.ues {
        let legs = status.legs.iter().find(|legs| legs.ue == ue.ue);
        let _ = writeln!(
            text,
            "{:20} {:>14} {:>12} {:>6} {:>12} {:>6} {:>9}{}",
            ue.ue.to_string(),
            mbps(ue.bandwidth_bps),
            time(ue.min_rtt),
            format!("{:?}", ue.flows),
            time(ue.age),
            legs.map_or(0, |legs| legs.legs),
            or_none(legs.map(of_legs)),
            if ue.timed_out { "  timed out" } else { "" },
        );
    }
    let is_untold = |legs: &&Legs| status.ues.iter().all(|told| told.ue != legs.ue);
    for legs in status.legs.iter().filter(is_untold) {
        let _ = writeln!(
            text,
            "{:20} {:>14} {:>12} {:>6} {:>12} {:>6} {:>9}  never told",
            legs.ue.to_string(),
            "-",
            "-",
            "-",
            "-",
            legs.legs,
            of_legs(legs),
        );
    }
    let _ = writeln!(
        text,
        "\nlegs that go by feedback: {} of the time without, {} times for a second",
        fallback(status.watched, status.fallback),
        status.alarms,
    );
    text
}

fn of_legs(legs: &Legs) -> String {
    fallback(legs.watched, legs.fallback)
}

/// What share of the time that they were watched legs had no feedback.
fn fallback(watched: Span, without: Span) -> String {
    let (watched, without) = (watched.as_secs_f64(), without.as_secs_f64());
    if watched > 0.0 { format!("{:.1} %", 100.0 * without / watched) } else { "-".into() }
}

/// The first name of a session's certificate, or its number.
fn who(status: &DaemonStatus, id: u64) -> String {
    let session = status.sessions.iter().find(|session| session.id == id);
    let name = session.and_then(|session| session.names.first());
    name.cloned().unwrap_or_else(|| id.to_string())
}

fn fault(last: Option<&str>) -> &str {
    last.unwrap_or("-")
}

fn or_none(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".into())
}

/// To a tenth of a millisecond.
fn time(span: Span) -> String {
    format!("{:.1} ms", span.as_millis_f64())
}

fn mbps(bits: u64) -> String {
    format!("{:.2} Mbit/s", bits as f64 / 1e6)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// As it comes over the socket.
    pub(in crate::command::assist) fn agent_status() -> AgentStatus {
        let tally = json!({
            "accepted": 55, "missing": 1, "malformed": 0, "unregistered": 0, "other_ue": 0,
            "other_basis": 0, "replayed": 2, "overtaken": 0, "old": 0, "implausible": 0,
        });
        let state = json!({
            "daemons": [{
                "daemon": "127.0.0.1:49460",
                "connected": true,
                "connections": 1,
                "last_fault": null,
                "registered": 1,
                "refused": 0,
                "tally": tally,
                "rtt_us": 155,
            }],
            "ues": [{
                "ue": "10.45.0.2",
                "bandwidth_bps": 12_000_000,
                "min_rtt": "11.155782 ms",
                "flows": 1.0,
                "age": "1.542205283 s",
                "timed_out": true,
            }],
            "audit": { "not_authentic": 0, "replayed": 0 },
            "written": 55,
            "write_errors": 0,
            "legs": [
                { "ue": "10.45.0.2", "legs": 3, "watched": "10 s", "fallback": "1 s", "silent": "1.2 s" },
                { "ue": "10.45.0.3", "legs": 1, "watched": "2 s", "fallback": "2 s", "silent": "0 s" },
            ],
            "watched": "12 s",
            "fallback": "3 s",
            "alarms": 2,
        });
        serde_json::from_value(state).unwrap()
    }

    #[test]
    fn what_an_agent_knows_stands_in_columns() {
        let expected = "\
daemon                           up  datagrams   refused       RTT  last fault
127.0.0.1:49460                 yes         55         2    155 us  -

UE                         capacity       minRTT  flows          age   legs  fallback
10.45.0.2              12.00 Mbit/s      11.2 ms    1.0    1542.2 ms      3    10.0 %  timed out
10.45.0.3                         -            -      -            -      1   100.0 %  never told

legs that go by feedback: 25.0 % of the time without, 2 times for a second
";
        assert_eq!(agent(&agent_status()), expected);
    }
}
