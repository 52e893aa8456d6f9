//! The receiving half: what has come, what is acknowledged when, how much more may come.

mod acks;
mod ecn;
mod sack;
mod window;

use midspan_units::{Span, Time};

use acks::Acks;
use ecn::EcnEcho;
pub(crate) use ecn::Hurry;
use sack::Report;
use window::Window;

use crate::Config;
use crate::ranges::Ranges;

/// The receiving half of a connection. Positions count bytes from the peer's SYN, which is 0.
#[derive(Debug)]
pub(crate) struct Receiver {
    mss: u32,
    /// The peer takes SACK blocks.
    sack: bool,
    /// Next position expected.
    nxt: u64,
    /// Position after the last byte that the application has read.
    read: u64,
    /// Position of the peer's FIN, once a segment bore it.
    fin: Option<u64>,
    out_of_order: Ranges,
    report: Report,
    /// What was told when SACKs that were held back would have been too many for one acknowledgement.
    told: Option<Told>,
    acks: Acks,
    window: Window,
    pub(crate) ecn: EcnEcho,
}

/// What an acknowledgement says: its window field, and its SACK blocks and how many they are.
pub(crate) type Told = (u16, [(u64, u64); 3], u8);

/// Data that has come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// Position of the first byte.
    pub(crate) start: u64,
    /// Bytes of payload.
    pub(crate) payload: u32,
    pub(crate) fin: bool,
    /// The timestamp that it echoes, milliseconds.
    pub(crate) echo: u32,
}

impl Receiver {
    pub(crate) fn new(config: &Config) -> Receiver {
        Receiver {
            mss: config.mss,
            sack: config.tcp_sack,
            nxt: 1,
            read: 1,
            fin: None,
            out_of_order: Ranges::default(),
            report: Report::default(),
            told: None,
            acks: Acks::new(config),
            window: Window::new(config),
            ecn: EcnEcho::default(),
        }
    }

    /// The handshake is over: segments of up to `config.mss` bytes are to be expected, and SACK blocks are
    /// wanted if `config.tcp_sack`.
    pub(crate) fn establish(&mut self, now: Time, config: &Config) {
        self.mss = config.mss;
        self.sack = config.tcp_sack;
        if !config.tcp_sack {
            self.acks.compress_none();
        }
        self.window.establish(now, config.mss, self.nxt);
    }

    /// Data or a FIN has come while the peer's round trip is `rtt` and this host's own retransmission
    /// timeout `rto`.
    pub(crate) fn arrive(&mut self, now: Time, arrival: &Arrival, rtt: Span, rto: Span) {
        let start = arrival.start;
        let data_end = start + u64::from(arrival.payload);
        let end = data_end + u64::from(arrival.fin);
        if end <= self.nxt {
            // All of it was here before (RFC 2883).
            self.report.duplicate(start, end);
            self.acks.hurry(u32::MAX);
            self.acks.now();
            return;
        }
        let right_edge = self.window.right_edge();
        if start > right_edge || (start == right_edge && arrival.payload > 0) {
            // No room; the answer says so (RFC 9293, 3.10.7.4).
            self.acks.now();
            return;
        }
        let (end, fin) =
            if data_end > right_edge { (right_edge, false) } else { (end, arrival.fin) };
        if fin {
            self.fin = Some(data_end);
        }
        self.window.observe_rtt(now, arrival.echo, arrival.payload >= self.mss);
        if start > self.nxt {
            self.queue(start, end);
        } else {
            self.acks.data_came(now, arrival.payload, self.mss, self.window.offered(), rto);
            self.deliver(start, end, arrival.payload);
        }
        if fin && self.is_finished() {
            self.acks.expect_reply();
        }
        let pending = self.nxt - self.window.acknowledged();
        let window_holds = self.read == self.nxt
            || self.window.would_offer(self.nxt, self.buffered()) >= self.window.offered();
        self.acks.decide(
            now,
            pending > u64::from(self.mss) && window_holds,
            !self.out_of_order.is_empty(),
            self.nxt,
            rtt,
        );
    }

    /// Data that are not taken, as their timestamp is older than what came in order (RFC 7323, 5.3): late originals too,
    /// once what was sent behind them was in order.
    pub(crate) fn refuse(&mut self, start: u64, end: u64) {
        if start < self.nxt {
            self.report.duplicate(start, end.min(self.nxt));
            self.acks.hurry(u32::MAX);
        }
        self.acks.now();
    }

    fn queue(&mut self, start: u64, end: u64) {
        let mut fresh = 0;
        self.out_of_order.insert(start, end, |from, to| fresh += to - from);
        if fresh < end - start {
            self.report.duplicate(start, end);
        }
        let block = self.out_of_order.around(start).unwrap_or((start, end));
        if self.acks.holds_back() && self.report.overflows(block, &self.out_of_order) {
            // As Linux does: what is held back is told, and what came now waits for what comes next, or is told of with it.
            self.told = Some(self.acknowledge());
        } else {
            self.acks.due();
        }
        self.report.arrived(block);
        self.window.grow((end - start) as u32, self.buffered());
    }

    fn deliver(&mut self, start: u64, end: u64, payload: u32) {
        if start < self.nxt {
            self.report.duplicate(start, self.nxt);
        }
        let had_holes = !self.out_of_order.is_empty();
        if had_holes && self.out_of_order.around(end - 1).is_some() {
            let (from, to) = self.out_of_order.around(end - 1).unwrap_or((end, end));
            self.report.duplicate(from.max(start), to.min(end));
        }
        self.nxt = end;
        if had_holes {
            if let Some(beyond) = self.out_of_order.end_of(end) {
                self.nxt = beyond;
            }
            self.out_of_order.drop_below(self.nxt);
            if self.out_of_order.is_empty() {
                // RFC 5681, 4.2: when a hole is filled.
                self.acks.now();
            }
        }
        self.acks.due();
        self.window.grow(payload, self.buffered());
    }

    /// Bytes held for the application, in order or not.
    fn buffered(&self) -> u64 {
        self.nxt - self.read + self.out_of_order.total()
    }

    /// Bytes that the application may read now.
    pub(crate) fn readable(&self) -> u64 {
        let data_end = self.fin.map_or(self.nxt, |fin| fin.min(self.nxt));
        data_end - self.read
    }

    /// The application reads up to `most` bytes.
    pub(crate) fn read(&mut self, now: Time, most: u64) -> u64 {
        let bytes = self.readable().min(most);
        if bytes == 0 {
            return 0;
        }
        self.read += bytes;
        self.window.moderate(now, self.read);
        let pending = self.nxt - self.window.acknowledged();
        if self.acks.after_read(pending > u64::from(self.mss), self.buffered() == 0) {
            return bytes;
        }
        // The sender is told at once of a window that has become twice as large as it knows.
        let offered = self.window.remaining(self.nxt);
        let would = self.window.would_offer(self.nxt, self.buffered());
        if 2 * offered <= self.window.limit() && would > 0 && would >= 2 * offered {
            self.acks.now();
        }
        bytes
    }

    /// Whether everything up to and including the peer's FIN has come.
    pub(crate) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| fin < self.nxt || self.nxt == fin + 1)
    }

    /// Whether the application has read all there ever will be.
    pub(crate) fn is_read_out(&self) -> bool {
        self.is_finished() && self.readable() == 0
    }

    /// Next position expected.
    pub(crate) fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Bytes received in order.
    pub(crate) fn received(&self) -> u64 {
        self.nxt - 1 - u64::from(self.is_finished())
    }

    /// The position acknowledged last.
    pub(crate) fn last_acknowledged(&self) -> u64 {
        self.window.acknowledged()
    }

    /// Whether something that came is not acknowledged yet.
    pub(crate) fn owes(&self) -> bool {
        self.nxt > self.window.acknowledged()
    }

    /// The next acknowledgements go without delay: up to `most` of them.
    pub(crate) fn hurry(&mut self, most: u32) {
        self.acks.hurry(most);
    }

    /// A segment that must be answered at once, whatever is in it.
    pub(crate) fn answer(&mut self) {
        self.acks.now();
    }

    /// Whether an acknowledgement is to be sent by itself now.
    pub(crate) fn must_acknowledge(&self, now: Time) -> bool {
        self.acks.must_send(now)
    }

    /// When one will be.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.acks.deadline()
    }

    /// A delayed acknowledgement is due.
    pub(crate) fn on_timer(&mut self, now: Time, rto: Span) {
        self.acks.on_timer(now, rto);
    }

    /// The application's data goes out, and acknowledges too.
    pub(crate) fn data_sent(&mut self, now: Time) {
        self.acks.data_sent(now);
    }

    /// An acknowledgement that went before what came last was dealt with.
    pub(crate) fn take_told(&mut self) -> Option<Told> {
        self.told.take()
    }

    /// An acknowledgement is sent, by itself or with data.
    pub(crate) fn acknowledge(&mut self) -> Told {
        self.acks.sent();
        let window = self.window.advertise(self.nxt, self.buffered());
        let (blocks, count) = self.report.blocks(&self.out_of_order);
        (window, blocks, if self.sack { count } else { 0 })
    }

    /// Window scale to offer.
    pub(crate) fn scale(&self) -> u8 {
        self.window.scale()
    }

    /// The window that a SYN advertises.
    pub(crate) fn initial_window(&self) -> u16 {
        self.window.initial()
    }

    /// The sender's round trip as seen from here; zero before the first sample.
    pub(crate) fn rtt(&self) -> Span {
        self.window.rtt()
    }

    /// The caller decides on the window itself, and the sender is told as often as acknowledgements go:
    /// by every two segments that it opens. Rarer updates would leave the sender waiting for a window that
    /// is there (RFC 9293, 3.8.6.2.2, asks for one segment at least).
    pub(crate) fn set_limit(&mut self, bytes: Option<u64>) {
        self.window.set_limit(bytes);
        let offered = self.window.remaining(self.nxt);
        let would = self.window.would_offer(self.nxt, self.buffered());
        if would >= offered + 2 * u64::from(self.mss) {
            self.acks.now();
        }
    }
}
