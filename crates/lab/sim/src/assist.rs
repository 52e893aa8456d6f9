//! NetAssist in virtual time: the daemon's own decisions (`midspan-assist-proto`) on readings of the
//! radio trace, and an agent that has a datagram when its way is over.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::VecDeque;

use midspan_assist_proto::estimate::{EstimatorConfig, MinRttConfig};
use midspan_assist_proto::{
    Basis, Board, Causal, FeedbackDatagram, Inbox, Limits, Oracle, Recorded, Registry, Rights,
    SessionId, SourceId, Target, ToDaemon,
};
use midspan_cc::feedback::Value;
use midspan_path::Traces;
use midspan_scenario::record::FeedbackRecord;
use midspan_scenario::{
    Assist, CellSpec, Cuts, FeedbackOf, FeedbackRoute, OwnRtt, Radio, ServiceHost, Tell,
};
use midspan_units::{Rate, Span, Time};

use crate::error::Error;
use crate::host::{Host, MEC, SERVER};

/// A daemon at the MEC and an agent on one of the hosts.
pub(crate) struct NetAssist {
    /// The agent's host.
    pub(crate) host: Host,
    basis: Box<dyn Feeding>,
}

impl NetAssist {
    /// What `spec` asks for; none if it asks for nothing. So many flows share the UE's link.
    pub(crate) fn new(
        spec: &CellSpec,
        traces: &Traces,
        flows: u32,
    ) -> Result<Option<NetAssist>, Error> {
        let Some(assist) = spec.assisted() else { return Ok(None) };
        if assist.way == FeedbackRoute::InBand {
            return Err(Error::InBand);
        }
        let radio = spec.radio(traces, assist.period).ok_or(Error::NoRadio)?;
        let basis: Box<dyn Feeding> = match assist.feedback {
            FeedbackOf::None => return Ok(None),
            FeedbackOf::Causal => Box::new(Line::<Causal>::new(spec, assist, radio, flows)),
            FeedbackOf::Oracle => Box::new(Line::<Oracle>::new(spec, assist, radio, flows)),
        };
        let host = match assist.agent {
            ServiceHost::Server => SERVER,
            ServiceHost::Mec => MEC,
        };
        Ok(Some(NetAssist { host, basis }))
    }

    /// When something happens next.
    pub(crate) fn next(&mut self) -> Time {
        self.basis.next()
    }

    /// Lets happen what is due at `now`. Answers what the agent leaves for the congestion controls,
    /// if anything new.
    pub(crate) fn step(&mut self, now: Time) -> Option<Value> {
        self.basis.step(now)
    }

    /// What became of the feedback so far.
    pub(crate) fn record(&self) -> FeedbackRecord {
        self.basis.record()
    }
}

/// The same for either basis.
trait Feeding {
    fn next(&mut self) -> Time;
    fn step(&mut self, now: Time) -> Option<Value>;
    fn record(&self) -> FeedbackRecord;
}

/// One UE's readings, registration and way to its one sender.
struct Line<B: Basis> {
    registry: Registry<B>,
    radio: Radio,
    cuts: Option<Cuts>,
    /// Of the radio's windows, the next one that is told.
    window: u64,
    /// On their way, and when they arrive.
    under_way: VecDeque<(Time, [u8; FeedbackDatagram::BYTES])>,
    /// Round trip between agent and daemon.
    distance: Span,
    inbox: Inbox,
    board: Board,
    timeout: Span,
    tell: Tell,
    rtt: OwnRtt,
}

const UE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 45, 1, 2));
const SESSION: SessionId = SessionId(0);
const SOURCE: SourceId = SourceId(0);

impl<B: Recorded> Line<B> {
    fn new(spec: &CellSpec, assist: &Assist, radio: Radio, flows: u32) -> Line<B> {
        let min_rtt = MinRttConfig {
            network: spec.path.access.base_rtt(),
            uplink_packet: assist.uplink_packet.as_bytes(),
            ..MinRttConfig::default()
        };
        let estimator = EstimatorConfig { min_rtt, ..EstimatorConfig::default() };
        let mut registry = Registry::new(estimator, Limits::default());
        registry.open(SESSION, Rights { may_ask: vec![UE.into()], ..Rights::default() });
        let register = ToDaemon::Register { registration: 0, ue: UE, period: assist.period };
        registry.handle(SESSION, register, Time::ZERO);
        // As the agent's own default.
        let timeout = assist.period * 7 / 2;
        let mut inbox = Inbox::new(B::KIND, timeout, Rate::from_bps(u64::MAX));
        inbox.register(0, UE);
        let target =
            Target { standing_queue: assist.standing_queue, pace_percent: assist.pace_percent };
        let mut board = Board::new(target);
        board.count([(UE, flows)].into(), Time::ZERO, timeout);
        let distance = match assist.agent {
            ServiceHost::Server => spec.path.wide.base_rtt(),
            ServiceHost::Mec => Span::ZERO,
        };
        Line {
            registry,
            radio,
            cuts: assist.cuts,
            window: 0,
            under_way: VecDeque::new(),
            distance,
            inbox,
            board,
            timeout,
            tell: assist.tell,
            rtt: assist.rtt,
        }
    }

    /// The next datagram whose way is over.
    fn arrived(&mut self, now: Time) -> Option<[u8; FeedbackDatagram::BYTES]> {
        self.under_way.front().filter(|(at, _)| *at <= now)?;
        self.under_way.pop_front().map(|(_, datagram)| datagram)
    }

    fn next_reading(&self) -> Time {
        Time::ZERO + self.radio.down.window() * (self.window + B::DELAY)
    }
}

impl<B: Recorded> Feeding for Line<B> {
    fn next(&mut self) -> Time {
        let arrival = self.under_way.front().map_or(Time::MAX, |(at, _)| *at);
        let due = self.registry.next_due().unwrap_or(Time::MAX);
        self.next_reading().min(arrival).min(due)
    }

    fn step(&mut self, now: Time) -> Option<Value> {
        while self.next_reading() <= now {
            let (at, window) = (self.next_reading(), self.radio.down.window());
            let down = self.radio.down.rate(self.window);
            let up = self.radio.up.as_ref().map(|up| up.rate(self.window));
            if !self.cuts.is_some_and(|cuts| cuts.hold(at.since(Time::ZERO))) {
                self.registry.observe(SOURCE, UE, &B::reading(at, window, down, up), now);
            }
            self.window += 1;
        }
        while let Some(due) = self.registry.poll(now) {
            self.under_way.push_back((now + self.distance / 2, due.datagram));
        }
        let mut told = None;
        while let Some(datagram) = self.arrived(now) {
            let Ok(update) = self.inbox.accept(&datagram, now) else { continue };
            let Some(entry) = self.board.update(update, self.distance) else { continue };
            let min_rtt = match (self.tell, self.rtt) {
                (Tell::Both, _) => entry.min_rtt,
                (Tell::Bandwidth, OwnRtt::Least) => Span::ZERO,
                (Tell::Bandwidth, OwnRtt::Smoothed) => midspan_cc::Feedback::SMOOTHED,
            };
            let feedback = midspan_cc::Feedback {
                bandwidth: entry.bandwidth,
                min_rtt,
                fairness: entry.fairness.as_256ths(),
                queue: entry.queue,
                pace: entry.pace,
            };
            let (updated, timeout, sequence) = (entry.measured, self.timeout, entry.sequence);
            told = Some(Value { feedback, updated, timeout, sequence });
        }
        told
    }

    fn record(&self) -> FeedbackRecord {
        let (counts, tally) = (self.registry.counts(), self.inbox.tally());
        FeedbackRecord {
            readings: counts.readings,
            clipped: counts.clipped_ceiling + counts.clipped_jump,
            ignored: 0,
            used: tally.accepted,
            missing: tally.missing,
        }
    }
}
