//! The pump over a model of a kernel's sockets, watched edge-triggered: whatever the peers do in whatever
//! order, what was sent arrives once and in order, ends and resets cross exactly as they should, nothing that
//! was borrowed is kept, and nothing ever hangs. Faults that are planted are found.

use midspan_split::{
    Action, Cause, Failure, Leg, LegInfo, Legs, Outcome, PerLeg, Pump, Read, ReadAhead, Readiness,
    Way, Write,
};
use midspan_units::{Span, Time};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// Bytes of a buffer, a pipe, a socket's send buffer, and a flow's share of a turn.
const BUFFER: u64 = 8 << 10;
const PIPE: u64 = 48 << 10;
const SEND_BUFFER: u64 = 24 << 10;
const TURN: u64 = 64 << 10;
/// The most that is held of a direction.
const LIMIT: u64 = 48 << 10;
/// How often one that lingers is looked at.
const LOOK: Span = Span::from_millis(10);

/// What may happen. What cannot happen now does not.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The server answers, or refuses.
    Connect,
    Refuse,
    /// A leg's peer sends this many bytes, of which the last is urgent or not.
    Send(Leg, u64, bool),
    Close(Leg),
    Reset(Leg),
    /// A leg's peer acknowledges up to this many bytes, and the FIN behind the last of them.
    Acknowledge(Leg, u64),
    /// The worker goes round: hears of what happened, gives turns, sends what is posted (or is told that it was not
    /// tried).
    Round {
        tried: bool,
    },
    /// So many milliseconds pass.
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let leg = || prop_oneof![Just(Leg::Client), Just(Leg::Server)];
    let bytes = || prop_oneof![3 => 1u64..5_000, 1 => 5_000u64..100_000, 1 => Just(1 << 19)];
    let step = prop_oneof![
        4 => Just(Step::Connect),
        20 => (leg(), bytes(), prop::bool::weighted(0.05)).prop_map(|(a, b, c)| Step::Send(a, b, c)),
        20 => (leg(), bytes()).prop_map(|(leg, bytes)| Step::Acknowledge(leg, bytes)),
        40 => prop::bool::weighted(0.9).prop_map(|tried| Step::Round { tried }),
        3 => leg().prop_map(Step::Close),
        1 => leg().prop_map(Step::Reset),
        1 => (1u64..2_000).prop_map(Step::Wait),
        1 => prop::bool::weighted(0.3).prop_map(|refuses| match refuses {
            true => Step::Refuse,
            false => Step::Connect,
        }),
    ];
    prop::collection::vec(step, 1..120)
}

/// What is wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A FIN is not sent, though it is said to be.
    DropsFin,
    /// An empty buffer is not given back.
    LeaksBuffer,
    /// Who waits for the last acknowledgements is not looked at.
    ForgetsLook,
    /// A write is said to have taken a byte more than it did.
    LosesByte,
    /// Who has more to do gets no other turn.
    ForgetsTurn,
}

/// A connection as a kernel has it, and its peer.
#[derive(Debug, Default)]
struct Tcp {
    connected: bool,
    refused: bool,
    /// The peer has reset it.
    dead: bool,
    error: Option<Failure>,
    /// Bytes that the peer has sent, and that were read.
    arrived: u64,
    read: u64,
    /// The byte before which reading stops, until it was tried from there.
    mark: Option<u64>,
    fin: bool,
    /// Bytes given to it, and those that the peer has acknowledged.
    written: u64,
    acknowledged: u64,
    fin_sent: bool,
    fin_acknowledged: bool,
    /// A write was cut short: room is told of.
    no_space: bool,
    /// Something of what it is watched for has happened.
    edge: bool,
    masked: bool,
}

impl Tcp {
    fn has_room(&self) -> bool {
        self.written - self.acknowledged < SEND_BUFFER
    }

    /// What epoll would say now.
    fn level(&self) -> Readiness {
        Readiness {
            readable: (!self.masked && self.arrived > self.read) || self.fin || self.dead,
            writable: self.connected && self.has_room() || self.dead,
            urgent: !self.masked && self.mark.is_some(),
            read_closed: self.fin || self.dead,
            hung_up: self.dead || self.fin && self.fin_sent,
            failed: self.error.is_some(),
        }
    }

    /// Takes what is given, up to `held` bytes.
    fn take(&mut self, held: u64) -> Write {
        if self.dead {
            return Write::Failed(self.error.take().unwrap_or(Failure::BrokenPipe));
        }
        assert!(self.connected && !self.fin_sent, "nothing is written before or after");
        let bytes = held.min(SEND_BUFFER - (self.written - self.acknowledged));
        self.written += bytes;
        self.no_space = bytes < held;
        Write::Some { bytes, full: bytes < held }
    }
}

/// Where bytes of a direction are, by their place in what the peer sent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Store {
    way: Option<Way>,
    /// How much of a buffer was ever used since it was empty.
    end: u64,
    held: (u64, u64),
}

impl Store {
    fn held(&self) -> u64 {
        self.held.1 - self.held.0
    }
}

#[derive(Debug)]
struct Kernel {
    tcp: PerLeg<Tcp>,
    stores: PerLeg<Store>,
    /// Buffers and pipes that can still be had.
    free: u32,
    posts: bool,
    fault: Fault,
}

impl Kernel {
    fn give_back(&mut self, from: Leg) {
        if self.stores[from].way.take().is_some() {
            self.free += 1;
        }
        self.stores[from] = Store::default();
    }

    /// Writes of what is held for a leg.
    fn send(&mut self, to: Leg) -> Write {
        let store = &mut self.stores[to.other()];
        let tcp = &mut self.tcp[to];
        assert!(tcp.dead || tcp.written == store.held.0, "a byte is missing, or comes twice");
        let written = tcp.take(store.held());
        let Write::Some { mut bytes, full } = written else { return written };
        if self.fault == Fault::LosesByte && bytes > 1 {
            tcp.written -= 1;
            bytes -= 1;
            store.held.0 += 1;
        }
        store.held.0 += bytes;
        if store.held() == 0 {
            store.end = 0;
        }
        Write::Some { bytes: bytes + u64::from(self.fault == Fault::LosesByte && bytes > 1), full }
    }
}

impl Legs for Kernel {
    fn read(&mut self, from: Leg, way: Way, most: u64) -> Read {
        assert!(most > 0);
        if way == Way::Copy
            && self.stores[from].way == Some(Way::Splice)
            && self.stores[from].held() == 0
        {
            self.give_back(from);
        }
        let store = &mut self.stores[from];
        if store.way.is_none() {
            if self.free == 0 {
                return Read::NoBuffer;
            }
            self.free -= 1;
            store.way = Some(way);
        }
        let copies = store.way == Some(Way::Copy);
        let tcp = &mut self.tcp[from];
        let room = match copies {
            true => most.min(BUFFER - store.end),
            false => most.min(PIPE.saturating_sub(store.held())),
        };
        if room == 0 {
            return Read::Full;
        }
        let until = match tcp.mark {
            Some(mark) if mark > tcp.read => mark,
            Some(_) if !copies => return Read::Mark,
            _ => tcp.arrived,
        };
        if tcp.arrived > tcp.read {
            tcp.mark = tcp.mark.filter(|&mark| mark > tcp.read);
            let bytes = room.min(until - tcp.read);
            if store.held() == 0 {
                store.held = (tcp.read, tcp.read);
            }
            assert_eq!(store.held.1, tcp.read);
            (store.held.1, store.end) = (store.held.1 + bytes, store.end + bytes);
            tcp.read += bytes;
            return Read::Some { bytes, dry: copies && bytes < room };
        }
        match tcp.error {
            _ if tcp.fin => Read::End,
            Some(_) => {
                tcp.error = None;
                Read::Failed
            }
            None if tcp.dead => Read::End,
            None => Read::Dry,
        }
    }

    fn write(&mut self, to: Leg, held: u64, _more: bool) -> Write {
        assert_eq!(held, self.stores[to.other()].held());
        if self.posts && self.stores[to.other()].way == Some(Way::Copy) {
            return Write::Posted;
        }
        self.send(to)
    }

    fn release_if_empty(&mut self, from: Leg) {
        if self.stores[from].held() == 0 && self.fault != Fault::LeaksBuffer {
            self.give_back(from);
        }
    }

    fn discard(&mut self, from: Leg) {
        assert!(self.tcp[from.other()].dead, "held bytes are dropped, and could be delivered");
        self.give_back(from);
    }

    fn shutdown(&mut self, to: Leg) -> Result<(), Failure> {
        let tcp = &mut self.tcp[to];
        if tcp.dead {
            return Err(Failure::Other);
        }
        assert!(!tcp.fin_sent, "a FIN is sent twice");
        tcp.fin_sent = self.fault != Fault::DropsFin;
        Ok(())
    }

    fn take_error(&mut self, leg: Leg) -> Option<Failure> {
        self.tcp[leg].error.take()
    }

    fn unread(&mut self, leg: Leg) -> u64 {
        self.tcp[leg].arrived - self.tcp[leg].read
    }

    fn unacknowledged(&mut self, leg: Leg) -> Option<u64> {
        let tcp = &self.tcp[leg];
        let fin = tcp.fin_sent && !tcp.fin_acknowledged;
        Some(tcp.written - tcp.acknowledged + u64::from(fin))
    }

    fn info(&mut self, leg: Leg) -> Option<LegInfo> {
        let acknowledged = self.tcp[leg].acknowledged;
        Some(LegInfo { acknowledged, round_trip: Span::from_millis(20) })
    }

    fn set_notsent_lowat(&mut self, _: Leg, _: Option<u64>) {}
}

/// A worker with one flow.
struct Model {
    pump: Pump,
    kernel: Kernel,
    now: Time,
    looked: Time,
    queued: bool,
    waiting: bool,
    over: Option<Option<Cause>>,
    /// Legs that were reset, in this order.
    resets: Vec<Leg>,
}

impl Model {
    fn new(buffers: u32, posts: bool, measured: bool, fault: Fault) -> Model {
        let ahead = || match measured {
            true => ReadAhead::measured(LIMIT, None),
            false => ReadAhead::fixed(LIMIT),
        };
        let tcp = PerLeg {
            client: Tcp { connected: true, edge: true, ..Tcp::default() },
            server: Tcp::default(),
        };
        Model {
            pump: Pump::new(PerLeg { client: ahead(), server: ahead() }),
            kernel: Kernel { tcp, stores: PerLeg::default(), free: buffers, posts, fault },
            now: Time::ZERO,
            looked: Time::ZERO,
            queued: false,
            waiting: false,
            over: None,
            resets: Vec::new(),
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Connect => self.answer(false),
            Step::Refuse => self.answer(true),
            Step::Send(leg, bytes, urgent) => {
                let tcp = &mut self.kernel.tcp[leg];
                if tcp.connected && !tcp.fin && !tcp.dead {
                    tcp.arrived += bytes;
                    if urgent {
                        tcp.mark = Some(tcp.arrived - 1);
                    }
                    tcp.edge |= !tcp.masked;
                }
            }
            Step::Close(leg) => {
                let tcp = &mut self.kernel.tcp[leg];
                if tcp.connected && !tcp.dead && !tcp.fin {
                    (tcp.fin, tcp.edge) = (true, true);
                }
            }
            Step::Reset(leg) => {
                let tcp = &mut self.kernel.tcp[leg];
                if tcp.connected && !tcp.dead && !(tcp.fin && tcp.fin_acknowledged) {
                    let error = if tcp.fin { Failure::BrokenPipe } else { Failure::Reset };
                    (tcp.dead, tcp.error, tcp.edge) = (true, Some(error), true);
                    self.resets.push(leg);
                }
            }
            Step::Acknowledge(leg, bytes) => {
                let tcp = &mut self.kernel.tcp[leg];
                if tcp.dead {
                    return;
                }
                tcp.acknowledged += bytes.min(tcp.written - tcp.acknowledged);
                if tcp.acknowledged == tcp.written && tcp.fin_sent && !tcp.fin_acknowledged {
                    (tcp.fin_acknowledged, tcp.edge) = (true, true);
                }
                if tcp.no_space && tcp.has_room() {
                    (tcp.no_space, tcp.edge) = (false, true);
                }
            }
            Step::Round { tried } => self.round(tried),
            Step::Wait(millis) => self.now += Span::from_millis(millis),
        }
    }

    fn answer(&mut self, refuses: bool) {
        let tcp = &mut self.kernel.tcp.server;
        if !tcp.connected && !tcp.refused {
            (tcp.connected, tcp.refused, tcp.edge) = (!refuses, refuses, true);
            if refuses {
                (tcp.dead, tcp.error) = (true, Some(Failure::Other));
            }
        }
    }

    fn round(&mut self, tried: bool) {
        for leg in Leg::BOTH {
            if self.over.is_none() && std::mem::take(&mut self.kernel.tcp[leg].edge) {
                let level = self.kernel.tcp[leg].level();
                if self.pump.event(leg, level, &mut self.kernel) == Outcome::Refused {
                    self.pump.fail(Cause::ConnectFailed);
                }
                self.queued = true;
            }
        }
        if self.kernel.fault != Fault::ForgetsLook
            && self.over.is_none()
            && self.pump.is_lingering()
            && self.now >= self.looked + LOOK
        {
            self.looked = self.now;
            self.pump.look_after_last(self.now, &mut self.kernel);
            self.queued = true;
        }
        if self.over.is_none() && std::mem::take(&mut self.queued) {
            let before = PerLeg {
                client: self.pump.flow().total_received(Leg::Client),
                server: self.pump.flow().total_received(Leg::Server),
            };
            let action = self.pump.turn(self.now, TURN, &mut self.kernel);
            for leg in Leg::BOTH {
                let moved = self.pump.flow().total_received(leg) - before[leg];
                assert!(moved < TURN + LIMIT, "a turn has an end");
            }
            self.go_on(action);
            for to in Leg::BOTH {
                if self.over.is_none() && self.pump.is_posted(to) {
                    let written = tried.then(|| self.kernel.send(to));
                    let action = self.pump.completed(to, written, &mut self.kernel);
                    self.go_on(action);
                }
            }
            self.mask();
        }
        if self.waiting && self.kernel.free > 0 {
            (self.waiting, self.queued) = (false, true);
        }
    }

    fn go_on(&mut self, action: Action) {
        if self.over.is_some() {
            return;
        }
        match action {
            Action::Wait => {}
            Action::Turn => self.queued = self.kernel.fault != Fault::ForgetsTurn,
            Action::Buffer => self.waiting = true,
            Action::Close => self.end(None),
            Action::Abort(cause) => self.end(Some(cause)),
        }
    }

    fn end(&mut self, cause: Option<Cause>) {
        self.over = Some(cause);
        Leg::BOTH.into_iter().for_each(|leg| self.kernel.give_back(leg));
    }

    fn mask(&mut self) {
        for leg in Leg::BOTH {
            if self.over.is_none()
                && let Some(masked) = self.pump.should_mask_reads(leg)
            {
                let tcp = &mut self.kernel.tcp[leg];
                tcp.masked = masked;
                // The kernel looks anew.
                tcp.edge |= tcp.level() != Readiness::default();
                self.pump.set_reads_masked(leg, masked);
            }
        }
    }

    /// What must be so after every step.
    fn check(&self, buffers: u32) -> Result<(), TestCaseError> {
        let (flow, Kernel { tcp, stores, free, .. }) = (self.pump.flow(), &self.kernel);
        let lent = Leg::BOTH.into_iter().filter(|&leg| stores[leg].way.is_some()).count();
        prop_assert_eq!(free + lent as u32, buffers);
        for from in Leg::BOTH {
            let (to, store) = (from.other(), &stores[from]);
            prop_assert_eq!(flow.total_received(from), tcp[from].read);
            prop_assert_eq!(flow.total_sent(to), tcp[to].written);
            prop_assert!(store.held() <= LIMIT);
            if self.over.is_none() {
                prop_assert!(store.way.is_none() || store.held() > 0, "an empty buffer is kept");
                let is_dropped = tcp[to].dead;
                prop_assert!(is_dropped || store.held() == tcp[from].read - tcp[to].written);
            }
            let whole = tcp[from].fin && tcp[to].written == tcp[from].arrived;
            prop_assert!(!tcp[to].fin_sent || whole, "a FIN without one, or before the last byte");
        }
        if let Some(cause) = self.over {
            self.check_end(cause)?;
        }
        Ok(())
    }

    fn check_end(&self, cause: Option<Cause>) -> Result<(), TestCaseError> {
        let tcp = &self.kernel.tcp;
        let has_all = |to: Leg| {
            let (from, to) = (&tcp[to.other()], &tcp[to]);
            to.acknowledged == from.arrived && to.fin_acknowledged == from.fin
        };
        match cause {
            None => prop_assert!(
                Leg::BOTH.into_iter().all(|leg| has_all(leg) && tcp[leg].fin_acknowledged)
            ),
            Some(Cause::Reset(lost)) => {
                prop_assert!(self.resets.contains(&lost));
                // All that came by it is delivered, if the other one is there, and was for more than an end.
                let is_nobody_there = tcp[lost.other()].dead || !tcp.server.connected;
                let is_nothing = lost == Leg::Client && tcp.client.arrived == 0;
                prop_assert!(is_nobody_there || is_nothing || has_all(lost.other()));
            }
            Some(Cause::ConnectFailed) => prop_assert!(tcp.server.refused),
            cause => prop_assert!(false, "{:?}", cause),
        }
        Ok(())
    }

    /// Has everything arrive that was sent, though nobody sends more.
    fn deliver(&mut self, buffers: u32) -> Result<(), TestCaseError> {
        let mut quiet = 0;
        while quiet < 3 && self.over.is_none() {
            self.apply(Step::Connect);
            let before = PerLeg {
                client: self.kernel.tcp.client.acknowledged,
                server: self.kernel.tcp.server.acknowledged,
            };
            for leg in Leg::BOTH {
                self.apply(Step::Acknowledge(leg, u64::MAX));
            }
            self.apply(Step::Round { tried: true });
            self.check(buffers)?;
            let tcp = &self.kernel.tcp;
            let moves = Leg::BOTH.iter().any(|&leg| tcp[leg].acknowledged > before[leg]);
            let is_told = Leg::BOTH.iter().any(|&leg| tcp[leg].edge);
            quiet = if moves || is_told || self.queued { 0 } else { quiet + 1 };
        }
        let tcp = &self.kernel.tcp;
        let is_whole = Leg::BOTH.iter().all(|&leg| !tcp[leg].dead && tcp[leg].connected);
        for from in Leg::BOTH {
            let is_there = tcp[from.other()].acknowledged == tcp[from].arrived;
            let Model { pump, .. } = self;
            prop_assert!(!is_whole || is_there, "it waits for ever: {:?} {:?}", pump, tcp);
        }
        Ok(())
    }

    /// Lets everything come to its end.
    fn settle(&mut self, buffers: u32) -> Result<(), TestCaseError> {
        for _ in 0..20_000 {
            if self.over.is_some() {
                return Ok(());
            }
            self.apply(Step::Connect);
            for leg in Leg::BOTH {
                // Nobody closes who has been reset, and nobody resets.
                self.apply(Step::Acknowledge(leg, u64::MAX));
                self.apply(Step::Close(leg));
            }
            self.apply(Step::Wait(10));
            self.apply(Step::Round { tried: true });
            self.check(buffers)?;
        }
        let Model { pump, kernel, .. } = self;
        Err(TestCaseError::fail(format!("it hangs: {pump:?} {kernel:?}")))
    }
}

type Case = (Vec<Step>, u32, bool, bool);

fn case() -> impl Strategy<Value = Case> {
    (steps(), 1u32..4, any::<bool>(), any::<bool>())
}

fn play((steps, buffers, posts, measured): Case, fault: Fault) -> Result<(), TestCaseError> {
    let mut model = Model::new(buffers, posts, measured, fault);
    for step in steps {
        model.apply(step);
        model.check(buffers)?;
    }
    model.deliver(buffers)?;
    model.settle(buffers)
}

proptest! {
    #[test]
    fn whatever_happens_it_is_as_it_should_be(case in case()) {
        play(case, Fault::None)?;
    }
}

#[test]
fn planted_faults_are_found() {
    for fault in [
        Fault::DropsFin,
        Fault::LeaksBuffer,
        Fault::ForgetsLook,
        Fault::LosesByte,
        Fault::ForgetsTurn,
    ] {
        let config = Config {
            cases: 5_000,
            failure_persistence: None,
            max_shrink_iters: 0,
            ..Config::default()
        };
        let seed = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let mut runner = TestRunner::new_with_rng(config, seed);
        let found = runner.run(&case(), |case| play(case, fault));
        assert!(found.is_err(), "{fault:?} was not found");
    }
}
