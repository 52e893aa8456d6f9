use std::collections::VecDeque;

use super::*;

const MSS: u32 = 1448;

/// A sender that keeps to its window and its pacing rate, on a path with room for 1000 packets, in steps
/// of a millisecond.
struct Path {
    control: Control,
    connection: Connection,
    /// Packets a second.
    capacity: f64,
    base: Span,
    /// Every so many packets one is lost; 0: none is.
    lose_every: u32,
    /// When each packet on the way was sent, and how many had been delivered then.
    sent: VecDeque<(Time, u32)>,
    /// Parts of packets that are due to be sent, and to be delivered.
    due: (f64, f64),
    longest_queue: Span,
}

impl Path {
    fn new(capacity: f64, base: Span) -> Self {
        let Sender { control, connection, .. } = Sender::new("bbr3", Config::default(), base);
        Path {
            control,
            connection,
            capacity,
            base,
            lose_every: 0,
            sent: VecDeque::new(),
            due: (0.0, 0.0),
            longest_queue: Span::ZERO,
        }
    }

    /// Lets so long pass, and says how many packets a second were delivered in it.
    fn run(&mut self, seconds: f64) -> f64 {
        let before = self.connection.delivered;
        for _ in 0..(seconds * 1000.0) as u32 {
            self.step();
        }
        f64::from(self.connection.delivered - before) / seconds
    }

    fn step(&mut self) {
        self.connection.now += Span::from_millis(1);
        let rate = self.control.pacing_rate().unwrap().as_bps() as f64 / 8.0 / f64::from(MSS);
        self.due.0 = (self.due.0 + rate / 1000.0).min(rate / 500.0 + 2.0);
        while self.due.0 >= 1.0 && self.sent.len() < self.control.cwnd() as usize {
            self.due.0 -= 1.0;
            if self.sent.len() == 1000 {
                self.connection.lost += 1;
                continue;
            }
            self.sent.push_back((self.connection.now, self.connection.delivered));
        }
        self.due.1 = (self.due.1 + self.capacity / 1000.0).min(self.capacity / 1000.0 + 1.0);
        let prior = self.sent.len() as u32;
        let mut newest = None;
        let mut acked = 0;
        while self.due.1 >= 1.0
            && self.sent.front().is_some_and(|sent| self.connection.now.since(sent.0) >= self.base)
        {
            self.due.1 -= 1.0;
            newest = self.sent.pop_front();
            acked += 1;
            let connection = &mut self.connection;
            connection.delivered += 1;
            if self.lose_every > 0 && connection.delivered.is_multiple_of(self.lose_every) {
                connection.lost += 1;
            }
        }
        if let Some((at, delivered)) = newest {
            self.acknowledge(acked, prior, at, delivered);
        }
    }

    fn acknowledge(&mut self, acked: u32, prior: u32, at: Time, delivered: u32) {
        let connection = &mut self.connection;
        connection.in_flight = self.sent.len() as u32;
        connection.snd_una = connection.delivered.wrapping_mul(MSS);
        connection.snd_nxt = connection.snd_una.wrapping_add(connection.in_flight * MSS);
        let rtt = connection.now.since(at);
        self.longest_queue = self.longest_queue.max(rtt.saturating_sub(self.base));
        connection.srtt = rtt;
        let sample = Sample {
            acked,
            rtt: Some(rtt),
            prior_in_flight: prior,
            cwnd_limited: prior >= self.control.cwnd(),
            rate: Some(RateSample {
                delivered: connection.delivered - delivered,
                interval: rtt,
                prior_delivered: delivered,
                tx_in_flight: 0,
                tx_lost: 0,
                app_limited: false,
            }),
            ..Sample::default()
        };
        self.control.on_ack(connection, &sample);
    }
}

/// 100 Mbit/s or so at 50 ms: it finds the bandwidth within seconds, and fills it with a short queue.
#[test]
fn it_fills_a_path_without_filling_its_queue() {
    let mut path = Path::new(8000.0, Span::from_millis(50));
    path.run(3.0);
    path.longest_queue = Span::ZERO;
    let rate = path.run(20.0);
    assert!(rate > 0.93 * 8000.0, "{rate}");
    // Never more than the window of two round-trips and a quarter allows, which is while it probes.
    assert!(path.longest_queue < Span::from_millis(75), "{}", path.longest_queue);
}

/// Section 2: loss below 2 % is no sign of congestion.
#[test]
fn loss_below_the_threshold_takes_nothing() {
    let mut path = Path::new(8000.0, Span::from_millis(50));
    path.lose_every = 100;
    path.run(3.0);
    let rate = path.run(20.0);
    assert!(rate > 0.9 * 8000.0, "{rate}");
}

/// Above it, it is: bounds come down to what gets through.
#[test]
fn loss_above_the_threshold_does() {
    let mut path = Path::new(8000.0, Span::from_millis(50));
    path.run(3.0);
    path.lose_every = 10;
    let rate = path.run(20.0);
    assert!(rate < 0.9 * 8000.0, "{rate}");
    // It does not starve either.
    assert!(rate > 0.02 * 8000.0, "{rate}");
}

/// It follows the bandwidth, down by what is lost and up by probing.
#[test]
fn it_follows_the_bandwidth() {
    let mut path = Path::new(8000.0, Span::from_millis(50));
    path.run(5.0);
    path.capacity = 2000.0;
    path.run(10.0);
    let bandwidth = path.control.pacing_rate().unwrap().as_bps() / 8 / u64::from(MSS);
    assert!((1000..3000).contains(&bandwidth), "{bandwidth}");
    path.capacity = 8000.0;
    path.run(15.0);
    let rate = path.run(5.0);
    assert!(rate > 0.85 * 8000.0, "{rate}");
}

/// Section 5.3.4: it looks for the least round-trip time every five seconds, with half a window for
/// 200 ms.
#[test]
fn it_probes_the_round_trip_time() {
    let mut path = Path::new(8000.0, Span::from_millis(50));
    path.run(4.0);
    let least = (0..60)
        .map(|_| {
            path.run(0.1);
            path.control.cwnd()
        })
        .min();
    assert!((150..=230).contains(&least.unwrap()), "{least:?}");
}

#[test]
fn a_timeout_is_got_over() {
    let mut path = Path::new(8000.0, Span::from_millis(50));
    path.run(3.0);
    let before = path.control.cwnd();
    path.control.on_reduction(&path.connection, State::Loss);
    path.control.set_cwnd(1);
    path.run(0.2);
    path.control.set_state(&path.connection, State::Open);
    assert!(path.control.cwnd() >= before / 2, "{} after {before}", path.control.cwnd());
    path.run(1.0);
    assert!(path.run(3.0) > 0.85 * 8000.0);
}
