//! The algorithms against the worked examples and formulas of their papers, on a path without a
//! queue, and all of them against fuzzed input.

mod bbr;
mod bbr3;
mod cubic;
mod dctcp;
mod external;
mod fuzz;
mod illinois;
mod lp;
mod me;
mod network_assisted;
mod paced;
mod radio;
mod reno;
mod westwood;

use midspan_units::{Span, Time};

use crate::{Config, Connection, Control, HyStart, RateSample, Sample, State};

/// A sender on a path of one round-trip time: an acknowledgement for each
/// packet, spread evenly over the round trip.
#[derive(Clone)]
pub(crate) struct Sender {
    pub(crate) control: Control,
    pub(crate) connection: Connection,
    /// What every acknowledgement says, beside what the path does.
    pub(crate) sample: Sample,
    /// Its data come to it as it can send them, or more slowly.
    pub(crate) app_limited: bool,
    rtt: Span,
}

impl Sender {
    pub(crate) fn new(name: &str, config: Config, rtt: Span) -> Self {
        let connection = Connection {
            now: Time::from_nanos(1_000_000_000),
            mss: 1448,
            in_flight: 10,
            delivered: 0,
            delivered_ce: 0,
            lost: 0,
            snd_una: 0,
            snd_nxt: 10 * 1448,
            srtt: rtt,
            min_rtt: rtt,
        };
        let mut control = Control::new(name, &config).unwrap();
        control.established(&connection);
        let sample = Sample { acked: 1, rtt: Some(rtt), cwnd_limited: true, ..Sample::default() };
        Sender { control, connection, sample, app_limited: false, rtt }
    }

    /// Sets where the connection stands: past slow start, at this window.
    pub(crate) fn at(mut self, cwnd: u32) -> Self {
        self.control.set_cwnd(cwnd);
        self.control.set_ssthresh(cwnd);
        self
    }

    /// `sample.acked` packets are acknowledged.
    pub(crate) fn ack(&mut self) {
        let (cwnd, acked) = (self.control.cwnd(), self.sample.acked);
        let connection = &mut self.connection;
        connection.now += self.rtt * u64::from(acked) / u64::from(cwnd);
        connection.in_flight = cwnd;
        connection.delivered = connection.delivered.wrapping_add(acked);
        connection.snd_una = connection.snd_una.wrapping_add(acked.wrapping_mul(connection.mss));
        connection.snd_nxt = connection.snd_una.wrapping_add(cwnd.wrapping_mul(connection.mss));
        self.sample.advanced = acked;
        self.sample.prior_in_flight = cwnd;
        self.sample.rate = Some(RateSample {
            delivered: cwnd,
            interval: self.rtt,
            prior_delivered: connection.delivered.wrapping_sub(cwnd),
            tx_in_flight: cwnd,
            tx_lost: 0,
            app_limited: self.app_limited,
        });
        let sample = self.sample;
        self.acknowledge(&sample);
    }

    /// An acknowledgement that says this.
    pub(crate) fn acknowledge(&mut self, sample: &Sample) {
        self.control.measure(&self.connection, sample);
        self.control.on_ack(&self.connection, sample);
    }

    /// A window of packets is acknowledged.
    pub(crate) fn round(&mut self) {
        for _ in 0..self.control.cwnd() {
            self.ack();
        }
    }

    /// A packet is lost and repaired at once: the window becomes the threshold.
    pub(crate) fn lose(&mut self) {
        self.reduce(State::Recovery);
        self.control.on_reduced(&self.connection, State::Open);
    }

    /// A reduction begins, and the window is the threshold at once.
    pub(crate) fn reduce(&mut self, state: State) -> u32 {
        let ssthresh = self.control.on_reduction(&self.connection, state);
        self.control.set_cwnd(ssthresh);
        ssthresh
    }

    /// The mean window over `cycles` losses, one after each `packets` delivered, in packets: RTT
    /// times the throughput.
    pub(crate) fn mean_window(&mut self, packets: u32, cycles: u32) -> f64 {
        // The first ones lead to the steady state.
        for _ in 0..cycles {
            self.cycle(packets);
        }
        let (began, mut sent) = (self.connection.now, 0u64);
        for _ in 0..cycles {
            self.cycle(packets);
            sent += u64::from(packets);
        }
        let spent = self.connection.now.since(began).as_secs_f64();
        sent as f64 * self.rtt.as_secs_f64() / spent
    }

    fn cycle(&mut self, packets: u32) {
        for _ in 0..packets {
            self.ack();
        }
        self.lose();
    }
}

/// Grows the window in slow start over a path of 100 ms, by acknowledgements of `acked` packets each, with the round-trip
/// time that `rtt` gives for the window, and says at which window slow start was left: `limit`, if it was not.
fn slow_start_until(
    name: &str,
    hystart: HyStart,
    acked: u32,
    limit: u32,
    rtt: impl Fn(u32) -> Span,
) -> u32 {
    let config = Config { hystart, ..Config::default() };
    let mut sender = Sender::new(name, config, Span::from_millis(100));
    sender.sample.acked = acked;
    while sender.control.in_slow_start() && sender.control.cwnd() < limit {
        sender.sample.rtt = Some(rtt(sender.control.cwnd()));
        sender.ack();
    }
    sender.control.cwnd()
}
