//! What is shown, from what was seen now and before.

use std::time::Instant;

use midspan_observe::LegStats;
use midspan_observe::admin::{Assisted, Counters, Decided, Decisions, Flow, Flows, Status};

use super::super::admin::{HEADINGS, millis, row};
use super::super::units::{age, bytes, rate};

/// What the relay said at one time.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) status: Status,
    pub(super) counters: Counters,
    pub(super) flows: Flows,
    /// Where it decides by what splitting gains.
    pub(super) decisions: Option<Decisions>,
}

/// One picture of the relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) title: String,
    /// What is not as it should be; empty if all is.
    pub(super) warning: String,
    /// Names with what they are.
    pub(super) facts: Vec<(&'static str, String)>,
    /// Verdicts that were given since the picture before, or ever, with both.
    pub(super) verdicts: Vec<(String, String)>,
    pub(super) flows: Vec<[String; HEADINGS.len()]>,
    pub(super) open: usize,
}

impl Frame {
    pub(super) fn between(before: &Sample, now: &Sample) -> Frame {
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64().max(1e-3);
        let per_second = |names: &[&str]| {
            let sum = |sample: &Sample| {
                let of = |name: &&str| sample.counters.counters.get(*name).copied().unwrap_or(0);
                names.iter().map(of).sum::<u64>()
            };
            sum(now).saturating_sub(sum(before)) as f64 / seconds
        };
        let total = |name: &str| now.counters.counters.get(name).copied().unwrap_or(0);
        let refused: Vec<&str> = now.counters.counters.keys().map(String::as_str).collect();
        let refused: Vec<&str> =
            refused.into_iter().filter(|name| name.starts_with("refused_")).collect();
        let legs = |of: fn(&Flow) -> &Option<LegStats>| {
            let legs: Vec<&LegStats> =
                now.flows.flows.iter().filter_map(|flow| of(flow).as_ref()).collect();
            leg_text(&legs)
        };
        let status = &now.status;
        let assisted: Vec<Assisted> =
            now.flows.flows.iter().filter_map(|flow| flow.assisted).collect();
        let mut facts = vec![
            (
                "traffic",
                format!(
                    "up {}/s, down {}/s; in all {} and {}",
                    rate(per_second(&["bytes_from_client"])),
                    rate(per_second(&["bytes_from_server"])),
                    bytes(total("bytes_from_client") as f64),
                    bytes(total("bytes_from_server") as f64),
                ),
            ),
            (
                "flows",
                format!(
                    "{} open of {}; {:.1} new/s, {:.1} refused/s; buffered {}",
                    status.flows,
                    status.flow_limit,
                    per_second(&["accepted"]),
                    per_second(&refused),
                    bytes(status.buffered as f64),
                ),
            ),
            ("client leg", legs(|flow| &flow.client_leg)),
            ("server leg", legs(|flow| &flow.server_leg)),
        ];
        facts.extend(now.decisions.iter().flat_map(decided));
        facts.extend(feedback(&assisted).map(|text| ("feedback", text)));
        Frame {
            title: format!(
                "midspan {} (process {}), {}, steered by {}, up {}",
                status.version,
                status.pid,
                status.phase,
                status.steered_by,
                age(status.uptime_s)
            ),
            warning: warning(status, &assisted),
            facts,
            verdicts: verdicts(before, now, seconds),
            flows: now.flows.flows.iter().map(row).collect(),
            open: now.flows.open,
        }
    }
}

fn warning(status: &Status, assisted: &[Assisted]) -> String {
    let late = status.heartbeat_age_s.iter().filter(|&&age| age > 2.5).count();
    let without = assisted.iter().filter(|assisted| !assisted.holds).count();
    let mut warnings = Vec::new();
    if late > 0 {
        warnings.push(format!("{late} workers have not been heard of lately"));
    }
    if without > 0 {
        warnings
            .push(format!("{without} legs that go by feedback have none: `midspan assist top`"));
    }
    warnings.join("; ")
}

/// How many services splitting makes slower, and which these are, those of which most is known first.
fn decided(decisions: &Decisions) -> Vec<(&'static str, String)> {
    let services: Vec<&Decided> =
        decisions.decided.iter().filter(|one| one.level == "service").collect();
    let count = |because: &str| services.iter().filter(|one| one.because == because).count();
    let all = decisions.decided.iter().find(|one| one.level == "all").and_then(gain);
    let dry = if decisions.is_dry_run { "dry run; " } else { "" };
    let all = all.map_or("nothing is certain of all together".to_owned(), |gain| {
        format!("all together {gain}")
    });
    let mut slower: Vec<&Decided> =
        services.iter().copied().filter(|one| one.because == "harm").collect();
    slower.sort_by(|one, other| other.weight.total_cmp(&one.weight));
    let first = format!(
        "{dry}{} services no slower if split, {} slower, {} not known yet; {all}",
        count("fine"),
        slower.len(),
        count("unknown")
    );
    let named = slower.iter().take(SLOWER).map(|one| {
        let gain = gain(one).unwrap_or_default();
        ("slower", format!("{} {gain}, split for {:.0} %", one.of, 100.0 * one.split))
    });
    std::iter::once(("decided", first)).chain(named).collect()
}

/// Services that are named as slower, at most.
const SLOWER: usize = 3;

/// `1.54 x (1.50 to 1.58)`, if bounds say anything.
fn gain(one: &Decided) -> Option<String> {
    let ((gain, least), most) = one.gain.zip(one.at_least).zip(one.at_most)?;
    (most / least < 50.0).then(|| format!("{gain:.2} x ({least:.2} to {most:.2})"))
}

/// For how many of the legs that go by feedback there is some, and how old it is.
fn feedback(assisted: &[Assisted]) -> Option<String> {
    let holds = assisted.iter().filter(|assisted| assisted.holds).count();
    let mut ages: Vec<f64> = assisted.iter().filter_map(|assisted| assisted.age_s).collect();
    ages.sort_by(f64::total_cmp);
    let ages = match (ages.get(ages.len() / 2), ages.last()) {
        (Some(&median), Some(&most)) => {
            let (median, most) = (millis(median * 1e3), millis(most * 1e3));
            format!("; {median} old in the middle, {most} at most")
        }
        _ => String::new(),
    };
    (!assisted.is_empty()).then(|| format!("holds for {holds} of {} legs{ages}", assisted.len()))
}

/// Median and most of the round-trip times, and what was sent again, of the flows that are listed.
fn leg_text(legs: &[&LegStats]) -> String {
    let mut rtts: Vec<u32> = legs.iter().map(|leg| leg.rtt_us).filter(|&rtt| rtt > 0).collect();
    rtts.sort_unstable();
    let millis = |rtt: u32| millis(f64::from(rtt) / 1e3);
    let rtt = match (rtts.get(rtts.len() / 2), rtts.last()) {
        (Some(&median), Some(&most)) => {
            format!("RTT {} in the middle, {} at most", millis(median), millis(most))
        }
        _ => "no RTT measured".into(),
    };
    let sent: u64 = legs.iter().map(|leg| leg.bytes_sent).sum();
    let again: u64 = legs.iter().map(|leg| leg.bytes_retransmitted).sum();
    match sent {
        0 => rtt,
        _ => format!("{rtt}; {:.2} % of bytes sent again", again as f64 * 100.0 / sent as f64),
    }
}

fn verdicts(before: &Sample, now: &Sample, seconds: f64) -> Vec<(String, String)> {
    let Some(counts) = &now.counters.verdicts else { return Vec::new() };
    let earlier = before.counters.verdicts.as_ref();
    let shown = counts.iter().filter(|&(_, &count)| count > 0).map(|(name, &count)| {
        let then = earlier.and_then(|earlier| earlier.get(name)).copied().unwrap_or(0);
        let rate = count.saturating_sub(then) as f64 / seconds;
        (name.clone(), format!("{rate:.1}/s, {count}"))
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use midspan_observe::ClientName;

    use super::*;

    fn sample(at: Instant, up: u64, split: u64) -> Sample {
        let counters = [("bytes_from_client", up), ("accepted", 2), ("refused_flows", up / 1000)];
        let named = |(name, count): (&str, u64)| (name.to_owned(), count);
        let leg = |rtt_us, again| LegStats {
            rtt_us,
            bytes_sent: 1000,
            bytes_retransmitted: again,
            ..LegStats::default()
        };
        let flow = |number: u32| Flow {
            worker: 0,
            client: ClientName::Pseudonym(number.into()),
            server: "192.0.2.1:443".parse().unwrap(),
            age_s: 3.0,
            connected: true,
            bytes_up: 10,
            bytes_down: 0,
            rate_up: 125_000.0,
            rate_down: 0.0,
            buffered: 0,
            client_leg: Some(leg(1000 * number, 10)),
            server_leg: None,
            assisted: (number > 1).then_some(Assisted { age_s: Some(0.04), holds: number == 2 }),
        };
        Sample {
            at,
            status: Status {
                version: "1.2.3".into(),
                pid: 7,
                phase: "running".into(),
                steered_by: "BPF".into(),
                uptime_s: 61.0,
                heartbeat_age_s: vec![0.1, up as f64],
                flows: 3,
                flow_limit: 10,
                buffered: 0,
            },
            counters: Counters {
                counters: counters.map(named).into(),
                verdicts: Some(BTreeMap::from([("split".into(), split), ("pass_rate".into(), 0)])),
            },
            flows: Flows { open: 3, flows: (1..4).map(flow).collect() },
            decisions: None,
        }
    }

    #[test]
    fn a_picture_has_rates_since_the_one_before() {
        let start = Instant::now();
        let frame = Frame::between(
            &sample(start, 0, 5),
            &sample(start + Duration::from_secs(2), 250_000, 9),
        );
        let fact = |name| &frame.facts.iter().find(|(known, _)| *known == name).unwrap().1;
        assert!(fact("traffic").starts_with("up 1.0 Mbit/s, down 0 bit/s"), "{frame:#?}");
        assert!(fact("flows").contains("3 open of 10; 0.0 new/s, 125.0 refused/s"));
        assert_eq!(
            fact("client leg"),
            "RTT 2.00 ms in the middle, 3.00 ms at most; 1.00 % of bytes sent again"
        );
        assert_eq!(fact("server leg"), "no RTT measured");
        assert_eq!(
            fact("feedback"),
            "holds for 1 of 2 legs; 40.0 ms old in the middle, 40.0 ms at most"
        );
        assert_eq!(frame.verdicts, [("split".to_owned(), "2.0/s, 9".to_owned())]);
        assert_eq!(frame.flows[0][3], "1.0 Mbit");
        assert!(frame.warning.contains("1 workers"), "{}", frame.warning);
        assert!(frame.warning.contains("1 legs"), "{}", frame.warning);
    }

    #[test]
    fn a_picture_names_what_splitting_makes_slower() {
        let decided = |level: &str, of: &str, because: &str, gain: f64, weight| Decided {
            level: level.into(),
            of: of.into(),
            split: if because == "harm" { 0.05 } else { 0.95 },
            because: because.into(),
            is_doubted: false,
            gain: Some(gain),
            at_least: Some(gain * 0.9),
            at_most: Some(gain * 1.1),
            weight,
            changes: 0,
        };
        let mut now = sample(Instant::now(), 0, 0);
        let mut decisions = Decisions {
            decided: vec![
                decided("all", "all", "fine", 1.5, 90.0),
                decided("prefix", "198.51.100.0/24", "harm", 0.6, 50.0),
                decided("service", "198.51.100.7", "harm", 0.5, 20.0),
                decided("service", "198.51.100.8", "harm", 0.4, 30.0),
                decided("service", "192.0.2.1", "fine", 1.6, 40.0),
                Decided { gain: None, ..decided("service", "192.0.2.2", "unknown", 1.0, 1.0) },
            ],
            ..Decisions::default()
        };
        let facts = |now: &Sample| -> Vec<(&'static str, String)> {
            let facts = Frame::between(&sample(now.at, 0, 0), now).facts;
            facts.into_iter().filter(|(name, _)| ["decided", "slower"].contains(name)).collect()
        };
        assert_eq!(facts(&now), []);
        now.decisions = Some(decisions.clone());
        let first = "1 services no slower if split, 2 slower, 1 not known yet; all together 1.50 x (1.35 to 1.65)";
        assert_eq!(
            facts(&now),
            [
                ("decided", first.to_owned()),
                ("slower", "198.51.100.8 0.40 x (0.36 to 0.44), split for 5 %".to_owned()),
                ("slower", "198.51.100.7 0.50 x (0.45 to 0.55), split for 5 %".to_owned()),
            ]
        );
        decisions.decided.clear();
        decisions.is_dry_run = true;
        now.decisions = Some(decisions);
        assert!(facts(&now)[0].1.starts_with("dry run; 0 services"));
        assert!(facts(&now)[0].1.ends_with("nothing is certain of all together"));
    }
}
