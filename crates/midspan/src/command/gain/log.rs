//! Gains by flow logs: their lines read, and what an estimator makes of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result};
use jiff::Timestamp;
use midspan_gain::{Arm, Estimator, Id, Observation, Place, Settings, Unit};
use midspan_report::gain::Hour;
use midspan_units::Span;
use serde::Deserialize;

use super::findings::{Counts, Findings, effect};
use crate::command::BadInput;

/// The keys of a flow log's line that matter.
#[derive(Debug, Deserialize)]
struct Line {
    kind: String,
    start: Option<String>,
    client: Option<String>,
    server: Option<SocketAddr>,
    verdict: Option<String>,
    holdout: Option<f64>,
    slot: Option<String>,
    up: Option<Direction>,
    down: Option<Direction>,
}

#[derive(Debug, Default, Deserialize)]
struct Direction {
    bytes: u64,
    last_acknowledged_us: Option<u64>,
}

/// What was read of flow logs.
#[derive(Debug)]
pub(super) struct Log {
    /// By slot, in seconds.
    slots: BTreeMap<u64, Vec<Observation>>,
    /// Connections with which chance had nothing to do.
    undrawn: usize,
    /// Connections that were drawn one by one.
    alone: usize,
    /// Connections in the beginning of a slot.
    unsettled: usize,
    /// Connections that carried nothing, or whose carrying nobody acknowledged.
    empty: usize,
    /// How much of the beginning of each slot is left out.
    settle: Span,
}

/// Seconds of one.
const HOUR: u64 = 3600;

impl Log {
    /// Reads them all, in any order.
    ///
    /// # Errors
    /// When one cannot be read or is none, or no connection in them was drawn.
    pub(super) fn read(paths: &[PathBuf], settle: Span) -> Result<Log> {
        let slots = BTreeMap::new();
        let mut log = Log { slots, undrawn: 0, alone: 0, unsettled: 0, empty: 0, settle };
        for path in paths {
            let unreadable =
                |error| BadInput::because(format!("cannot read {}: {error}", path.display()));
            let file = File::open(path).map_err(unreadable)?;
            for (number, line) in BufReader::new(file).lines().enumerate() {
                let line = line.map_err(unreadable)?;
                let parsed = serde_json::from_str(&line).map_err(|error| error.to_string());
                parsed.and_then(|line| log.add(&line)).map_err(|error| {
                    let at = format!("{}:{}", path.display(), number + 1);
                    BadInput::because(format!("{at}: not a line of a flow log: {error}"))
                })?;
            }
        }
        if log.slots.is_empty() {
            return Err(BadInput::because(
                "no connection in these logs was split or held out by chance: set `policy.holdout`, and `[flow_log]`, and come back \
                 when some have ended",
            ));
        }
        Ok(log)
    }

    fn add(&mut self, line: &Line) -> Result<(), String> {
        let Line { start: Some(start), client: Some(client), server: Some(server), .. } = line
        else {
            return Ok(());
        };
        if line.kind != "path" {
            return Ok(());
        }
        let arm = match line.verdict.as_deref() {
            Some("split") => Some(Arm::Split),
            Some("pass_holdout") => Some(Arm::Unsplit),
            _ => None,
        };
        let share = line.holdout.filter(|share| (1e-4..=1.0 - 1e-4).contains(share));
        let Some((arm, share)) = arm.zip(share) else {
            self.undrawn += 1;
            return Ok(());
        };
        let second = |text: &str| {
            Timestamp::from_str(text)
                .map(|time| time.as_second())
                .map_err(|error| error.to_string())
        };
        let began = second(start)?;
        // In plain each connection has its port.
        let name = client.parse::<SocketAddr>().map_or(client.clone(), |at| at.ip().to_string());
        let (slot, subscriber) = match &line.slot {
            Some(slot) => (second(slot)?, hash_of(&name)),
            None => {
                self.alone += 1;
                (began, hash_of(&(client, start)))
            }
        };
        if line.slot.is_some() && ((began - slot) as f64) < self.settle.as_secs_f64() {
            self.unsettled += 1;
            return Ok(());
        }
        let ways = [&line.up, &line.down].into_iter().flatten();
        let bytes = ways.clone().map(|way| way.bytes).sum();
        let Some(completion_us) = ways.filter_map(|way| way.last_acknowledged_us).max() else {
            self.empty += 1;
            return Ok(());
        };
        let (service, prefix) = (Id::of_address(server.ip()), Id::of_network(server.ip()));
        self.slots.entry(slot.max(0).unsigned_abs()).or_default().push(Observation {
            place: Place { group: Id(0), service, prefix },
            subscriber: Id(subscriber),
            slot: slot.max(0).unsigned_abs(),
            arm,
            probability: if arm == Arm::Split { 1.0 - share } else { share },
            bytes,
            // Not known of those that were passed.
            connect_rtt: 1.0,
            completion: completion_us.max(1) as f64 / 1e6,
        });
        Ok(())
    }

    /// What an estimator makes of it.
    ///
    /// # Errors
    /// When a connection cannot have been.
    pub(super) fn findings(&self) -> Result<Findings> {
        let (estimator, counts) =
            self.estimated(|one| one.place).context("the connections cannot be compared")?;
        let learned = estimator.counts().learned;
        let findings = Findings::of(&estimator, &counts);
        Ok(Findings { hours: self.hours()?, notes: self.notes(learned), ..findings })
    }

    /// Each hour by its own scores: to an estimator it is what otherwise is a network of servers.
    fn hours(&self) -> Result<Vec<Hour>> {
        let hour_of = |one: &Observation| Id(u128::from(one.slot / HOUR));
        let place = |hour| Place { group: Id(0), service: hour, prefix: hour };
        let (estimator, counts) = self.estimated(|one| place(hour_of(one)))?;
        let mut hours: Vec<u64> = self.slots.keys().map(|slot| slot / HOUR).collect();
        hours.dedup();
        let hour = |number: u64| {
            let start = number * HOUR;
            let unit = Unit::Prefix(Id(u128::from(number)));
            let interval = estimator.estimate(unit).map(|estimate| estimate.interval);
            let began = Timestamp::from_second(start as i64).unwrap_or(Timestamp::MAX);
            let of = began.strftime("%Y-%m-%d %H:%M").to_string();
            // No other hour has a say in it, as it has in the estimator's best guess.
            Hour { start, effect: effect(of, counts.of(unit, None), None, interval) }
        };
        Ok(hours.into_iter().map(hour).collect())
    }

    /// An estimator that was told of all in their order, each as if it belonged to that place.
    fn estimated(&self, place: impl Fn(&Observation) -> Place) -> Result<(Estimator, Counts)> {
        let all: usize = self.slots.values().map(Vec::len).sum();
        let settings =
            Settings { max_clusters: all, max_units: 3 * all + 1, ..Settings::default() };
        let (mut estimator, mut counts) = (Estimator::new(settings)?, Counts::default());
        for (slot, observations) in &self.slots {
            for one in observations {
                let observation = Observation { place: place(one), ..*one };
                estimator.observe(&observation)?;
                counts.add(&observation);
            }
            estimator.close(*slot);
        }
        Ok((estimator, counts))
    }

    /// What was left out, and why.
    fn notes(&self, learned: u64) -> Vec<String> {
        let told = [
            (
                self.undrawn as u64,
                "connections were split or passed for another reason than chance, and are left out"
                    .to_owned(),
            ),
            (
                self.alone as u64,
                "connections were drawn one by one: those of one page share a link, and slow down what they are compared with. \
                 `policy.holdout_slot` draws subscribers"
                    .into(),
            ),
            (
                self.unsettled as u64,
                format!(
                    "connections began in the first {} of a slot, and are left out (--settle)",
                    self.settle
                ),
            ),
            (
                self.empty as u64,
                "connections carried nothing that was acknowledged, and are left out".into(),
            ),
            (
                learned,
                "connections were among the first of their size, and only tell what time such take"
                    .into(),
            ),
        ];
        let told = told.into_iter().filter(|(count, _)| *count > 0);
        told.map(|(count, what)| format!("{count} {what}")).collect()
    }
}

fn hash_of(what: &impl Hash) -> u128 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    u128::from(hasher.finish())
}
