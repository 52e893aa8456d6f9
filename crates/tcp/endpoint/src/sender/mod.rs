//! The sending half: what is in flight, what is lost, how much may be sent.

mod ack;
mod deferral;
mod loss;
mod memory;
mod newreno;
mod pacing;
mod prr;
mod rack;
mod rate;
mod recovery;
mod rtt;
mod scoreboard;
mod tail;
mod transmit;
mod undo;
mod watch;

use midspan_cc::feedback::Value;
use midspan_cc::{Connection, Control, Kind, State};
use midspan_units::{Rate, Span, Time};

pub(crate) use ack::Acknowledgement;
use pacing::Pacer;
use prr::Prr;
use rack::Rack;
use rate::Deliveries;
use rtt::Rtt;
use scoreboard::Scoreboard;
use tail::TailProbe;
pub(crate) use transmit::Outgoing;
use undo::Undo;

use crate::event::{Event, Timer, Watch};
use crate::{Config, Info};

/// Linux's bound on the reordering metric, in packets.
const MAX_REORDERING: u32 = 300;

/// The sending half of a connection. Positions count bytes from the SYN, which is 0.
#[derive(Debug)]
pub(crate) struct Sender {
    config: Config,
    control: Control,
    state: State,

    /// First position not acknowledged.
    una: u64,
    /// Next position to send.
    nxt: u64,
    /// Position after the last byte that the application wrote.
    written: u64,
    /// Size of the send buffer.
    buffer: u64,
    /// The application had more to write than there was room for.
    full: bool,
    /// The application will write no more.
    closed: bool,
    /// Where the peer's window ends.
    right_edge: u64,
    /// End of the last segment sent that was not full (Minshall).
    small_end: u64,

    board: Scoreboard,
    deliveries: Deliveries,
    /// Segments delivered that had met a mark, as far as ECN-Echo tells.
    marked: u32,
    rtt: Rtt,
    rack: Rack,
    /// Linux's metric of reordering, in packets.
    reordering: u32,
    tail: TailProbe,
    pacer: Pacer,

    /// Where the present reduction or repair ends (RFC 6675's RecoveryPoint).
    recovery_point: u64,
    /// What was sent when the last repair began (RFC 6582's recover), of a connection without SACK.
    recover: u64,
    prr: Prr,
    undo: Undo,
    /// The last timeout may have been spurious (RFC 5682).
    frto: bool,
    /// Whether what is lost goes before new data, until the next acknowledgement.
    repair: Repair,
    /// Timeouts in a row.
    timeouts: u32,

    timer: Option<(Timer, Time)>,
    /// Segments that go out whatever the window says.
    forced: Option<Forced>,
    /// The present burst of transmissions, up to the next event.
    round: Round,
    cwnd_validation: CwndValidation,
    /// When the last data segment was sent.
    last_sent: Time,
    /// ECN was negotiated.
    ecn: bool,
    /// The next new segment says that the window was reduced.
    cwr_due: bool,
    /// What NetAssist says of the way to the peer.
    pub(crate) feedback: Option<Value>,

    totals: Totals,
    /// Who is told of events.
    watch: Option<Box<Watch>>,
}

/// When segments that are held lost are sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repair {
    /// Before anything new.
    First,
    /// After what is new, as F-RTO asks (RFC 5682, 2.1, step 2b).
    AfterNewData,
    /// Not yet.
    Waits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Forced {
    /// The tail loss probe.
    TailProbe,
    /// A segment without data, to learn the window.
    WindowProbe,
}

/// What was sent since the last event.
#[derive(Debug, Default)]
struct Round {
    sent: bool,
    sent_new: bool,
    window_limited: bool,
}

/// How much of the congestion window was used (RFC 2861, RFC 7661).
#[derive(Debug, Default)]
struct CwndValidation {
    /// Greatest number of segments out in this window of data.
    most_out: u32,
    /// Where that window of data ends.
    until: u64,
    /// The window limited sending in it.
    limited: bool,
    /// Greatest number of segments out while it did not.
    used: u32,
    /// When it last did, or the window was last adapted.
    since: Time,
}

/// Counters over the life of the connection.
#[derive(Debug, Default, Clone, Copy)]
struct Totals {
    /// How long there was something to acknowledge, until last there was not; and since when there is.
    busy: Span,
    busy_since: Option<Time>,
    data_segments: u64,
    retransmissions: u64,
    dsacks: u32,
    reorderings: u32,
    timeouts: u32,
}

impl Sender {
    /// For a connection that is about to be set up.
    pub(crate) fn new(config: &Config, control: Control) -> Sender {
        Sender {
            control,
            state: State::Open,
            una: 1,
            nxt: 1,
            written: 1,
            buffer: u64::from(config.so_sndbuf.map_or(config.tcp_wmem.initial, |bytes| 2 * bytes)),
            full: false,
            closed: false,
            right_edge: 1,
            small_end: 0,
            board: Scoreboard::default(),
            deliveries: Deliveries::default(),
            marked: 0,
            rtt: Rtt::new(config.rto_min, config.tcp_min_rtt_wlen),
            rack: Rack::default(),
            reordering: config.tcp_reordering,
            tail: TailProbe::default(),
            pacer: Pacer::default(),
            recovery_point: 0,
            recover: 0,
            prr: Prr::default(),
            undo: Undo::default(),
            frto: false,
            repair: Repair::First,
            timeouts: 0,
            timer: None,
            forced: None,
            round: Round::default(),
            cwnd_validation: CwndValidation::default(),
            last_sent: Time::ZERO,
            ecn: false,
            cwr_due: false,
            feedback: None,
            totals: Totals::default(),
            watch: None,
            config: config.clone(),
        }
    }

    /// The handshake is over: the peer takes segments of `config.mss` bytes of payload, has SACK if
    /// `config.tcp_sack`, and its window ends at `right_edge`. `sample` is the handshake's round trip; none
    /// if a SYN was sent again.
    pub(crate) fn establish(
        &mut self,
        now: Time,
        config: &Config,
        right_edge: u64,
        sample: Option<Span>,
        ecn: bool,
    ) {
        self.config.mss = config.mss;
        self.config.tcp_sack = config.tcp_sack;
        self.right_edge = right_edge;
        self.ecn = ecn;
        self.cwnd_validation.since = now;
        self.last_sent = now;
        // A lost SYN is a lost packet (RFC 6928, section 2; Linux starts with one).
        let window = if sample.is_some() { self.config.initcwnd } else { 1 };
        if let Some(sample) = sample {
            self.rtt.observe_min(now, sample);
            self.rtt.sample(sample, self.una, self.nxt);
        }
        self.rtt.remember(config.remembered_rtt);
        self.control.set_cwnd(window);
        let connection = self.connection(now);
        self.control.established(&connection);
        self.expand_buffer();
        let Config { mss, tcp_sack: sack, .. } = self.config;
        self.tell(now, || Event::Established { mss, sack, ecn });
        self.tell_standing(now);
    }

    /// Begins with another window, if nothing was sent yet.
    pub(crate) fn set_first_window(&mut self, packets: u32) {
        if self.totals.data_segments == 0 {
            self.control.set_cwnd(packets);
        }
    }

    /// What the congestion control is told of the connection.
    fn connection(&self, now: Time) -> Connection {
        Connection {
            now,
            mss: self.config.mss,
            in_flight: self.board.in_flight(),
            delivered: self.deliveries.total(),
            delivered_ce: self.marked,
            lost: self.board.ever_lost() as u32,
            snd_una: self.una as u32,
            snd_nxt: self.nxt as u32,
            srtt: self.rtt.smoothed(),
            min_rtt: self.rtt.min().unwrap_or(Span::ZERO),
        }
    }

    /// Moves to a state in which nothing is reduced that was not before.
    fn enter(&mut self, now: Time, state: State) {
        if self.state != state {
            self.state = state;
            let connection = self.connection(now);
            self.control.set_state(&connection, state);
        }
    }

    /// The application will write no more: a FIN follows.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Whether the application will write no more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn set_unsent_limit(&mut self, bytes: Option<u32>) {
        self.config.tcp_notsent_lowat = bytes;
    }

    /// Position after everything that is to be sent, the FIN included.
    fn end(&self) -> u64 {
        self.written + u64::from(self.closed)
    }

    /// First position not acknowledged.
    pub(crate) fn una(&self) -> u64 {
        self.una
    }

    /// Next position to send.
    pub(crate) fn nxt(&self) -> u64 {
        self.nxt
    }

    /// Position after the last byte written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Whether everything is acknowledged, a FIN included if there is one.
    pub(crate) fn is_drained(&self) -> bool {
        self.una == self.end()
    }

    /// Whether the FIN was sent.
    pub(crate) fn fin_sent(&self) -> bool {
        self.closed && self.nxt == self.end()
    }

    /// Bytes written and not yet sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.written.saturating_sub(self.nxt)
    }

    pub(crate) fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// Bursts sent so far.
    pub(crate) fn bursts(&self) -> u64 {
        self.pacer.number()
    }

    pub(crate) fn info(&self, bytes_acked: u64, bytes_received: u64, rcv_rtt: Span) -> Info {
        let mss = u64::from(self.config.mss);
        Info {
            mss: self.config.mss,
            rtt: self.rtt.smoothed(),
            min_rtt: self.rtt.min().unwrap_or(Span::ZERO),
            rcv_rtt,
            rto: self.rtt.rto(),
            cwnd: self.cwnd(),
            ssthresh: self.control.ssthresh(),
            state: self.state,
            in_flight: self.board.in_flight(),
            reordering: self.reordering,
            pacing_rate: self.control.pacing_rate(),
            delivery_rate: self
                .deliveries
                .last_rate()
                .map(|(packets, interval)| Rate::of(u64::from(packets) * mss, interval)),
            data_segments: self.totals.data_segments,
            retransmissions: self.totals.retransmissions,
            busy: self.totals.busy,
            timeouts: self.totals.timeouts,
            dsacks: self.totals.dsacks,
            reorderings: self.totals.reorderings,
            // The SYN takes one, and a FIN would.
            bytes_sent: self.nxt.min(self.written()) - 1,
            bytes_acked,
            bytes_received,
        }
    }

    pub(crate) fn ecn(&self) -> bool {
        self.ecn
    }

    /// The congestion window, packets.
    pub(crate) fn cwnd(&self) -> u32 {
        self.control.cwnd()
    }

    /// When [`Sender::on_timer`] wants to be called.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let timer = self.timer.map(|(_, at)| at);
        timer.into_iter().chain(self.pacer.wakeup()).min()
    }

    fn is_reducing(&self) -> bool {
        matches!(self.state, State::Cwr | State::Recovery)
    }

    /// Neither reducing nor after a timeout.
    fn is_open_or_disorder(&self) -> bool {
        matches!(self.state, State::Open | State::Disorder)
    }

    /// Whether the congestion control sets window and rate in recovery too.
    fn owns_rate(&self) -> bool {
        self.control.kind() == Kind::Rate
    }
}
