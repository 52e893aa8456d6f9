//! What a worker is asked of its flows, and answers bit by bit between its other work.

use std::collections::VecDeque;
use std::time::Instant;

use midspan_observe::LegStats;
use midspan_sockets::leg_stats;
use midspan_split::{Entry, Key, Leg, PerLeg, Slab};
use tokio::sync::oneshot;

use super::host::LiveHost;
use crate::queries::{Queries, Query, Scanned};

/// Slots that are looked through before other work goes on: some microseconds.
const SCAN: usize = 512;
/// Flows that the kernel is asked of before other work goes on, with four calls each.
const DETAIL: usize = 16;

/// The queries that a worker has taken up.
#[derive(Debug, Default)]
pub(crate) struct AdminQueries(VecDeque<Job>);

#[derive(Debug)]
enum Job {
    Scan { next: usize, found: Vec<Scanned>, reply: oneshot::Sender<Vec<Scanned>> },
    Detail { keys: Vec<Key>, found: Vec<PerLeg<Option<LegStats>>>, reply: Reply },
}

type Reply = oneshot::Sender<Vec<PerLeg<Option<LegStats>>>>;

impl AdminQueries {
    /// Takes up what was left.
    pub(crate) fn take_up(&mut self, queries: &Queries) {
        self.0.extend(queries.take().into_iter().map(|query| match query {
            Query::Scan(reply) => Job::Scan { next: 0, found: Vec::new(), reply },
            Query::Detail(keys, reply) => Job::Detail { found: Vec::new(), keys, reply },
        }));
    }

    /// Whether there is more to do.
    pub(crate) fn is_busy(&self) -> bool {
        !self.0.is_empty()
    }

    /// Does a bit.
    pub(crate) fn step(&mut self, flows: &Slab<Entry<LiveHost>>, seen: Instant) {
        let Some(mut job) = self.0.pop_front() else { return };
        let is_done = match &mut job {
            Job::Scan { next, found, .. } => {
                let (part, rest) = flows.part(*next, SCAN);
                found.extend(part.map(|(key, flow)| Scanned {
                    key,
                    metadata: *flow.host().metadata(),
                    totals: flow.flow().totals(),
                    seen,
                }));
                *next = rest.unwrap_or_default();
                rest.is_none()
            }
            Job::Detail { keys, found, .. } => {
                for key in &keys[found.len()..keys.len().min(found.len() + DETAIL)] {
                    let flow = flows.get(*key);
                    let of = |leg| leg_stats(flow?.host().fd(leg), true);
                    found.push(PerLeg { client: of(Leg::Client), server: of(Leg::Server) });
                }
                found.len() == keys.len()
            }
        };
        match job {
            job if !is_done => self.0.push_back(job),
            // Who does not wait any more gets no answer.
            Job::Scan { found, reply, .. } => drop(reply.send(found)),
            Job::Detail { found, reply, .. } => drop(reply.send(found)),
        }
    }
}
