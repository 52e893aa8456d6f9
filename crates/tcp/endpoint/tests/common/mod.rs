//! Two endpoints, and a path between them that a test shapes packet by packet.
#![allow(dead_code)]

use std::collections::BTreeMap;

use midspan_cc::Control;
use midspan_tcp::{Config, Endpoint, Segment, Transmit};
use midspan_units::{Span, Time};

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Lose,
    /// Arrives after this time.
    Deliver(Span),
    /// Arrives twice.
    Twice(Span, Span),
}

/// Which end a packet comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    Client,
    Server,
}

pub(crate) struct Pair {
    pub(crate) client: Endpoint,
    pub(crate) server: Option<Endpoint>,
    pub(crate) server_config: Config,
    pub(crate) server_control: Control,
    pub(crate) now: Time,
    /// In flight, by arrival; the number keeps those of one time in order.
    flying: BTreeMap<(Time, u64), (From, Segment)>,
    sent: u64,
    /// Everything that was sent: when, whence, what.
    pub(crate) log: Vec<(Time, From, Segment)>,
}

pub(crate) fn control(name: &str) -> Control {
    Control::new(name, &midspan_cc::Config::default()).unwrap()
}

impl Pair {
    pub(crate) fn new(client: Config, server: Config, name: &str) -> Pair {
        Pair {
            client: Endpoint::connect(client, control(name), Time::ZERO, 4_294_967_000),
            server: None,
            server_config: server,
            server_control: control(name),
            now: Time::ZERO,
            flying: BTreeMap::new(),
            sent: 0,
            log: Vec::new(),
        }
    }

    pub(crate) fn server(&mut self) -> &mut Endpoint {
        self.server.as_mut().expect("the server has seen a SYN")
    }

    /// Sends what both ends have to send.
    pub(crate) fn flush(&mut self, fate: &mut impl FnMut(From, &Segment) -> Fate) {
        let mut out: Vec<(From, Transmit)> = Vec::new();
        while let Some(transmit) = self.client.poll_transmit(self.now) {
            out.push((From::Client, transmit));
        }
        while let Some(transmit) = self.server.as_mut().and_then(|end| end.poll_transmit(self.now))
        {
            out.push((From::Server, transmit));
        }
        for (from, Transmit { segment, .. }) in out {
            self.log.push((self.now, from, segment));
            let arrivals = match fate(from, &segment) {
                Fate::Lose => vec![],
                Fate::Deliver(after) => vec![after],
                Fate::Twice(first, second) => vec![first, second],
            };
            for after in arrivals {
                self.sent += 1;
                self.flying.insert((self.now + after, self.sent), (from, segment));
            }
        }
    }

    /// When something happens next.
    pub(crate) fn next_event(&self) -> Option<Time> {
        let packet = self.flying.keys().next().map(|(at, _)| *at);
        let ends = [Some(&self.client), self.server.as_ref()];
        let timers = ends.into_iter().flatten().filter_map(Endpoint::poll_timeout);
        timers.chain(packet).min()
    }

    /// Lets the next thing happen. Whether there was one.
    pub(crate) fn step(&mut self, fate: &mut impl FnMut(From, &Segment) -> Fate) -> bool {
        self.flush(fate);
        let Some(at) = self.next_event() else { return false };
        self.now = self.now.max(at);
        let arrived = self.flying.first_key_value().filter(|((at, _), _)| *at <= self.now);
        if let Some((&key, &(from, segment))) = arrived {
            self.flying.remove(&key);
            self.arrive(from, &segment);
        } else {
            for end in [Some(&mut self.client), self.server.as_mut()].into_iter().flatten() {
                if end.poll_timeout().is_some_and(|at| at <= self.now) {
                    end.on_timer(self.now);
                }
            }
        }
        self.flush(fate);
        true
    }

    fn arrive(&mut self, from: From, segment: &Segment) {
        match (from, &mut self.server) {
            (From::Server, _) => self.client.receive(self.now, segment),
            (From::Client, Some(server)) => server.receive(self.now, segment),
            (From::Client, None) if segment.syn => {
                self.server = Some(Endpoint::accept(
                    self.server_config.clone(),
                    self.server_control.clone(),
                    self.now,
                    77,
                    segment,
                ));
            }
            (From::Client, None) => {}
        }
    }

    /// Runs until `done`, or nothing more happens, or `limit`.
    pub(crate) fn run(
        &mut self,
        limit: Span,
        fate: &mut impl FnMut(From, &Segment) -> Fate,
        mut done: impl FnMut(&mut Pair) -> bool,
    ) {
        let end = self.now + limit;
        while self.now < end && !done(self) && self.step(fate) {}
    }
}
