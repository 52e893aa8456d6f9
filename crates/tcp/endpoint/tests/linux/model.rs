//! Our sender, in virtual time.

use midspan_cc::Control;
use midspan_tcp::{Config, Endpoint, Segment};
use midspan_units::{Span, Time};

use super::script::{PACKET, PACKETS, ROUND_TRIP, Sender, Sent, WIN_DIVISOR, handshake, syn};

pub(crate) struct Model {
    endpoint: Endpoint,
    now: Time,
    first: u32,
    sent: Vec<Sent>,
}

impl Model {
    pub(crate) fn new() -> Model {
        let control = Control::new("reno", &midspan_cc::Config::default()).unwrap();
        let now = Time::ZERO + Span::from_secs(1);
        let config = Config { tcp_tso_win_divisor: WIN_DIVISOR, ..Config::default() };
        let mut endpoint = Endpoint::accept(config, control, now, 77_000, &syn());
        let answer = endpoint.poll_transmit(now).unwrap().segment;
        let first = answer.seq.wrapping_add(1);
        let mut model = Model { endpoint, now, first, sent: Vec::new() };
        model.pass(ROUND_TRIP);
        model.take(&handshake(first, answer.timestamps.0));
        model.endpoint.write(u64::from(PACKETS * PACKET));
        model.flush();
        model
    }

    fn flush(&mut self) {
        while let Some(transmit) = self.endpoint.poll_transmit(self.now) {
            let Segment { seq, payload, timestamps, .. } = transmit.segment;
            if payload > 0 {
                let position = seq.wrapping_sub(self.first);
                self.sent.push(Sent { position, stamp: timestamps.0 });
            }
        }
    }
}

impl Sender for Model {
    fn first(&self) -> u32 {
        self.first
    }

    fn take(&mut self, segment: &Segment) {
        self.endpoint.receive(self.now, segment);
        self.flush();
    }

    fn pass(&mut self, time: Span) -> Vec<Sent> {
        let end = self.now + time;
        while let Some(timer) = self.endpoint.poll_timeout().filter(|timer| *timer <= end) {
            self.now = timer;
            self.endpoint.on_timer(timer);
            self.flush();
        }
        self.now = end;
        std::mem::take(&mut self.sent)
    }
}
