//! A split flow against a reference model: whatever happens in whatever order, no byte is lost or
//! invented, ends and resets cross exactly as they should, and nothing ever hangs.

use midspan_split::{Cause, Disposition, Flow, Leg, PerLeg, Watermarks};
use proptest::prelude::*;

/// What may happen to a flow. Amounts are wishes: the driver cuts them to what the flow allows,
/// as a relay does.
#[derive(Debug, Clone, Copy)]
enum Event {
    Connected,
    ConnectFailed,
    /// Up to this many of the client's bytes go with the SYN of the server leg.
    Early(u64),
    /// The leg's peer sends this many bytes.
    Offer(Leg, u64),
    /// The leg's peer will send no more.
    Close(Leg),
    /// The leg's connection fails: its peer sends nothing any more.
    Reset(Leg),
    /// The relay finds that nothing is left to read of a leg that has failed.
    Exhaust(Leg),
    /// The relay reads up to this many bytes of what is there, or the end.
    Read(Leg, u64),
    /// The leg's send queue takes up to this many bytes of what is held.
    Write(Leg, u64),
    /// The relay sends the FIN if it is due.
    Finish(Leg),
    /// The leg's peer acknowledges up to this many bytes.
    Acknowledge(Leg, u64),
    /// The leg's peer has acknowledged everything.
    Drain(Leg),
    /// No more than this many bytes of what the leg's peer sends are to be held from now on.
    Limit(Leg, u64),
    Stop,
}

fn leg() -> impl Strategy<Value = Leg> {
    prop_oneof![Just(Leg::Client), Just(Leg::Server)]
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => Just(Event::Connected),
        2 => (1u64..2000).prop_map(Event::Early),
        20 => (leg(), 1u64..5000).prop_map(|(leg, n)| Event::Offer(leg, n)),
        3 => leg().prop_map(Event::Close),
        30 => (leg(), 1u64..5000).prop_map(|(leg, n)| Event::Read(leg, n)),
        30 => (leg(), 1u64..5000).prop_map(|(leg, n)| Event::Write(leg, n)),
        8 => leg().prop_map(Event::Finish),
        8 => (leg(), 1u64..5000).prop_map(|(leg, n)| Event::Acknowledge(leg, n)),
        8 => leg().prop_map(Event::Drain),
        4 => (leg(), 0u64..20_000).prop_map(|(leg, limit)| Event::Limit(leg, limit)),
        8 => leg().prop_map(Event::Exhaust),
        1 => prop_oneof![
            4 => leg().prop_map(Event::Reset),
            1 => Just(Event::ConnectFailed),
            1 => Just(Event::Stop),
        ],
    ]
}

/// What one direction should be, written the obvious way.
#[derive(Debug, Default)]
struct Side {
    offered: u64,
    closed: bool,
    received: u64,
    end_read: bool,
    sent: u64,
    fins: u32,
    acknowledged: u64,
    fin_acknowledged: bool,
    limit: u64,
    /// What was held when the limit was set, as far as it still is.
    above: u64,
}

impl Side {
    fn held(&self) -> u64 {
        self.received - self.sent
    }

    /// The most that may be held.
    fn most(&self) -> u64 {
        self.limit.max(self.above)
    }
}

#[derive(Debug)]
struct Model {
    flow: Flow,
    connected: bool,
    failed: Option<Cause>,
    /// The leg whose connection has failed.
    lost: Option<Leg>,
    /// Nothing is left to read of it.
    exhausted: bool,
    /// The other leg's peer has acknowledged all of it.
    delivered: bool,
    /// By the leg the bytes come from.
    sides: PerLeg<Side>,
}

impl Model {
    fn new(low: u64, high: u64) -> Self {
        let side = || Side { limit: high, ..Side::default() };
        Model {
            flow: Flow::new(Watermarks::between(low, high)),
            connected: false,
            failed: None,
            lost: None,
            exhausted: false,
            delivered: false,
            sides: PerLeg { client: side(), server: side() },
        }
    }

    fn is_over(&self) -> bool {
        self.flow.disposition() != Disposition::Continue
    }

    fn apply(&mut self, event: Event) {
        if self.is_over() {
            return;
        }
        match event {
            Event::Connected => {
                self.connected = true;
                self.flow.connected();
            }
            Event::ConnectFailed if !self.connected => self.fail(Cause::ConnectFailed),
            Event::ConnectFailed => {}
            Event::Early(wish) if !self.connected => {
                let side = &mut self.sides[Leg::Client];
                let bytes = wish.min(side.offered - side.received).min(side.limit);
                side.received += bytes;
                side.sent += bytes;
                self.flow.early(bytes);
            }
            Event::Early(_) => {}
            Event::Stop => self.fail(Cause::Stopped),
            Event::Reset(leg) => {
                self.flow.lose(leg);
                match self.lost {
                    None if leg == Leg::Server && !self.connected => {
                        self.failed = Some(Cause::Reset(leg));
                    }
                    None => self.lost = Some(leg),
                    Some(first) if first != leg => self.failed = Some(Cause::Reset(first)),
                    Some(_) => {}
                }
            }
            Event::Exhaust(leg)
                if self.lost == Some(leg)
                    && self.sides[leg].received == self.sides[leg].offered
                    && !self.sides[leg].closed =>
            {
                self.flow.exhausted(leg);
                self.exhausted = true;
                if !self.connected {
                    self.failed = Some(Cause::Reset(leg));
                }
            }
            Event::Exhaust(_) => {}
            Event::Offer(from, bytes) if !self.sides[from].closed && self.lost != Some(from) => {
                self.sides[from].offered += bytes;
            }
            Event::Offer(..) => {}
            Event::Close(from) => self.sides[from].closed |= self.lost != Some(from),
            Event::Limit(from, limit) => {
                let side = &mut self.sides[from];
                (side.limit, side.above) = (limit.max(1), side.held());
                self.flow.set_marks(from, Watermarks::up_to(limit));
            }
            Event::Read(from, wish) => self.read(from, wish),
            Event::Write(to, wish) => {
                let bytes = wish.min(self.flow.to_write(to));
                let side = &mut self.sides[to.other()];
                side.sent += bytes;
                side.above = side.above.min(side.held());
                self.flow.sent(to, bytes);
            }
            Event::Finish(to) if self.flow.must_finish(to) => {
                self.sides[to.other()].fins += 1;
                self.flow.finished(to);
            }
            Event::Finish(_) => {}
            Event::Acknowledge(by, wish) if self.lost != Some(by) => {
                let side = &mut self.sides[by.other()];
                let bytes = wish.min(side.sent - side.acknowledged);
                side.acknowledged += bytes;
                self.flow.acknowledged(by, bytes);
            }
            Event::Drain(leg) if self.lost != Some(leg) => {
                self.delivered |= self.awaits_last(leg);
                let side = &mut self.sides[leg.other()];
                side.acknowledged = side.sent;
                side.fin_acknowledged = side.fins == 1;
                self.flow.drained(leg);
            }
            Event::Acknowledge(..) | Event::Drain(_) => {}
        }
    }

    fn read(&mut self, from: Leg, wish: u64) {
        let allowed = self.flow.may_read(from);
        let side = &mut self.sides[from];
        let bytes = wish.min(side.offered - side.received).min(allowed);
        side.received += bytes;
        self.flow.received(from, bytes);
        if bytes == 0 && allowed > 0 && side.closed && side.received == side.offered {
            side.end_read = true;
            self.flow.end_of_stream(from);
        }
    }

    /// Whether all that the lost leg had sent, its FIN included, was sent on this one.
    fn awaits_last(&self, leg: Leg) -> bool {
        let side = &self.sides[leg.other()];
        let is_read = self.exhausted || side.end_read;
        let is_sent = side.held() == 0 && (!side.end_read || side.fins == 1);
        self.lost == Some(leg.other()) && self.connected && is_read && is_sent && !self.delivered
    }

    fn fail(&mut self, cause: Cause) {
        self.failed = Some(cause);
        self.flow.fail(cause);
    }

    fn check(&self) -> Result<(), TestCaseError> {
        for from in Leg::BOTH {
            let (side, to) = (&self.sides[from], from.other());
            let held = side.held();
            prop_assert!(held <= side.most(), "{held} held");
            prop_assert_eq!(self.flow.total_received(from), side.received);
            prop_assert_eq!(self.flow.total_sent(to), side.sent);
            prop_assert_eq!(self.flow.occupied(from), side.received - side.acknowledged);
            prop_assert!(side.fins <= 1);
            let ended = side.end_read && self.sides[to].fins == 1;
            prop_assert_eq!(self.flow.has_ended(from), ended);
            if side.fins == 1 {
                // Only after all bytes, and none after it.
                prop_assert!(side.end_read && held == 0 && side.sent == side.offered);
                prop_assert_eq!(self.flow.to_write(to), 0);
            }
            if self.is_over() || !self.connected {
                prop_assert_eq!(self.flow.may_read(from) + self.flow.to_write(to), 0);
                prop_assert!(!self.flow.must_finish(to) && !self.flow.awaits_drain(to));
                continue;
            }
            if self.lost == Some(to) {
                // There is nowhere to send it.
                prop_assert_eq!(self.flow.may_read(from) + self.flow.to_write(to), 0);
                prop_assert!(!self.flow.must_finish(to) && !self.flow.awaits_drain(to));
                continue;
            }
            prop_assert_eq!(self.flow.to_write(to), held);
            prop_assert!(held + self.flow.may_read(from) <= side.most());
            prop_assert_eq!(
                self.flow.must_finish(to),
                side.end_read && held == 0 && side.fins == 0
            );
            let awaits_fin = side.fins == 1 && !side.fin_acknowledged;
            prop_assert_eq!(self.flow.awaits_drain(to), awaits_fin || self.awaits_last(to));
            // No deadlock: each direction wants something until it is over.
            prop_assert!(
                self.flow.may_read(from) > 0
                    || self.flow.to_write(to) > 0
                    || self.flow.must_finish(to)
                    || self.flow.awaits_drain(to)
                    || side.fin_acknowledged
            );
        }
        let over = Leg::BOTH.iter().all(|&leg| self.sides[leg].fin_acknowledged);
        let expected = match self.failed {
            Some(cause) => Disposition::Abort(cause),
            None if over => Disposition::Close,
            None if self.delivered => Disposition::Abort(Cause::Reset(self.lost.unwrap())),
            None => Disposition::Continue,
        };
        prop_assert_eq!(self.flow.disposition(), expected);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_flow_agrees_with_the_model(
        (low, high) in (1u64..20_000).prop_flat_map(|high| (0..high, Just(high))),
        events in prop::collection::vec(event(), 0..300),
    ) {
        let mut model = Model::new(low, high);
        model.check()?;
        for event in events {
            model.apply(event);
            model.check()?;
        }
        // From wherever it stands, an obliging world brings it to an orderly end.
        model.apply(Event::Connected);
        model.apply(Event::Close(Leg::Client));
        model.apply(Event::Close(Leg::Server));
        for _ in 0..1_000_000 {
            if model.is_over() {
                break;
            }
            for leg in Leg::BOTH {
                for event in [
                    Event::Read(leg, u64::MAX),
                    Event::Exhaust(leg),
                    Event::Write(leg, u64::MAX),
                    Event::Finish(leg),
                    Event::Drain(leg),
                ] {
                    model.apply(event);
                    model.check()?;
                }
            }
        }
        prop_assert!(model.is_over());
        if let (None, Some(lost)) = (model.failed, model.lost) {
            // All of it, and then the reset.
            prop_assert_eq!(model.sides[lost].acknowledged, model.sides[lost].offered);
        } else if model.failed.is_none() {
            prop_assert_eq!(model.flow.disposition(), Disposition::Close);
            for leg in Leg::BOTH {
                prop_assert_eq!(model.sides[leg].sent, model.sides[leg].offered);
            }
        }
    }

    /// A caller that loses count gets an aborted flow, never a stream with a gap.
    #[test]
    fn accounts_that_do_not_add_up_abort_the_flow(held in 0u64..100, excess in 1u64..100) {
        let relaying = || {
            let mut flow = Flow::new(Watermarks::up_to(100));
            flow.connected();
            flow.received(Leg::Client, held);
            flow
        };
        let mistakes: [&dyn Fn(&mut Flow); 5] = [
            &|flow| flow.early(excess),
            &|flow| flow.sent(Leg::Server, held + excess),
            &|flow| flow.received(Leg::Client, 100 - held + excess),
            &|flow| flow.acknowledged(Leg::Server, excess),
            &|flow| flow.finished(Leg::Server),
        ];
        for mistake in mistakes {
            let mut flow = relaying();
            mistake(&mut flow);
            prop_assert_eq!(flow.disposition(), Disposition::Abort(Cause::Inconsistent));
        }
    }
}

#[test]
fn reading_stops_at_the_high_mark_and_starts_again_at_the_low_one() {
    let mut flow = Flow::new(Watermarks::between(40, 100));
    flow.connected();
    flow.received(Leg::Client, 100);
    assert_eq!(flow.may_read(Leg::Client), 0);
    flow.sent(Leg::Server, 59);
    assert_eq!(flow.may_read(Leg::Client), 0);
    flow.sent(Leg::Server, 1);
    assert_eq!(flow.may_read(Leg::Client), 60);
}

#[test]
fn a_half_closed_flow_still_moves_the_other_way() {
    let mut flow = Flow::new(Watermarks::up_to(100));
    flow.connected();
    flow.end_of_stream(Leg::Client);
    flow.finished(Leg::Server);
    flow.drained(Leg::Server);
    assert_eq!(flow.disposition(), Disposition::Continue);
    flow.received(Leg::Server, 80);
    flow.sent(Leg::Client, 80);
    flow.end_of_stream(Leg::Server);
    flow.finished(Leg::Client);
    assert_eq!(flow.disposition(), Disposition::Continue, "not before the client has all of it");
    flow.drained(Leg::Client);
    assert_eq!(flow.disposition(), Disposition::Close);
}

#[test]
fn a_reset_does_not_overtake_data() {
    for leg in Leg::BOTH {
        let mut flow = Flow::new(Watermarks::up_to(100));
        flow.connected();
        flow.received(leg.other(), 70);
        flow.received(leg, 30);
        flow.lose(leg);
        assert_eq!(flow.to_write(leg), 0, "what is for nobody is dropped");
        assert_eq!((flow.may_read(leg), flow.may_read(leg.other())), (70, 0));
        flow.received(leg, 50);
        flow.exhausted(leg);
        flow.sent(leg.other(), 80);
        assert_eq!(flow.disposition(), Disposition::Continue, "a reset would take it back");
        assert!(flow.awaits_drain(leg.other()));
        flow.drained(leg.other());
        assert_eq!(flow.disposition(), Disposition::Abort(Cause::Reset(leg)));
    }
}

#[test]
fn a_fin_goes_before_the_reset_that_came_after_it() {
    let mut flow = Flow::new(Watermarks::up_to(100));
    flow.connected();
    flow.lose(Leg::Server);
    flow.received(Leg::Server, 10);
    flow.end_of_stream(Leg::Server);
    flow.sent(Leg::Client, 10);
    assert!(flow.must_finish(Leg::Client) && !flow.awaits_drain(Leg::Client));
    flow.finished(Leg::Client);
    flow.drained(Leg::Client);
    assert_eq!(flow.disposition(), Disposition::Abort(Cause::Reset(Leg::Server)));
}

#[test]
fn a_client_that_has_sent_and_reset_while_its_server_connects_is_delivered() {
    let mut flow = Flow::new(Watermarks::up_to(100));
    flow.lose(Leg::Client);
    assert_eq!(flow.disposition(), Disposition::Continue);
    flow.connected();
    assert_eq!(flow.may_read(Leg::Client), 100);
    let mut flow = Flow::new(Watermarks::up_to(100));
    flow.lose(Leg::Client);
    flow.exhausted(Leg::Client);
    assert_eq!(
        flow.disposition(),
        Disposition::Abort(Cause::Reset(Leg::Client)),
        "who had sent nothing"
    );
}
