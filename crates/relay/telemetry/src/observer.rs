//! What the workers tell what they know to.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use midspan_config::Config;
use midspan_observe::{
    Began, Direction, Entry, FlowId, LegStats, Naming, PathRecord, Split, Start,
};
use midspan_split::{Cause, Leg, PerLeg, Totals};
use midspan_steer::{Course, FlowRecord};
use midspan_sys::clock::Epoch;
use midspan_threads::Privileges;

use crate::error::ObserveError;
use crate::flow_log::FlowLog;
use crate::measures::Measures;
use crate::naming;
use crate::treatment::{Treatment, TreatmentSnapshot, TreatmentSums};

/// What the workers tell what they know to.
#[derive(Debug)]
pub struct Observer {
    pub(crate) naming: Naming,
    pub(crate) flow_log: Option<FlowLog>,
    /// Whether it is told of flows that begin.
    starts: bool,
    /// Whether what TCP knows of a flow at its end is wanted.
    is_measured: bool,
    /// One for each worker.
    pub(crate) measures: Vec<Measures>,
    /// What passed of connections, by [`Treatment`].
    treatments: [TreatmentSums; Treatment::ALL.len()],
}

/// What is told of a flow that is over.
#[derive(Debug, Clone, Copy)]
pub struct EndedFlow {
    /// What the flow log calls it.
    pub id: FlowId,
    /// Who had opened it.
    pub client: SocketAddr,
    /// Whom it went to.
    pub server: SocketAddr,
    /// How long it was open.
    pub lasted: Duration,
    /// How long the server took to answer the connect; none if it has not.
    pub connect: Option<Duration>,
    /// Directions that were ever promoted to splicing, by the leg read from.
    pub spliced: PerLeg<bool>,
    /// Bytes that have crossed each leg.
    pub totals: PerLeg<Totals>,
    /// What TCP knows of each leg, where [it is asked for](Observer::wants).
    pub stats: PerLeg<Option<LegStats>>,
    /// Why it was aborted; none if it ended in order.
    pub cause: Option<Cause>,
}

impl Observer {
    /// Opens what is written to, in a thread that keeps these privileges. It is told by so many workers.
    ///
    /// # Errors
    /// When the pseudonyms' key cannot be had, or the flow log's file not be opened.
    pub fn open(
        config: &Config,
        workers: usize,
        privileges: Privileges,
    ) -> Result<Observer, ObserveError> {
        let open = |log| FlowLog::open(log, privileges);
        Ok(Observer {
            naming: naming::of(&config.log)?,
            flow_log: config.flow_log.as_ref().map(open).transpose()?,
            starts: config.flow_log.as_ref().is_some_and(|log| log.starts),
            is_measured: config.metrics.is_some(),
            measures: (0..workers).map(|_| Measures::new()).collect(),
            treatments: Default::default(),
        })
    }

    /// The flow log, if there is one.
    pub fn flow_log(&self) -> Option<&FlowLog> {
        self.flow_log.as_ref()
    }

    /// What a connection is called that began so.
    pub fn identify(&self, client: SocketAddr, server: SocketAddr, began: Began) -> FlowId {
        self.naming.identify(client, server, began)
    }

    /// Records a flow that begins now, where that is asked for.
    pub fn begins(&self, worker: usize, id: FlowId, client: SocketAddr, server: SocketAddr) {
        let Some(flow_log) = self.flow_log.as_ref().filter(|_| self.starts) else { return };
        let client = self.naming.of(client);
        flow_log.add(Entry::Start(Start { id, start: SystemTime::now(), client, server, worker }));
    }

    /// Whether anything is wanted of flows that end.
    pub fn wants(&self) -> bool {
        self.is_measured || self.flow_log.is_some()
    }

    /// Whether names of congestion controls are wanted, too, which cost a call more.
    pub fn wants_names(&self) -> bool {
        self.flow_log.is_some()
    }

    /// Records a flow of a worker that is over.
    pub fn ended(&self, worker: usize, flow: &EndedFlow) {
        if self.is_measured {
            let measures = &self.measures[worker];
            for leg in Leg::BOTH {
                if let Some(stats) = &flow.stats[leg] {
                    measures.legs[leg].record(stats);
                }
            }
            if let Some(connect) = flow.connect {
                measures.connect.record(connect.as_micros() as u64);
            }
            measures.duration.record(flow.lasted.as_micros() as u64);
        }
        if let Some(flow_log) = &self.flow_log {
            let now = SystemTime::now();
            flow_log.add(Entry::Split(Split {
                id: flow.id,
                start: now.checked_sub(flow.lasted).unwrap_or(now),
                end: now,
                client: self.naming.of(flow.client),
                server: flow.server,
                ended: flow.cause.map_or("closed", Cause::label).into(),
                worker,
                connect_us: flow.connect.map(|connect| connect.as_micros() as u64),
                spliced: [flow.spliced.client, flow.spliced.server],
                bytes_from_client: flow.totals.client.received,
                bytes_to_server: flow.totals.server.sent,
                bytes_from_server: flow.totals.server.received,
                bytes_to_client: flow.totals.client.sent,
                client_leg: flow.stats.client,
                server_leg: flow.stats.server,
            }));
        }
    }

    /// Records a connection that the steering program has seen end.
    pub fn connection_ended(&self, record: &FlowRecord, epoch: &Epoch) {
        self.treatments[Treatment::of(record.verdict) as usize].add(record);
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
        flow_log.add(Entry::Path(PathRecord {
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

    /// What passed of connections that were treated so.
    pub(crate) fn treatment_sums(&self, treatment: Treatment) -> &TreatmentSums {
        &self.treatments[treatment as usize]
    }

    /// What passed of connections that were treated so, in sums.
    pub fn treatment(&self, treatment: Treatment) -> TreatmentSnapshot {
        self.treatment_sums(treatment).snapshot()
    }
}
