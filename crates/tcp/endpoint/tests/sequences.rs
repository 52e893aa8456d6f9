//! A sender against a peer that acknowledges by a script: what it sends, and its window, are known of
//! Linux (google/packetdrill, gtests/net/tcp, which run them against kernels).

#[path = "common/syn.rs"]
mod syn;

use midspan_cc::{Control, State};
use midspan_tcp::{Config, Endpoint, Segment};
use midspan_units::{Rate, Span, Time};
use syn::syn;

/// Packets of 1000 bytes; the peer's stream is empty.
struct Sender {
    endpoint: Endpoint,
    now: Time,
}

impl Sender {
    /// Accepts a connection whose handshake takes `rtt`. CUBIC as in Linux.
    fn new(config: Config, rtt: Span) -> Sender {
        let cubic = midspan_cc::Config {
            cubic_constant_alpha: true,
            cubic_counted: true,
            ..midspan_cc::Config::default()
        };
        let control = Control::new("cubic", &cubic).unwrap();
        let now = Time::ZERO + Span::from_secs(1);
        let endpoint = Endpoint::accept(config, control, now, u32::MAX, &syn());
        let mut sender = Sender { endpoint, now };
        assert_eq!(sender.sent(), [(0, 0)]);
        sender.ack(rtt, 0, &[]);
        sender
    }

    /// What goes out now: first byte, counted from 0, and length.
    fn sent(&mut self) -> Vec<(u32, u32)> {
        let mut sent = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(self.now) {
            let Segment { seq, payload, syn, .. } = transmit.segment;
            sent.push((if syn { 0 } else { seq }, payload));
        }
        sent
    }

    fn write(&mut self, bytes: u64) -> Vec<(u32, u32)> {
        assert_eq!(self.endpoint.write(bytes), bytes);
        self.sent()
    }

    /// After `pause`, acknowledges `bytes` and SACKs; answers what goes out then. Nothing may go out
    /// before.
    fn ack(&mut self, pause: Span, bytes: u32, sacks: &[(u32, u32)]) -> Vec<(u32, u32)> {
        let at = self.now + pause;
        while let Some(timer) = self.endpoint.poll_timeout().filter(|timer| *timer < at) {
            self.now = timer;
            self.endpoint.on_timer(timer);
            assert_eq!(self.sent(), [], "at {timer}");
        }
        self.now = at;
        let mut sack = [(0, 0); 3];
        // Its bytes are counted from 0, and the first has the sequence number 0 here.
        sack.iter_mut().zip(sacks).for_each(|(to, from)| *to = *from);
        let segment = Segment {
            seq: 1,
            ack: bytes,
            ack_flag: true,
            window: 514,
            sack,
            sack_count: sacks.len() as u8,
            // No timestamp is echoed.
            timestamps: (1, 0),
            ..Segment::default()
        };
        self.endpoint.receive(at, &segment);
        self.sent()
    }

    fn cwnd(&self) -> u32 {
        self.endpoint.info().cwnd
    }
}

fn millis(millis: u64) -> Span {
    Span::from_millis(millis)
}

/// cubic-bulk-166k: two packets are acknowledged every 100 ms. Slow start doubles, HyStart ends it
/// at 48, the curve is flat and then bends up, to no more than a packet for each two acknowledged.
#[test]
fn cubic_in_bulk() {
    let config = Config { so_sndbuf: Some(200_000), tcp_early_retrans: false, ..Config::default() };
    let mut sender = Sender::new(config, millis(100));
    assert_eq!(sender.write(400_000).len(), 10);
    let mut acknowledged = 0;
    let mut after = |sender: &mut Sender, acks: u32| {
        for _ in 0..acks {
            acknowledged += 2000;
            sender.ack(millis(100), acknowledged, &[]);
        }
        sender.cwnd()
    };
    let windows = [5, 5, 5, 4, 11, 10, 10, 10].map(|acks| after(&mut sender, acks));
    assert_eq!(windows, [20, 30, 40, 48, 49, 50, 52, 58]);
    for more in 1..=10 {
        assert_eq!(after(&mut sender, 1), 58 + more);
    }
    for more in 1..=13 {
        assert_eq!(after(&mut sender, 10), 68 + 10 * more);
    }
}

/// Not of a script, but by what `tcp_tso_win_divisor` is documented to do: acknowledgements that come one by one
/// let a burst go when there is room for all of it. One that would wait for none soon goes at once.
#[test]
fn a_burst_waits_for_room() {
    let micros = Span::from_micros;
    let sender_of_forty = |tcp_tso_win_divisor| {
        let config = Config { so_sndbuf: Some(200_000), tcp_tso_win_divisor, ..Config::default() };
        let mut sender = Sender::new(config, millis(10));
        assert_eq!(sender.write(400_000).len(), 10);
        assert_eq!(sender.ack(millis(10), 10_000, &[]).len(), 20);
        assert_eq!(sender.ack(millis(10), 30_000, &[]).len(), 40);
        // The last burst was long ago.
        assert_eq!(sender.ack(millis(10), 31_000, &[]).len(), 2);
        sender
    };
    // A millisecond's worth at twice the window in a round trip: eight packets.
    let mut sender = sender_of_forty(3);
    for acknowledged in [32_000, 33_000, 34_000] {
        assert_eq!(sender.ack(micros(100), acknowledged, &[]), []);
    }
    assert_eq!(sender.ack(micros(100), 35_000, &[]).len(), 8);
    assert_eq!(sender.ack(micros(100), 36_000, &[]), []);
    assert_eq!(sender.ack(micros(1200), 37_000, &[]).len(), 4);
    // An eleventh of the window is not quite four packets, a thirtieth not two.
    let mut sender = sender_of_forty(11);
    assert_eq!(sender.ack(micros(100), 32_000, &[]), []);
    assert_eq!(sender.ack(micros(100), 33_000, &[]).len(), 4);
    let mut sender = sender_of_forty(30);
    assert_eq!(sender.ack(micros(100), 32_000, &[]).len(), 2);
}

/// Not Linux's own, but TCP-ME's glue: a small packet holds back the next for what its headers take at the rate of full
/// packets, too.
#[test]
fn headers_may_count_in_pacing() {
    for (paced_headers, micros) in [(0, 1000), (50, 1500 * 1000 / 1050)] {
        let config = Config {
            so_max_pacing_rate: Some(Rate::from_bps(800_000)),
            mss: 1000,
            initcwnd: 1,
            tcp_nodelay: true,
            tcp_min_tso_segs: 1,
            paced_headers,
            ..Config::default()
        };
        let mut sender = Sender::new(config, millis(10));
        assert_eq!(sender.write(1000).len(), 1);
        assert_eq!(sender.ack(millis(20), 1000, &[]), []);
        assert_eq!(sender.write(100), [(1000, 100)]);
        assert_eq!(sender.write(1000), []);
        let due = sender.endpoint.poll_timeout().unwrap();
        let waited = due.since(sender.now).as_micros();
        assert!(waited.abs_diff(micros) <= 1, "{waited}");
    }
}

/// As a Linux 6.18 was seen to do, with sockets of its own: the last burst that is taken may go beyond the buffer, and
/// a program that found no room is woken when a third of it is free.
#[test]
fn a_full_buffer_is_written_to_when_a_third_is_free() {
    let config = Config { so_sndbuf: Some(50_000), ..Config::default() };
    let mut sender = Sender::new(config, millis(10));
    assert_eq!(sender.endpoint.write(u64::MAX), 130_000);
    sender.sent();
    assert_eq!(sender.endpoint.write(0), 0);
    // A few bytes for each burst count too.
    let mut acknowledged = 0;
    while acknowledged < 64_000 {
        assert_eq!(sender.endpoint.writable(), 0, "after {acknowledged}");
        acknowledged += 1000;
        sender.ack(millis(1), acknowledged, &[]);
    }
    while sender.endpoint.writable() == 0 {
        acknowledged += 1000;
        sender.ack(millis(1), acknowledged, &[]);
    }
    assert!(acknowledged < 80_000, "{acknowledged}");
    // Who finds room enough need not wait for a third the next time.
    let room = sender.endpoint.writable();
    assert_eq!(sender.endpoint.write(1000), 1000);
    assert!((1..=room).contains(&sender.endpoint.writable()));
}

/// Linux's `tcp_sndbuf_expand` only ever expands.
#[test]
fn a_buffer_does_not_shrink_with_the_window() {
    let mut sender = Sender::new(Config::default(), millis(10));
    let mut written = 0;
    let first = sender.endpoint.writable();
    while sender.cwnd() < 60 {
        sender.write(20_000);
        written += 20_000;
        for acknowledged in (written - 18_000..=written).step_by(2000) {
            sender.ack(millis(5), acknowledged, &[]);
        }
    }
    let (room, cwnd) = (sender.endpoint.writable(), sender.cwnd());
    assert!(room > first, "{room}");
    assert_eq!(sender.write(10_000).len(), 10);
    let sacked = |upto| [(written + 1000, written + upto)];
    for upto in [2000, 3000, 4000, 5000] {
        sender.ack(millis(5), written, &sacked(upto));
    }
    sender.ack(millis(5), written + 10_000, &[]);
    assert!(sender.cwnd() < cwnd, "{cwnd}");
    assert_eq!(sender.endpoint.writable(), room);
}

/// prr-ss-10pkt-lost-1: with as much in flight as the threshold allows, one segment goes for each
/// that is delivered.
#[test]
fn one_loss_of_ten() {
    let mut sender = Sender::new(Config::default(), millis(100));
    assert_eq!(sender.write(10_000).len(), 10);
    assert_eq!(sender.ack(millis(110), 0, &[(1000, 2000)]), []);
    assert_eq!(sender.ack(millis(10), 0, &[(1000, 3000)]), []);
    assert_eq!(sender.ack(millis(10), 0, &[(1000, 4000)]), [(0, 1000)]);
    let info = sender.endpoint.info();
    assert_eq!((info.state, info.cwnd, info.ssthresh), (State::Recovery, 7, 7));
    sender.now += millis(20);
    assert_eq!(sender.write(7000), []);
    for more in 0..6 {
        let sacked = 5000 + more * 1000;
        let expected = [(10_000 + more * 1000, 1000)];
        assert_eq!(sender.ack(millis(10), 0, &[(1000, sacked)]), expected);
    }
    assert_eq!(sender.ack(millis(20), 10_000, &[]), [(16_000, 1000)]);
    let info = sender.endpoint.info();
    assert_eq!((info.state, info.cwnd, info.ssthresh), (State::Open, 7, 7));
}

/// prr-ss-30pkt-lost1_4: four losses of ten are sent again one for each segment that is delivered, and
/// the window is the threshold when they have arrived.
#[test]
fn four_losses_of_ten() {
    let mut sender = Sender::new(Config::default(), millis(10));
    assert_eq!(sender.write(10_000).len(), 10);
    assert_eq!(sender.ack(millis(10), 0, &[(4000, 5000)]), []);
    assert_eq!(sender.ack(millis(2), 0, &[(4000, 6000)]), []);
    for lost in 0..4 {
        let sent = sender.ack(Span::ZERO, 0, &[(4000, 7000 + lost * 1000)]);
        assert_eq!(sent, [(lost * 1000, 1000)]);
    }
    assert_eq!(sender.ack(millis(10), 1000, &[(4000, 10_000)]), []);
    sender.ack(Span::ZERO, 2000, &[(4000, 10_000)]);
    sender.ack(Span::ZERO, 3000, &[(4000, 10_000)]);
    sender.ack(Span::ZERO, 10_000, &[]);
    sender.now += millis(10);
    assert_eq!(sender.write(10_000).len(), 7);
}

/// RFC 6582: of twelve the first and the fourth are lost. Three duplicate acknowledgements repair the
/// first, a partial acknowledgement tells of the other at once; acknowledgements of needless
/// repetitions afterwards repair nothing.
#[test]
fn two_losses_of_twelve_without_sack() {
    let config = Config { tcp_sack: false, initcwnd: 12, ..Config::default() };
    let mut sender = Sender::new(config, millis(100));
    assert_eq!(sender.write(12_000).len(), 12);
    assert_eq!(sender.ack(millis(110), 0, &[]), []);
    assert_eq!(sender.ack(millis(10), 0, &[]), []);
    assert_eq!(sender.ack(millis(10), 0, &[]), [(0, 1000)]);
    assert_eq!(sender.endpoint.info().state, State::Recovery);
    for _ in 0..7 {
        assert_eq!(sender.ack(millis(1), 0, &[]), []);
    }
    assert_eq!(sender.endpoint.info().in_flight, 2, "the first again, and the fourth");
    assert_eq!(sender.ack(millis(100), 3000, &[]), [(3000, 1000)]);
    assert_eq!(sender.ack(millis(100), 12_000, &[]), []);
    let info = sender.endpoint.info();
    assert_eq!((info.state, info.cwnd, info.retransmissions), (State::Open, 8, 2));
    assert_eq!(sender.write(8000).len(), 8);
    for _ in 0..3 {
        assert_eq!(
            sender.ack(millis(10), 12_000, &[]),
            [],
            "nothing of after the repair is acknowledged"
        );
    }
}

/// RFC 3042 and RFC 6937: the first two duplicate acknowledgements let a new segment go each, the third the
/// repetition of what is lost, and nothing else.
#[test]
fn the_third_duplicate_without_sack_repairs_alone() {
    let mut sender = Sender::new(Config { tcp_sack: false, ..Config::default() }, millis(100));
    assert_eq!(sender.write(20_000).len(), 10);
    assert_eq!(sender.ack(millis(110), 0, &[]), [(10_000, 1000)]);
    assert_eq!(sender.ack(millis(10), 0, &[]), [(11_000, 1000)]);
    assert_eq!(sender.ack(millis(10), 0, &[]), [(0, 1000)]);
    let info = sender.endpoint.info();
    assert_eq!((info.state, info.in_flight), (State::Recovery, 9));
}

/// Without SACK there are no tail loss probes (RFC 8985, section 7): the timeout repairs.
#[test]
fn a_lost_tail_without_sack_waits_for_the_timeout() {
    let mut sender = Sender::new(Config { tcp_sack: false, ..Config::default() }, millis(50));
    assert_eq!(sender.write(10_000).len(), 10);
    sender.ack(millis(50), 8000, &[]);
    sender.now = sender.endpoint.poll_timeout().unwrap();
    sender.endpoint.on_timer(sender.now);
    assert_eq!(sender.sent(), [(8000, 1000)]);
    assert_eq!(sender.endpoint.info().timeouts, 1);
}

/// RFC 8985, section 7: the tail of a flight is probed for after two round trips, by a repetition of
/// the last segment where there is nothing new; what is lost before it is then found by SACK.
#[test]
fn a_lost_tail_is_probed_for() {
    let mut sender = Sender::new(Config::default(), millis(50));
    assert_eq!(sender.write(10_000).len(), 10);
    sender.ack(millis(50), 5000, &[]);
    let probe_at = sender.endpoint.poll_timeout().unwrap();
    let waited = probe_at.since(sender.now);
    assert!(waited >= millis(100) && waited <= millis(116), "{waited}");
    sender.now = probe_at;
    sender.endpoint.on_timer(probe_at);
    assert_eq!(sender.sent(), [(9000, 1000)]);
    assert_eq!(sender.endpoint.info().timeouts, 0);
    // The probe is SACKed: the four before it are lost, and repaired without a timeout.
    let repaired = sender.ack(millis(50), 5000, &[(9000, 10_000)]);
    assert_eq!(repaired.first(), Some(&(5000, 1000)));
    assert_eq!(sender.endpoint.info().state, State::Recovery);
}

/// RFC 6298: a silent peer is asked again after the timeout, then after twice as long.
#[test]
fn a_timeout_doubles() {
    let config = Config { tcp_early_retrans: false, ..Config::default() };
    let mut sender = Sender::new(config, millis(50));
    let began = sender.now;
    assert_eq!(sender.write(3000).len(), 3);
    let mut times = Vec::new();
    for _ in 0..3 {
        sender.now = sender.endpoint.poll_timeout().unwrap();
        sender.endpoint.on_timer(sender.now);
        assert_eq!(sender.sent(), [(0, 1000)]);
        times.push(sender.now.since(began));
    }
    assert_eq!(sender.endpoint.info().cwnd, 1);
    // The clock's tick is 4 ms, and each timer strikes at one, up to one late.
    let ticks = |span: Span| span.as_micros() / 4000;
    let rto = ticks(times[0]) - 1;
    for (wait, times) in
        [(times[1].saturating_sub(times[0]), 2), (times[2].saturating_sub(times[1]), 4)]
    {
        assert!(
            (rto * times..=(rto + 1) * times).contains(&ticks(wait)),
            "{wait} after {rto} ticks"
        );
    }
}
