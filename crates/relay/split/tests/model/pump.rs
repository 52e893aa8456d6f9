//! The pump over a model of a kernel's sockets, watched edge-triggered: whatever the peers do in whatever
//! order, what was sent arrives once and in order, ends and resets cross exactly as they should, nothing that
//! was borrowed is kept, and nothing ever hangs. Faults that are planted are found.

use std::cell::Cell;
use std::rc::Rc;

use midspan_split::{Action, Cause, Leg, Linger, Outcome, PerLeg, Pump, ReadAhead};
use midspan_units::{Span, Time};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::kernel::{Fault, Kernel, LIMIT};

/// A flow's share of a turn.
const TURN: u64 = 64 << 10;
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
    /// When the server's was.
    server_reset: Option<Time>,
}

impl Model {
    fn new(buffers: u32, posts: bool, measured: bool, fault: Fault) -> Model {
        let ahead = || match measured {
            true => ReadAhead::measured(LIMIT, None),
            false => ReadAhead::fixed(LIMIT),
        };
        Model {
            pump: Pump::new(PerLeg { client: ahead(), server: ahead() }),
            kernel: Kernel::new(Rc::new(Cell::new(buffers)), posts, fault),
            now: Time::ZERO,
            looked: Time::ZERO,
            queued: false,
            waiting: false,
            over: None,
            resets: Vec::new(),
            server_reset: None,
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Connect => self.kernel.answer(false),
            Step::Refuse => self.kernel.answer(true),
            Step::Send(leg, bytes, urgent) => self.kernel.peer_sends(leg, bytes, urgent),
            Step::Close(leg) => self.kernel.peer_closes(leg),
            Step::Reset(leg) => {
                if self.kernel.peer_resets(leg) {
                    self.resets.push(leg);
                    if leg == Leg::Server {
                        self.server_reset = Some(self.now);
                    }
                }
            }
            Step::Acknowledge(leg, bytes) => self.kernel.peer_acknowledges(leg, bytes),
            Step::Round { tried } => self.round(tried),
            Step::Wait(millis) => self.now += Span::from_millis(millis),
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
            let server = &self.kernel.tcp.server;
            let is_known = !self.pump.flow().is_connecting() && self.over.is_none();
            assert!(
                !is_known
                    || self.pump.is_posted(Leg::Server)
                    || self.queued
                    || !server.in_handshake,
                "the server waits for the end of the handshake"
            );
        }
        if self.waiting && self.kernel.free.get() > 0 {
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
        let PerLeg { client, server } = &self.kernel.tcp;
        let reads = !client.dead && !client.fin && server.arrived > 0;
        if cause == Some(Cause::Reset(Leg::Server)) && reads {
            let reset = self.server_reset.expect("a server has reset");
            assert!(self.now >= reset + Linger::GRACE, "the reset leaves no time for the answer");
        }
        Leg::BOTH.into_iter().for_each(|leg| self.kernel.give_back(leg));
    }

    fn mask(&mut self) {
        for leg in Leg::BOTH {
            if self.over.is_none()
                && let Some(masked) = self.pump.should_mask_reads(leg)
            {
                self.kernel.mask(leg, masked);
                self.pump.set_reads_masked(leg, masked);
            }
        }
    }

    /// What must be so after every step.
    fn check(&self, buffers: u32) -> Result<(), TestCaseError> {
        let Kernel { buffers: lent, free, tcp, .. } = &self.kernel;
        let lent = Leg::BOTH.into_iter().filter(|&leg| lent[leg].mode.is_some()).count();
        prop_assert_eq!(free.get() + lent as u32, buffers);
        self.kernel.check(self.pump.flow(), self.over.is_some())?;
        match self.over {
            None => Ok(()),
            Some(None) => self.kernel.check_end(None),
            Some(Some(Cause::Reset(lost))) => {
                prop_assert!(self.resets.contains(&lost));
                self.kernel.check_end(Some(lost))
            }
            Some(Some(Cause::ConnectFailed)) => {
                prop_assert!(tcp.server.refused);
                Ok(())
            }
            Some(Some(cause)) => Err(TestCaseError::fail(format!("{cause:?}"))),
        }
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
        Fault::KeepsHandshake,
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
