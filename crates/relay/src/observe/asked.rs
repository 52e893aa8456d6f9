//! What a worker is asked of its flows, and answers bit by bit between its other work.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use midspan_observe::LegStats;
use midspan_split::{Leg, PerLeg};
use tokio::sync::oneshot;

use super::leg;
use crate::flow::{LiveFlow, Story};
use crate::observe::Totals;
use crate::slab::{Key, Slab};

/// Slots that are looked through before other work goes on: some microseconds.
const SCAN: usize = 512;
/// Flows that the kernel is asked of before other work goes on, with four calls each.
const DETAIL: usize = 16;

/// What is asked of a worker.
#[derive(Debug)]
pub(crate) enum Ask {
    /// All flows, without their legs.
    Scan(oneshot::Sender<Vec<Brief>>),
    /// The legs of these, in order.
    Detail(Vec<Key>, oneshot::Sender<Vec<PerLeg<Option<LegStats>>>>),
}

/// A flow in brief.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Brief {
    pub(crate) key: Key,
    pub(crate) story: Story,
    pub(crate) totals: PerLeg<Totals>,
    pub(crate) seen: Instant,
}

/// Where questions are left for a worker. It must be woken for them.
#[derive(Debug, Default)]
pub(crate) struct Questions(Mutex<Vec<Ask>>);

impl Questions {
    pub(crate) fn leave(&self, ask: Ask) {
        self.lock().push(ask);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Ask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The questions that a worker has taken up.
#[derive(Debug, Default)]
pub(crate) struct Asked(VecDeque<Job>);

#[derive(Debug)]
enum Job {
    Scan { next: usize, found: Vec<Brief>, reply: oneshot::Sender<Vec<Brief>> },
    Detail { keys: Vec<Key>, found: Vec<PerLeg<Option<LegStats>>>, reply: Reply },
}

type Reply = oneshot::Sender<Vec<PerLeg<Option<LegStats>>>>;

impl Asked {
    /// Takes up what was left.
    pub(crate) fn take_up(&mut self, questions: &Questions) {
        self.0.extend(questions.lock().drain(..).map(|ask| match ask {
            Ask::Scan(reply) => Job::Scan { next: 0, found: Vec::new(), reply },
            Ask::Detail(keys, reply) => Job::Detail { found: Vec::new(), keys, reply },
        }));
    }

    /// Whether there is more to do.
    pub(crate) fn is_busy(&self) -> bool {
        !self.0.is_empty()
    }

    /// Does a bit.
    pub(crate) fn step(&mut self, flows: &Slab<LiveFlow>) {
        let Some(mut job) = self.0.pop_front() else { return };
        let is_done = match &mut job {
            Job::Scan { next, found, .. } => {
                let seen = Instant::now();
                let (part, rest) = flows.part(*next, SCAN);
                found.extend(part.map(|(key, flow)| Brief {
                    key,
                    story: *flow.story(),
                    totals: flow.totals(),
                    seen,
                }));
                *next = rest.unwrap_or_default();
                rest.is_none()
            }
            Job::Detail { keys, found, .. } => {
                for key in &keys[found.len()..keys.len().min(found.len() + DETAIL)] {
                    let flow = flows.get(*key);
                    let of = |leg| leg::stats(flow?.fd(leg), true);
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
