use midspan_cc::Control;
use midspan_cc::feedback::Value;
use midspan_units::{Span, Time};

use crate::receiver::{Arrival, Hurry, Receiver, Told};
use crate::segment::{position, sequence};
use crate::sender::{Acknowledgement, Outgoing, Sender};
use crate::{Config, EcnMode, Event, Info, Segment};

/// How far a connection has come (RFC 9293, 3.3.2). The states of closing are told apart by
/// [`Endpoint::is_finished`] and [`Endpoint::is_drained`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A SYN was sent.
    SynSent,
    /// A SYN was received and answered.
    SynReceived,
    /// Open, until both directions have ended.
    Established,
    /// Both directions have ended in order, and this end lingers to answer what is late.
    TimeWait,
    /// Over. Everything was delivered.
    Closed,
    /// Over. Not everything need have been delivered.
    Failed(Failure),
}

/// Why a connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The peer reset it.
    Reset,
    /// The peer was silent for too long.
    TimedOut,
    /// The application aborted it.
    Aborted,
}

/// A segment to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// The segment.
    pub segment: Segment,
    /// Segments with the same number go back to back, handed over as one to segmentation offload.
    pub burst: u64,
}

/// One end of a connection.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    stage: Stage,
    sender: Sender,
    receiver: Receiver,
    /// Initial sequence numbers: ours, the peer's.
    initial: (u32, u32),
    /// How far the peer's window field is shifted.
    peer_scale: u8,
    /// The timestamp to echo (RFC 7323, 4.3).
    recent: u32,
    /// The SYN or its answer: when it was first sent, how often since, and when to send it again.
    handshake: Handshake,
    /// The peer ended its direction before we ended ours.
    passive: bool,
    lingers_until: Option<Time>,
    reset_due: bool,
    /// An acknowledgement of what came before a packet that was marked differently, or that is of one block too many.
    before: Option<Segment>,
    bursts: u64,
}

#[derive(Debug, Clone, Copy)]
struct Handshake {
    first: Time,
    sent: u32,
    /// The peer's SYN asked for ECN.
    ecn_asked: bool,
    again: Option<Time>,
    due: bool,
}

/// RFC 6298, 2.1.
const FIRST_TIMEOUT: Span = Span::from_secs(1);
/// How much older than what came in order a timestamp may be, in milliseconds (RFC 7323, 5.3; Linux's tolerance).
const PAWS_WINDOW: i32 = 1;
/// Linux's TIME-WAIT.
const LINGER: Span = Span::from_secs(60);

impl Endpoint {
    /// Opens a connection: [`Endpoint::poll_transmit`] gives the SYN. `initial` is its sequence
    /// number.
    pub fn connect(config: Config, control: Control, now: Time, initial: u32) -> Endpoint {
        let mut endpoint = Endpoint::new(config, control, now, initial);
        endpoint.stage = Stage::SynSent;
        endpoint
    }

    /// Accepts a connection whose `syn` has come: [`Endpoint::poll_transmit`] gives the answer.
    pub fn accept(
        config: Config,
        control: Control,
        now: Time,
        initial: u32,
        syn: &Segment,
    ) -> Endpoint {
        let mut endpoint = Endpoint::new(config, control, now, initial);
        endpoint.handshake.ecn_asked = syn.ece && syn.cwr;
        endpoint.take_syn(syn);
        endpoint.stage = Stage::SynReceived;
        endpoint
    }

    fn new(config: Config, control: Control, now: Time, initial: u32) -> Endpoint {
        let exact = control.name() == "dctcp";
        let mut receiver = Receiver::new(&config);
        receiver.ecn.exact = exact;
        Endpoint {
            sender: Sender::new(&config, control),
            receiver,
            config,
            stage: Stage::SynSent,
            initial: (initial, 0),
            peer_scale: 0,
            recent: 0,
            handshake: Handshake { first: now, sent: 0, ecn_asked: false, again: None, due: true },
            passive: false,
            lingers_until: None,
            reset_due: false,
            before: None,
            bursts: 0,
        }
    }

    // The application's side.

    /// Bytes that may be written now: what the send buffer has room for, and
    /// [`Config::tcp_notsent_lowat`] allows.
    pub fn writable(&self) -> u64 {
        if self.may_write() { self.sender.room() } else { 0 }
    }

    fn may_write(&self) -> bool {
        self.is_open() && !self.sender.is_closed()
    }

    /// Writes up to `bytes`; answers how many were taken.
    pub fn write(&mut self, bytes: u64) -> u64 {
        if self.may_write() { self.sender.write(bytes) } else { 0 }
    }

    /// Bytes that may be read now.
    pub fn readable(&self) -> u64 {
        self.receiver.readable()
    }

    /// Reads up to `most` bytes; answers how many.
    pub fn read(&mut self, now: Time, most: u64) -> u64 {
        self.receiver.read(now, most)
    }

    /// Ends this direction: a FIN follows the last byte.
    pub fn close(&mut self) {
        if self.is_open() {
            self.sender.close();
        }
    }

    /// Ends the connection with a reset.
    pub fn abort(&mut self) {
        if matches!(self.stage, Stage::SynReceived | Stage::Established) {
            self.reset_due = true;
        }
        if !self.is_over() {
            self.stage = Stage::Failed(Failure::Aborted);
        }
    }

    /// Sets the receive window by hand, in bytes, for a proxy whose buffer is its own; `None` for
    /// what the socket buffer allows.
    pub fn set_receive_window(&mut self, bytes: Option<u64>) {
        self.receiver.set_limit(bytes);
    }

    /// Sets [`Config::tcp_notsent_lowat`]; `None` for no limit.
    pub fn set_notsent_lowat(&mut self, bytes: Option<u32>) {
        self.sender.set_unsent_limit(bytes);
    }

    /// The window, in packets.
    pub fn cwnd(&self) -> u32 {
        self.sender.cwnd()
    }

    /// Has the connection begin with another window, in packets, if nothing was sent yet (`TCP_BPF_IW`).
    pub fn set_first_window(&mut self, packets: u32) {
        self.sender.set_first_window(packets);
    }

    /// What NetAssist says about the way to the peer from now on; what it said before counts no longer.
    pub fn set_feedback(&mut self, feedback: Value) {
        self.sender.feedback = Some(feedback);
    }

    /// How far it has come.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The round-trip time that is worth to be remembered; none if it is not known, or timeouts follow each other.
    pub(crate) fn remembers(&self) -> Option<Span> {
        self.sender.rtt().worth_remembering()
    }

    /// Whether it has ended, well or not.
    pub fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Closed | Stage::Failed(_))
    }

    fn is_open(&self) -> bool {
        matches!(self.stage, Stage::SynSent | Stage::SynReceived | Stage::Established)
    }

    /// Whether the peer's FIN has come, and all that was before it was read.
    pub fn is_finished(&self) -> bool {
        self.receiver.is_read_out()
    }

    /// Whether all that was written is acknowledged, and the FIN too if it was asked for.
    pub fn is_drained(&self) -> bool {
        self.stage != Stage::SynSent && self.stage != Stage::SynReceived && self.sender.is_drained()
    }

    /// Whether this direction was ended and the peer has acknowledged all of it, the FIN included.
    pub fn has_ended(&self) -> bool {
        self.sender.is_closed() && self.sender.is_drained()
    }

    /// Bytes that the application wrote.
    pub fn written(&self) -> u64 {
        self.sender.written() - 1
    }

    /// Bytes written and not yet sent.
    pub fn unsent(&self) -> u64 {
        self.sender.unsent()
    }

    /// Bytes that the peer has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.sender.una().min(self.sender.written()) - 1
    }

    /// Bytes received in order.
    pub fn received(&self) -> u64 {
        self.receiver.received()
    }

    /// The congestion control.
    pub fn control(&self) -> &Control {
        self.sender.control()
    }

    /// What `TCP_INFO` would say.
    pub fn info(&self) -> Info {
        self.sender.info(self.acknowledged(), self.received(), self.receiver.rtt())
    }

    /// From now on what the sending half does can be taken as events, from the end of the handshake on.
    pub fn watch(&mut self) {
        self.sender.watch();
    }

    /// The events since they were taken last, in order. None if nobody watches.
    pub fn take_events(&mut self) -> Vec<(Time, Event)> {
        self.sender.take_events()
    }

    // The network's side.

    /// A segment has come.
    pub fn receive(&mut self, now: Time, segment: &Segment) {
        match self.stage {
            Stage::SynSent => self.receive_answer(now, segment),
            Stage::Closed | Stage::Failed(_) => {}
            Stage::SynReceived | Stage::Established | Stage::TimeWait => {
                self.receive_synchronized(now, segment);
            }
        }
    }

    fn receive_answer(&mut self, now: Time, segment: &Segment) {
        let expected = segment.ack_flag && segment.ack == self.initial.0.wrapping_add(1);
        if !expected {
            return;
        }
        if segment.rst {
            self.stage = Stage::Failed(Failure::Reset);
        } else if segment.syn {
            self.take_syn(segment);
            let ecn = segment.ece && !segment.cwr && self.asks_for_ecn();
            self.establish(now, segment, ecn);
            self.receiver.answer();
        }
    }

    /// Takes the options of the peer's SYN.
    fn take_syn(&mut self, syn: &Segment) {
        self.initial.1 = syn.seq;
        self.peer_scale = syn.window_scale;
        self.recent = syn.timestamps.0;
        self.config.mss = self.config.mss.min(u32::from(syn.mss));
        self.config.tcp_sack &= syn.sack_permitted;
    }

    fn establish(&mut self, now: Time, segment: &Segment, ecn: bool) {
        self.stage = Stage::Established;
        self.handshake.again = None;
        self.handshake.due = false;
        self.receiver.ecn.enabled = ecn;
        // The window of a SYN is not scaled.
        let shift = if segment.syn { 0 } else { self.peer_scale };
        let right_edge = 1 + (u64::from(segment.window) << shift);
        let sample = (self.handshake.sent == 1).then(|| now.since(self.handshake.first));
        self.sender.establish(now, &self.config, right_edge, sample, ecn);
        self.receiver.establish(now, &self.config);
    }

    fn receive_synchronized(&mut self, now: Time, segment: &Segment) {
        let start = position(self.initial.1, self.receiver.nxt(), segment.seq);
        if segment.rst {
            // RFC 5961, 3.2, but for the challenge: nobody forges here.
            self.stage = Stage::Failed(Failure::Reset);
            return;
        }
        if segment.syn {
            // Our answer, or the acknowledgement of the peer's, was lost.
            if self.stage == Stage::SynReceived {
                self.handshake.due = true;
            } else {
                self.receiver.answer();
            }
            return;
        }
        if !segment.ack_flag {
            return;
        }
        let ack = position(self.initial.0, self.sender.una(), segment.ack);
        let age = self.recent.wrapping_sub(segment.timestamps.0).cast_signed();
        let end = start + u64::from(segment.length());
        if age > PAWS_WINDOW && (segment.length() > 0 || ack != self.sender.una()) {
            if segment.length() > 0 {
                self.receiver.refuse(start, end);
            }
            return;
        }
        // What lies before the window says nothing of what is in order (RFC 9293, 3.10.7.4).
        if age <= 0 && (start..=end).contains(&self.receiver.last_acknowledged()) {
            self.recent = segment.timestamps.0;
        }
        if self.stage == Stage::SynReceived {
            if ack != 1 {
                return;
            }
            let ecn = self.handshake.ecn_asked && self.agrees_to_ecn();
            self.establish(now, segment, ecn);
        }
        self.take_acknowledgement(now, segment, ack);
        if segment.payload > 0 || segment.fin {
            self.take_data(now, segment, start);
        } else if start < self.receiver.nxt() {
            // A probe of the window, or a keep-alive.
            self.receiver.answer();
        }
        self.look_for_the_end(now);
    }

    fn take_acknowledgement(&mut self, now: Time, segment: &Segment, ack: u64) {
        let una = self.sender.una();
        let mut blocks = [(0, 0); 3];
        let count = segment.sack_blocks().len();
        for (block, &(start, end)) in blocks.iter_mut().zip(segment.sack_blocks()) {
            *block = (position(self.initial.0, una, start), position(self.initial.0, una, end));
        }
        self.sender.acknowledge(
            now,
            &Acknowledgement {
                ack,
                right_edge: ack + (u64::from(segment.window) << self.peer_scale),
                sack: &blocks[..count],
                echo: segment.timestamps.1,
                ece: segment.ece && self.sender.ecn(),
                with_data: segment.length() > 0,
                // On data it is a router's, and the receiver's to answer.
                wla: segment.ce && segment.length() == 0,
            },
        );
    }

    fn take_data(&mut self, now: Time, segment: &Segment, start: u64) {
        match self.receiver.ecn.packet(segment.ce, segment.cwr) {
            Hurry::No => {}
            Hurry::Soon => self.receiver.hurry(2),
            Hurry::Before => {
                if self.receiver.owes() {
                    self.before = Some(self.segment(now, self.sender.nxt()));
                }
                self.receiver.ecn.set(segment.ce);
            }
        }
        let arrival = Arrival {
            start,
            payload: segment.payload,
            fin: segment.fin,
            echo: segment.timestamps.1,
        };
        let rtt = self.sender.rtt();
        self.receiver.arrive(now, &arrival, rtt.smoothed(), rtt.rto());
        if let Some(told) = self.receiver.take_told() {
            self.before = Some(self.acknowledging(now, self.sender.nxt(), told));
        }
    }

    fn look_for_the_end(&mut self, now: Time) {
        if self.stage != Stage::Established || !self.receiver.is_finished() {
            return;
        }
        self.passive |= !self.sender.fin_sent();
        if self.sender.is_closed() && self.sender.is_drained() {
            // Whoever closed last has been told that all is well, and need not linger.
            self.stage = if self.passive { Stage::Closed } else { Stage::TimeWait };
            self.lingers_until = (!self.passive).then(|| now + LINGER);
        }
    }

    /// When [`Endpoint::on_timer`] wants to be called; `None` if only a segment or the application
    /// can change anything.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.stage {
            Stage::SynSent | Stage::SynReceived => self.handshake.again,
            Stage::Established => {
                let deadlines = [self.sender.deadline(), self.receiver.deadline()];
                deadlines.into_iter().flatten().min()
            }
            Stage::TimeWait => self.receiver.deadline().into_iter().chain(self.lingers_until).min(),
            Stage::Closed | Stage::Failed(_) => None,
        }
    }

    /// The time that [`Endpoint::poll_timeout`] gave has come.
    pub fn on_timer(&mut self, now: Time) {
        match self.stage {
            Stage::SynSent | Stage::SynReceived => {
                if self.handshake.again.is_some_and(|at| at <= now) {
                    self.handshake.again = None;
                    if self.handshake.sent > self.config.tcp_syn_retries {
                        self.stage = Stage::Failed(Failure::TimedOut);
                    }
                    self.handshake.due = true;
                }
            }
            Stage::Established => {
                self.receiver.on_timer(now, self.sender.rtt().rto());
                if !self.sender.on_timer(now) {
                    self.stage = Stage::Failed(Failure::TimedOut);
                }
            }
            Stage::TimeWait => {
                self.receiver.on_timer(now, self.sender.rtt().rto());
                if self.lingers_until.is_some_and(|at| at <= now) {
                    self.stage = Stage::Closed;
                }
            }
            Stage::Closed | Stage::Failed(_) => {}
        }
    }

    /// The next segment to send at `now`. Ask until there is none.
    pub fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        if std::mem::take(&mut self.reset_due) {
            let reset = Segment { rst: true, ..self.segment(now, self.sender.nxt()) };
            return Some(self.alone(reset));
        }
        if let Some(segment) = self.before.take() {
            return Some(self.alone(segment));
        }
        match self.stage {
            Stage::SynSent | Stage::SynReceived => self.transmit_syn(now),
            Stage::Established => match self.sender.poll(now) {
                Some(outgoing) => Some(self.transmit_data(now, outgoing)),
                None => self.transmit_acknowledgement(now),
            },
            Stage::TimeWait | Stage::Closed => self.transmit_acknowledgement(now),
            Stage::Failed(_) => None,
        }
    }

    fn transmit_syn(&mut self, now: Time) -> Option<Transmit> {
        if !std::mem::take(&mut self.handshake.due) {
            return None;
        }
        let answer = self.stage == Stage::SynReceived;
        let backoff = 1 << self.handshake.sent.min(16);
        self.handshake.again = Some(now + FIRST_TIMEOUT * backoff);
        self.handshake.sent += 1;
        let (ece, cwr) = if answer {
            (self.handshake.ecn_asked && self.agrees_to_ecn(), false)
        } else {
            (self.asks_for_ecn(), self.asks_for_ecn())
        };
        let syn = Segment {
            seq: self.initial.0,
            ack: if answer { self.initial.1.wrapping_add(1) } else { 0 },
            timestamps: (crate::timestamp(now), self.recent),
            window: self.receiver.initial_window(),
            // What options take of each packet is not told.
            mss: self.config.mss.min(u32::from(u16::MAX)) as u16,
            window_scale: self.receiver.scale(),
            sack_permitted: self.config.tcp_sack,
            syn: true,
            ack_flag: answer,
            ece,
            cwr,
            ..Segment::default()
        };
        Some(self.alone(syn))
    }

    fn asks_for_ecn(&self) -> bool {
        self.config.tcp_ecn == EcnMode::Active || self.needs_ecn()
    }

    fn agrees_to_ecn(&self) -> bool {
        self.config.tcp_ecn != EcnMode::Off || self.needs_ecn()
    }

    /// DCTCP makes no sense without, and has Linux ask whatever `tcp_ecn` says.
    fn needs_ecn(&self) -> bool {
        self.sender.control().name() == "dctcp"
    }

    fn transmit_data(&mut self, now: Time, outgoing: Outgoing) -> Transmit {
        self.receiver.data_sent(now);
        let segment = Segment {
            payload: outgoing.payload,
            fin: outgoing.fin,
            psh: outgoing.psh,
            cwr: outgoing.cwr,
            ect: self.sender.ecn() && !outgoing.retransmission && outgoing.payload > 0,
            ..self.segment(now, outgoing.start)
        };
        Transmit { segment, burst: self.bursts + outgoing.burst }
    }

    fn transmit_acknowledgement(&mut self, now: Time) -> Option<Transmit> {
        if !self.receiver.must_acknowledge(now) {
            return None;
        }
        let segment = self.segment(now, self.sender.nxt());
        Some(self.alone(segment))
    }

    fn alone(&mut self, segment: Segment) -> Transmit {
        self.bursts += 1;
        Transmit { segment, burst: self.bursts + self.sender.bursts() }
    }

    /// A segment at `start` with everything that acknowledges.
    fn segment(&mut self, now: Time, start: u64) -> Segment {
        let told = self.receiver.acknowledge();
        self.acknowledging(now, start, told)
    }

    fn acknowledging(&self, now: Time, start: u64, told: Told) -> Segment {
        let (window, blocks, sack_count) = told;
        let peer = self.initial.1;
        Segment {
            seq: sequence(self.initial.0, start),
            ack: sequence(peer, self.receiver.nxt()),
            timestamps: (crate::timestamp(now), self.recent),
            sack: blocks.map(|(start, end)| (sequence(peer, start), sequence(peer, end))),
            window,
            sack_count,
            ack_flag: true,
            ece: self.receiver.ecn.echo(),
            ..Segment::default()
        }
    }
}
