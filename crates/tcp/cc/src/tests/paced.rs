//! A path for controls that pace.

use std::collections::VecDeque;

use super::*;

pub(super) const MSS: u32 = 1448;

/// A sender that keeps to its window and its pacing rate, on a path with room for 1000 packets, in steps
/// of a millisecond.
pub(super) struct Path {
    pub(super) control: Control,
    pub(super) connection: Connection,
    /// Packets a second.
    pub(super) capacity: f64,
    pub(super) base: Span,
    /// Every so many packets one is lost; 0: none is.
    pub(super) lose_every: u32,
    /// Packets a second that the application has to send.
    pub(super) offered: f64,
    /// When each packet on the way was sent, how many had been delivered then, and whether the application had no more.
    sent: VecDeque<(Time, u32, bool)>,
    /// Parts of packets that are due to be sent, and to be delivered.
    due: (f64, f64),
    pub(super) longest_queue: Span,
}

impl Path {
    pub(super) fn new(control: &str, capacity: f64, base: Span) -> Self {
        let Sender { control, connection, .. } = Sender::new(control, Config::default(), base);
        Path {
            control,
            connection,
            capacity,
            base,
            lose_every: 0,
            offered: f64::INFINITY,
            sent: VecDeque::new(),
            due: (0.0, 0.0),
            longest_queue: Span::ZERO,
        }
    }

    /// Lets so long pass, and says how many packets a second were delivered in it.
    pub(super) fn run(&mut self, seconds: f64) -> f64 {
        let before = self.connection.delivered;
        for _ in 0..(seconds * 1000.0) as u32 {
            self.step();
        }
        f64::from(self.connection.delivered - before) / seconds
    }

    pub(super) fn step(&mut self) {
        self.connection.now += Span::from_millis(1);
        let rate = self.control.pacing_rate().unwrap().as_bps() as f64 / 8.0 / f64::from(MSS);
        let rate = rate.min(self.offered);
        self.due.0 = (self.due.0 + rate / 1000.0).min(rate / 500.0 + 2.0);
        while self.due.0 >= 1.0 && self.sent.len() < self.control.cwnd() as usize {
            self.due.0 -= 1.0;
            if self.sent.len() == 1000 {
                self.connection.lost += 1;
                continue;
            }
            let limited =
                self.offered < f64::INFINITY && self.sent.len() + 1 < self.control.cwnd() as usize;
            self.sent.push_back((self.connection.now, self.connection.delivered, limited));
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
        if let Some((at, delivered, limited)) = newest {
            self.acknowledge(acked, prior, at, delivered, limited);
        }
    }

    fn acknowledge(&mut self, acked: u32, prior: u32, at: Time, delivered: u32, limited: bool) {
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
                app_limited: limited,
            }),
            ..Sample::default()
        };
        self.control.on_ack(connection, &sample);
    }
}
