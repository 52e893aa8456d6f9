//! The worker over a model of what it runs on: many flows at once, their clients and servers, limits, buffers and time.
//! Whatever happens in whatever order, every byte arrives, ends and resets cross, each flow ends once and for a reason that
//! there is, limits hold, what was taken is given back, and whatever is to be done at a time is done then.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use midspan_split::{
    Admission, Cause, Flow, Host, IdleTimeouts, Key, Leg, Limits, Opened, PerLeg, ReadAhead,
    Reason, Refusal, Rules, Worker,
};
use midspan_units::{Span, Time};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::kernel::{Fault, Kernel, LIMIT};
use crate::net::{Attempt, Connections, Net, SILENCE};

/// Clients that there are.
const CLIENTS: u8 = 4;

/// What may happen. What cannot happen now does not.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A client comes. There are as many other servers if the first cannot be had; or there are none, and its port is in use for
    /// so many tries.
    Come {
        client: u8,
        others: u8,
        port_in_use: u8,
    },
    /// A client comes whose server cannot even be tried.
    ComeInVain(u8),
    /// To one of the open flows.
    To(usize, Peer),
    /// The worker goes round; what is posted is sent, or not tried.
    Round {
        tried: bool,
    },
    /// So many milliseconds pass.
    Wait(u64),
    Limits(Limits),
    Rules(Rules),
}

/// What a flow's peers may do.
#[derive(Debug, Clone, Copy)]
enum Peer {
    Answer,
    Refuse,
    Send(Leg, u64, bool),
    Close(Leg),
    Reset(Leg),
    Acknowledge(Leg, u64),
}

fn limits() -> impl Strategy<Value = Limits> {
    (0u32..12, 0u32..6).prop_map(|(flows, flows_per_client)| Limits { flows, flows_per_client })
}

fn rules() -> impl Strategy<Value = Rules> {
    let seconds = |most: u64| prop::option::of((1..most).prop_map(Span::from_secs));
    (1u64..20, seconds(30), seconds(15), any::<bool>()).prop_map(
        |(timeout, idle, half_closed, tells_silence)| Rules {
            connect_timeout: Span::from_secs(timeout),
            idle_timeouts: IdleTimeouts { idle, half_closed },
            tells_silence,
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let leg = || prop_oneof![Just(Leg::Client), Just(Leg::Server)];
    let bytes = || prop_oneof![3 => 1u64..5_000, 1 => 5_000u64..100_000, 1 => Just(1 << 19)];
    let peer = prop_oneof![
        8 => Just(Peer::Answer),
        2 => Just(Peer::Refuse),
        20 => (leg(), bytes(), prop::bool::weighted(0.05)).prop_map(|(a, b, c)| Peer::Send(a, b, c)),
        20 => (leg(), bytes()).prop_map(|(leg, bytes)| Peer::Acknowledge(leg, bytes)),
        3 => leg().prop_map(Peer::Close),
        1 => leg().prop_map(Peer::Reset),
    ];
    let come = (0..CLIENTS, 0u8..3, prop_oneof![5 => Just(0u8), 1 => 1u8..4, 1 => Just(u8::MAX)]);
    let wait = prop_oneof![3 => 1u64..20, 2 => 20u64..1_000, 1 => 1_000u64..5_000];
    let step = prop_oneof![
        6 => come.prop_map(|(client, others, port_in_use)| Step::Come { client, others, port_in_use }),
        1 => (0..CLIENTS).prop_map(Step::ComeInVain),
        50 => (any::<usize>(), peer).prop_map(|(flow, peer)| Step::To(flow, peer)),
        40 => prop::bool::weighted(0.9).prop_map(|tried| Step::Round { tried }),
        4 => wait.prop_map(Step::Wait),
        1 => limits().prop_map(Step::Limits),
        1 => rules().prop_map(Step::Rules),
    ];
    prop::collection::vec(step, 1..300)
}

/// What must be known of an open flow to say what is right.
struct Known {
    client: u8,
    resets: Vec<Leg>,
    /// How much had crossed it when it was last looked at, and when that had last changed.
    progress: u64,
    moved: Time,
    /// The same of what its peers have acknowledged.
    acknowledged: u64,
    heard: Time,
}

struct Model {
    worker: Worker<Net>,
    net: Net,
    limits: Limits,
    buffers: u32,
    posts: bool,
    known: HashMap<usize, Known>,
    keys: Vec<Key>,
    come: usize,
    /// How flows have ended.
    causes: Vec<Option<Cause>>,
}

type Case = (Vec<Step>, Limits, Rules, u32, bool);

fn case() -> impl Strategy<Value = Case> {
    (steps(), limits(), rules(), 1u32..8, any::<bool>())
}

impl Model {
    fn new(limits: Limits, rules: Rules, buffers: u32, posts: bool) -> Model {
        let admission = Arc::new(Admission::new(limits));
        Model {
            worker: Worker::new(rules, admission.clone(), Time::ZERO),
            net: Net {
                now: Time::ZERO,
                rules,
                admission,
                free: Rc::new(Cell::new(buffers)),
                posted: Vec::new(),
                sending: Vec::new(),
                tries: true,
                ended: Vec::new(),
                full: HashMap::new(),
            },
            limits,
            buffers,
            posts,
            known: HashMap::new(),
            keys: Vec::new(),
            come: 0,
            causes: Vec::new(),
        }
    }

    fn apply(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Come { client, others, port_in_use } => {
                let others = if port_in_use == 0 { others } else { 0 };
                self.come(client, |id, kernel, attempt| {
                    let is_asked = port_in_use == 0;
                    let connected = false;
                    Some(Connections {
                        id,
                        kernel,
                        others,
                        port_in_use,
                        is_asked,
                        connected,
                        attempt,
                    })
                })?;
            }
            Step::ComeInVain(client) => self.come(client, |_, _, _| None)?,
            Step::To(flow, peer) => self.to(flow, peer),
            Step::Round { tried } => self.round(tried),
            Step::Wait(millis) => self.net.now += Span::from_millis(millis),
            Step::Limits(limits) => {
                self.limits = limits;
                self.net.admission.set_limits(limits);
                (0..CLIENTS).for_each(|client| self.net.say_full(client));
            }
            Step::Rules(rules) => {
                self.net.rules = rules;
                self.worker.set_rules(rules, self.net.now);
            }
        }
        self.check()
    }

    /// A client comes; none if its server cannot be tried.
    fn come(
        &mut self,
        client: u8,
        make: impl FnOnce(usize, Kernel, Attempt) -> Option<Connections>,
    ) -> Result<(), TestCaseError> {
        let own = self.known.values().filter(|known| known.client == client).count();
        let expected = if self.known.len() >= self.limits.flows as usize {
            Err(Refusal::TooManyFlows)
        } else if own >= self.limits.flows_per_client as usize {
            Err(Refusal::TooManyOfClient)
        } else {
            Ok(())
        };
        let Model { worker, net, .. } = self;
        prop_assert_eq!(worker.admit(client, net), expected);
        if expected.is_err() {
            return Ok(());
        }
        let (now, id) = (net.now, self.come);
        self.come += 1;
        let fixed = || ReadAhead::fixed(LIMIT);
        let ahead = PerLeg { client: fixed(), server: fixed() };
        let kernel = Kernel::new(net.free.clone(), self.posts, Fault::None);
        let open = |_, net: &mut Net| {
            let flow = make(id, kernel, net.attempt()).ok_or(())?;
            let how = if flow.is_asked { Opened::Connecting(0) } else { Opened::PortInUse };
            Ok::<_, ()>((flow, how))
        };
        if let Ok(key) = worker.open(client, ahead, now, net, open) {
            let resets = Vec::new();
            let (progress, acknowledged) = (u64::MAX, 0);
            let known = Known { client, resets, progress, moved: now, acknowledged, heard: now };
            self.known.insert(id, known);
            self.keys.push(key);
        }
        Ok(())
    }

    fn to(&mut self, flow: usize, peer: Peer) {
        let Some(&key) = self.keys.get(flow % self.keys.len().max(1)) else { return };
        let Some(flow) = self.worker.host_mut(key) else { return };
        let kernel = &mut flow.kernel;
        match peer {
            Peer::Answer | Peer::Refuse if !flow.is_asked => {}
            Peer::Answer => kernel.answer(false),
            Peer::Refuse => kernel.answer(true),
            Peer::Send(leg, bytes, urgent) => kernel.peer_sends(leg, bytes, urgent),
            Peer::Close(leg) => kernel.peer_closes(leg),
            Peer::Reset(leg) => {
                if kernel.peer_resets(leg)
                    && let Some(known) = self.known.get_mut(&flow.id)
                {
                    known.resets.push(leg);
                }
            }
            Peer::Acknowledge(leg, bytes) => kernel.peer_acknowledges(leg, bytes),
        }
    }

    fn round(&mut self, tried: bool) {
        let Model { worker, net, .. } = self;
        let now = net.now;
        for &key in &self.keys {
            for leg in Leg::BOTH {
                let Some(flow) = worker.host_mut(key) else { continue };
                if std::mem::take(&mut flow.kernel.tcp[leg].edge) {
                    let level = flow.kernel.tcp[leg].level();
                    worker.event(key, leg, level, now, net);
                }
            }
        }
        net.tries = tried;
        worker.run_timers(now, net);
        worker.take_turns(now, net);
    }

    /// What must be so after every step.
    fn check(&mut self) -> Result<(), TestCaseError> {
        for (connections, flow, client, cause) in std::mem::take(&mut self.net.ended) {
            let known = self.known.remove(&connections.id);
            let Some(known) = known else { return Err(TestCaseError::fail("it ends twice")) };
            prop_assert_eq!(client, known.client);
            self.check_end(&connections, &flow, &known, cause)?;
            self.causes.push(cause);
        }
        self.keys.retain(|&key| self.worker.flows().get(key).is_some());
        prop_assert_eq!(self.keys.len(), self.known.len());
        prop_assert_eq!(self.worker.flows().len(), self.known.len());
        prop_assert_eq!(self.net.admission.flows() as usize, self.known.len());
        for client in 0..CLIENTS {
            let own = self.known.values().filter(|known| known.client == client).count();
            let is_full = own >= self.limits.flows_per_client as usize;
            prop_assert_eq!(self.net.admission.is_full(&client), is_full);
            // Nobody is told of who never came.
            let said = self.net.full.get(&client).copied();
            prop_assert!(said == Some(is_full) || said.is_none() && (own == 0 || !is_full));
        }
        let mut lent = 0;
        for &key in &self.keys {
            let Some(entry) = self.worker.flows().get(key) else { continue };
            let (flow, connections) = (entry.flow(), entry.host());
            connections.kernel.check(flow, false)?;
            let buffers = &connections.kernel.buffers;
            lent += Leg::BOTH.into_iter().filter(|&leg| buffers[leg].mode.is_some()).count() as u32;
            prop_assert!(connections.attempt.silences <= 1);
            let acknowledged = acknowledged(&connections.kernel);
            if let Some(known) = self.known.get_mut(&connections.id) {
                if known.progress != flow.progress() {
                    (known.progress, known.moved) = (flow.progress(), self.net.now);
                }
                if known.acknowledged != acknowledged {
                    (known.acknowledged, known.heard) = (acknowledged, self.net.now);
                }
            }
        }
        prop_assert_eq!(self.net.free.get() + lent, self.buffers);
        Ok(())
    }

    fn check_end(
        &self,
        connections: &Connections,
        flow: &Flow,
        known: &Known,
        cause: Option<Cause>,
    ) -> Result<(), TestCaseError> {
        let Connections { kernel, .. } = connections;
        let now = self.net.now;
        kernel.check(flow, true)?;
        let still_for = now.since(known.moved);
        let IdleTimeouts { idle, half_closed } = self.worker.rules().idle_timeouts;
        match cause {
            None => kernel.check_end(None)?,
            Some(Cause::Reset(lost)) => {
                prop_assert!(known.resets.contains(&lost));
                // Who acknowledges nothing for so long is given up.
                if now.since(known.heard) < Span::from_secs(10) {
                    kernel.check_end(Some(lost))?;
                }
            }
            Some(Cause::ConnectFailed) => {
                prop_assert!(!connections.connected && connections.others == 0);
                let held_out = now.since(connections.attempt.since) >= Span::from_secs(2);
                prop_assert!(kernel.tcp.server.refused || !connections.is_asked && held_out);
            }
            Some(Cause::ConnectTimedOut) => {
                prop_assert!(!connections.connected && connections.others == 0);
                prop_assert!(now >= connections.attempt.until, "it was not given its time");
            }
            Some(Cause::Idle) => prop_assert!(idle.is_some_and(|idle| still_for >= idle)),
            Some(Cause::HalfClosed) => {
                prop_assert!(half_closed.is_some_and(|half| still_for >= half));
            }
            Some(cause @ (Cause::Stopped | Cause::Inconsistent)) => {
                return Err(TestCaseError::fail(format!("{cause:?}")));
            }
        }
        Ok(())
    }

    /// What must be so after a round: nothing that it was time for is left undone, and whatever is to be done later has its
    /// time.
    fn check_times(&mut self) -> Result<(), TestCaseError> {
        let now = self.net.now;
        let (due, reason) = self.worker.poll_timeout(now).unwrap_or((Time::MAX, Reason::Work));
        prop_assert!(due > now || reason == Reason::Work, "{:?} was due", reason);
        for &key in &self.keys {
            let Some(entry) = self.worker.flows().get(key) else { continue };
            let connections = entry.host();
            if entry.flow().is_connecting() && !connections.connected {
                let Attempt { since, until, tells_silence, silences } = connections.attempt;
                prop_assert!(now < until, "it was to be given up");
                prop_assert!(due <= until, "nobody will give it up");
                let is_silent = tells_silence && now >= since + SILENCE;
                prop_assert_eq!(silences, u32::from(is_silent));
                if !connections.is_asked {
                    prop_assert!(due <= now + Span::from_millis(500), "nobody will try again");
                }
            }
        }
        Ok(())
    }

    /// Has everything arrive that was sent, though nobody sends more.
    fn deliver(&mut self) -> Result<(), TestCaseError> {
        let mut quiet = 0;
        while quiet < 3 {
            let before = self.acknowledged();
            for index in 0..self.keys.len() {
                self.to(index, Peer::Answer);
                for leg in Leg::BOTH {
                    self.to(index, Peer::Acknowledge(leg, u64::MAX));
                }
            }
            self.apply(Step::Round { tried: true })?;
            self.check_times()?;
            let edges = self.keys.iter().any(|&key| {
                let entry = self.worker.flows().get(key);
                entry.is_some_and(|entry| {
                    Leg::BOTH.iter().any(|&leg| entry.host().kernel.tcp[leg].edge)
                })
            });
            let works = matches!(self.worker.poll_timeout(self.net.now), Some((_, Reason::Work)));
            let moves = self.acknowledged() != before;
            quiet = if moves || edges || works { 0 } else { quiet + 1 };
        }
        for &key in &self.keys {
            let Some(entry) = self.worker.flows().get(key) else { continue };
            let tcp = &entry.host().kernel.tcp;
            let is_whole = Leg::BOTH.iter().all(|&leg| !tcp[leg].dead && tcp[leg].connected);
            for from in Leg::BOTH {
                let is_there = tcp[from.other()].acknowledged == tcp[from].arrived;
                prop_assert!(!is_whole || is_there, "it waits for ever: {:?}", entry);
            }
        }
        Ok(())
    }

    fn acknowledged(&self) -> u64 {
        let of = |&key: &Key| Some(acknowledged(&self.worker.flows().get(key)?.host().kernel));
        self.keys.iter().filter_map(of).sum()
    }

    /// Lets everything come to its end, whose peers close, or of whom nothing is heard any more. The worker is called when
    /// it has said, and not before.
    fn settle(&mut self, are_silent: bool) -> Result<(), TestCaseError> {
        for _ in 0..20_000 {
            for index in 0..if are_silent { 0 } else { self.keys.len() } {
                self.to(index, Peer::Answer);
                for leg in Leg::BOTH {
                    // Nobody closes who has been reset, and nobody resets.
                    self.to(index, Peer::Acknowledge(leg, u64::MAX));
                    self.to(index, Peer::Close(leg));
                }
            }
            self.apply(Step::Round { tried: true })?;
            self.check_times()?;
            if self.keys.iter().all(|&key| are_silent && self.may_stay(key)) {
                prop_assert!(!self.keys.is_empty() || self.net.free.get() == self.buffers);
                prop_assert!(!self.keys.is_empty() || self.net.admission.clients().is_empty());
                return Ok(());
            }
            match self.worker.poll_timeout(self.net.now) {
                Some((due, _)) => self.net.now = self.net.now.max(due),
                None if are_silent => break,
                None => self.net.now += Span::from_millis(10),
            }
        }
        let flows: Vec<_> = self.keys.iter().map(|&key| self.worker.flows().get(key)).collect();
        Err(TestCaseError::fail(format!("it hangs: {flows:?}")))
    }

    /// Whether a flow may stay for ever, though nothing more is heard of its peers.
    fn may_stay(&self, key: Key) -> bool {
        let Some(entry) = self.worker.flows().get(key) else { return true };
        let IdleTimeouts { idle, half_closed } = self.worker.rules().idle_timeouts;
        let tcp = &entry.host().kernel.tcp;
        let is_whole = entry.host().connected && !tcp.client.dead && !tcp.server.dead;
        // What has come of one that was lost may wait for a buffer, and others have them all.
        let waits = entry.host().connected && self.net.free.get() == 0;
        (is_whole || waits)
            && idle.is_none()
            && (half_closed.is_none() || !entry.flow().has_seen_fin())
    }
}

fn acknowledged(kernel: &Kernel) -> u64 {
    kernel.tcp.client.acknowledged + kernel.tcp.server.acknowledged
}

/// How flows have ended in it.
fn play(
    (steps, limits, rules, buffers, posts): Case,
    are_silent: bool,
) -> Result<Vec<Option<Cause>>, TestCaseError> {
    let mut model = Model::new(limits, rules, buffers, posts);
    for step in steps {
        model.apply(step)?;
        if let Step::Round { .. } = step {
            model.check_times()?;
        }
    }
    if !are_silent {
        model.deliver()?;
    }
    model.settle(are_silent)?;
    Ok(model.causes)
}

proptest! {
    #[test]
    fn whatever_happens_all_is_as_it_should_be(case in case(), are_silent: bool) {
        play(case, are_silent)?;
    }
}

/// A model in which nothing happens would find nothing.
#[test]
fn flows_end_in_every_way() {
    let config = Config { cases: 200, failure_persistence: None, ..Config::default() };
    let seed = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, seed);
    let causes = RefCell::new(HashMap::<Option<Cause>, u32>::new());
    let run = runner.run(&(case(), any::<bool>()), |(case, are_silent)| {
        for cause in play(case, are_silent)? {
            *causes.borrow_mut().entry(cause).or_default() += 1;
        }
        Ok(())
    });
    run.unwrap();
    let causes = causes.into_inner();
    let ways = [
        None,
        Some(Cause::Reset(Leg::Client)),
        Some(Cause::Reset(Leg::Server)),
        Some(Cause::ConnectFailed),
        Some(Cause::ConnectTimedOut),
        Some(Cause::Idle),
        Some(Cause::HalfClosed),
    ];
    for way in ways {
        assert!(causes.get(&way).is_some_and(|&times| times >= 10), "{way:?}: {causes:?}");
    }
}

#[test]
fn a_worker_that_stops_resets_all() {
    let limits = Limits { flows: 9, flows_per_client: 9 };
    let rules = Rules {
        connect_timeout: Span::from_secs(10),
        idle_timeouts: IdleTimeouts::default(),
        tells_silence: false,
    };
    let mut model = Model::new(limits, rules, 4, true);
    for client in 0..CLIENTS {
        model.apply(Step::Come { client, others: 0, port_in_use: 0 }).unwrap();
    }
    let Model { worker, net, .. } = &mut model;
    worker.fail_all(Cause::Stopped, net);
    assert!(worker.flows().is_empty() && net.admission.flows() == 0);
    let causes: Vec<_> = net.ended.iter().map(|&(.., cause)| cause).collect();
    assert_eq!(causes, [Some(Cause::Stopped); CLIENTS as usize]);
}
