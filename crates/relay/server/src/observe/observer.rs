//! What the workers tell what they know to.

use std::time::{Duration, Instant, SystemTime};

use midspan_config::Config;
use midspan_observe::{Began, Direction, Entry, FlowId, LegStats, Naming, Path, Split, Start};
use midspan_split::{Cause, Leg, PerLeg};
use midspan_steer::{Course, FlowRecord};
use midspan_threads::Privileges;
use midspan_units::Time;

use super::error::ObserveError;
use super::flow_log::FlowLog;
use super::leg;
use super::measures::Measures;
use super::naming;
use crate::clock::Epoch;
use crate::flow::{LiveFlow, Story, Totals};
use crate::frontend::Accepted;

/// What the workers tell what they know to.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) naming: Naming,
    pub(crate) flow_log: Option<FlowLog>,
    /// Whether it is told of flows that begin.
    starts: bool,
    /// Whether what TCP knows of a flow at its end is wanted.
    measures: bool,
}

impl Observer {
    /// Opens what is written to. No thread runs yet.
    pub(crate) fn open(config: &Config, privileges: Privileges) -> Result<Observer, ObserveError> {
        let open = |log| FlowLog::open(log, privileges);
        Ok(Observer {
            naming: naming::of(&config.log)?,
            flow_log: config.flow_log.as_ref().map(open).transpose()?,
            starts: config.flow_log.as_ref().is_some_and(|log| log.starts),
            measures: config.metrics.is_some(),
        })
    }

    /// What a connection that was taken now is called: as the steering program's record of it is, if the kernel has kept
    /// its SYN.
    pub(crate) fn identify(&self, accepted: &Accepted, now: Time) -> FlowId {
        let began = match accepted.opening.sequence {
            Some(sequence) => Began::With(sequence),
            None => Began::At(now.as_nanos()),
        };
        self.naming.identify(accepted.client, accepted.server, began)
    }

    /// Takes note of a flow that begins now, where that is asked for.
    pub(crate) fn begins(&self, worker: usize, story: &Story) {
        let Some(flow_log) = self.flow_log.as_ref().filter(|_| self.starts) else { return };
        flow_log.add(Entry::Start(Start {
            id: story.id,
            start: SystemTime::now(),
            client: self.naming.of(story.client),
            server: story.server,
            worker,
        }));
    }

    /// Takes note of a flow that is over, before its sockets are closed. Without metrics and flow
    /// log this costs nothing.
    pub(crate) fn ended(
        &self,
        measures: &Measures,
        worker: usize,
        flow: &LiveFlow,
        totals: PerLeg<Totals>,
        cause: Option<Cause>,
        now: Instant,
    ) {
        if !self.measures && self.flow_log.is_none() {
            return;
        }
        let ask = |leg| leg::stats(flow.fd(leg), self.flow_log.is_some());
        let of = |leg| LegEnd { totals: totals[leg], stats: ask(leg) };
        let legs = PerLeg { client: of(Leg::Client), server: of(Leg::Server) };
        self.note(measures, worker, flow.story(), &legs, cause, now);
    }

    /// The same of a flow whose server leg could not even begin.
    pub(crate) fn not_started(
        &self,
        measures: &Measures,
        worker: usize,
        story: &Story,
        now: Instant,
    ) {
        let cause = Some(Cause::ConnectFailed);
        self.note(measures, worker, story, &PerLeg::default(), cause, now);
    }

    /// Takes note of a connection that the steering program has seen end.
    pub(crate) fn passed(&self, record: &FlowRecord, epoch: &Epoch) {
        let Some(flow_log) = &self.flow_log else { return };
        let since = |time: Duration| time.saturating_sub(record.start).as_micros() as u64;
        let direction = |course: &Course| Direction {
            bytes: course.bytes,
            first_payload_us: course.payload.map(|(first, _)| since(first)),
            last_payload_us: course.payload.map(|(_, last)| since(last)),
            first_acknowledged_us: course.acknowledged.map(|(first, _)| since(first)),
            last_acknowledged_us: course.acknowledged.map(|(_, last)| since(last)),
        };
        let began = Began::With(record.sequence);
        flow_log.add(Entry::Path(Path {
            id: self.naming.identify(record.client, record.server, began),
            start: epoch.wall_at(record.start),
            end: epoch.wall_at(record.end),
            client: self.naming.of(record.client),
            server: record.server,
            verdict: record.verdict.label().into(),
            slot: record.holdout.and_then(|drawn| drawn.slot).map(|slot| epoch.wall_at(slot)),
            holdout: record.holdout.map(|drawn| f64::from(drawn.per_mille) / 1000.0),
            because: record.holdout.map(|drawn| drawn.because.label().into()),
            ended: record.ending.label().into(),
            up: direction(&record.up),
            down: direction(&record.down),
        }));
    }

    fn note(
        &self,
        measures: &Measures,
        worker: usize,
        story: &Story,
        legs: &PerLeg<LegEnd>,
        cause: Option<Cause>,
        now: Instant,
    ) {
        let lasted = now - story.start;
        let connect = story.connected.map(|connected| connected - story.start);
        if self.measures {
            for leg in Leg::BOTH {
                if let Some(stats) = &legs[leg].stats {
                    measures.legs[leg].record(stats);
                }
            }
            if let Some(connect) = connect {
                measures.connect.record(connect.as_micros() as u64);
            }
            measures.duration.record(lasted.as_micros() as u64);
        }
        if let Some(flow_log) = &self.flow_log {
            let now = SystemTime::now();
            flow_log.add(Entry::Split(Split {
                id: story.id,
                start: now.checked_sub(lasted).unwrap_or(now),
                end: now,
                client: self.naming.of(story.client),
                server: story.server,
                ended: cause.map_or("closed", Cause::label).into(),
                worker,
                connect_us: connect.map(|connect| connect.as_micros() as u64),
                spliced: [story.spliced.client, story.spliced.server],
                bytes_from_client: legs.client.totals.received,
                bytes_to_server: legs.server.totals.sent,
                bytes_from_server: legs.server.totals.received,
                bytes_to_client: legs.client.totals.sent,
                client_leg: legs.client.stats,
                server_leg: legs.server.stats,
            }));
        }
    }
}

/// What is known of a leg when its flow ends.
#[derive(Debug, Default)]
struct LegEnd {
    totals: Totals,
    /// Where it is asked for.
    stats: Option<LegStats>,
}
