//! A mobile network: users, cells, a gateway behind them, and servers behind that.
//!
//! Each cell's base station has a link of its own to the gateway, in which packets are tunnelled, or
//! shares one with others; users who begin in a cell share a server behind a link of its own, wherever
//! they go. Uplink radio is a delay. A handover (3GPP TS 36.300, section 10.1.2) forwards what still comes to the old base
//! station, and lets what comes to the new one wait for that.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use midspan_path::lte::{CELLS, Downlink, Handover};
use midspan_path::{Counters, Link, LinkSpec, SpecError, Times, Traces, Way};
use midspan_scenario::Cells;
use midspan_units::{Rate, Span, Time};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use crate::host::{ENB, Host, MEC, SERVER, UE};
use crate::packet::Datagram;
use crate::stretch::{Stretch, lane, unlane};

/// See the module.
pub(crate) struct Mobile {
    radio: Downlink<Datagram>,
    /// Between base stations and the gateway.
    access: Vec<Link<Datagram>>,
    /// Between the gateway and each server.
    wide: Vec<Link<Datagram>>,
    users: Vec<Subscriber>,
    /// What is on its way up over the air, or forwarded, or waits for something.
    held: BinaryHeap<InTransit>,
    /// How many have been held so far: of equal times the first is first.
    sequence: u64,
    handovers: VecDeque<Handover>,
    uplink: Span,
    x2: Span,
    /// From the gateway to a base station, and back.
    there_and_back: (Span, Span),
    /// What came up over the air.
    up: Counters,
}

/// What the network knows of a user.
#[derive(Debug, Clone)]
struct Subscriber {
    /// Whose server its connections go to.
    server: usize,
    /// The base station to which the gateway sends.
    route: usize,
    /// Until then a handover keeps it from sending.
    silent: Time,
    /// Until then what comes to its base station from the gateway waits for what is forwarded.
    fresh: Time,
    /// Until then what a base station's relay holds of it is on its way to the next one.
    moving: Time,
}

struct InTransit {
    at: Time,
    sequence: u64,
    what: What,
}

enum What {
    /// Comes to the user's base station.
    Packet(Datagram),
    /// The gateway sends to another base station from now on.
    Switch(usize),
}

/// An IPv4 header, UDP's and GTP's (3GPP TS 29.281, section 5.1).
const TUNNEL: u16 = 20 + 8 + 8;

/// At which what a relay holds is moved between base stations: that of the links between them.
const CONTEXT_RATE: Rate = Rate::from_bps(100_000_000);

const WIDE: usize = 2 * CELLS;
const RADIO: usize = 4 * CELLS;

impl Mobile {
    /// The lane of what is held.
    pub(crate) const HELD: usize = RADIO + 1;
    pub(crate) const LANES: usize = RADIO + 2;

    /// Users are numbered cell by cell, in rounds.
    pub(crate) fn new(
        cells: &Cells,
        access: &LinkSpec,
        wide: &LinkSpec,
        traces: &Traces,
        seed: u64,
    ) -> Result<Mobile, SpecError> {
        let mut seeds = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut beside = |spec: &LinkSpec, count: usize| {
            let one = |_| Link::new(spec, traces, seeds.next_u64());
            (0..count).map(one).collect::<Result<Vec<_>, _>>()
        };
        let (access_links, wide) =
            (beside(access, cells.links as usize)?, beside(wide, cells.servers as usize)?);
        let homes: Vec<usize> = (0..cells.total() as usize).map(|user| user % CELLS).collect();
        let user = |home: &usize| Subscriber {
            server: home % cells.servers as usize,
            route: *home,
            silent: Time::ZERO,
            fresh: Time::ZERO,
            moving: Time::ZERO,
        };
        let one_way = |elements: &[midspan_path::ElementSpec]| {
            elements.iter().map(midspan_path::ElementSpec::base_delay).sum()
        };
        Ok(Mobile {
            radio: Downlink::new(&cells.radio, &homes, seeds.next_u64()),
            access: access_links,
            wide,
            users: homes.iter().map(user).collect(),
            held: BinaryHeap::new(),
            sequence: 0,
            handovers: VecDeque::new(),
            uplink: cells.radio.uplink,
            x2: cells.radio.x2,
            there_and_back: (one_way(&access.down), one_way(&access.up)),
            up: Counters::default(),
        })
    }

    pub(crate) fn enqueue(
        &mut self,
        now: Time,
        from: Host,
        way: Way,
        mut packet: Datagram,
    ) -> usize {
        let user = &self.users[packet.ue as usize];
        let (links, link) = match (from, way) {
            (UE, _) => {
                let at = now.max(user.silent) + self.uplink;
                self.up.packets_in += 1;
                self.up.bytes_in += u64::from(packet.segment.wire_bytes());
                self.hold(at, What::Packet(packet));
                return Self::HELD;
            }
            (ENB, Way::Down) => {
                self.radio.enqueue(packet.ue, now, packet);
                return RADIO;
            }
            (ENB, Way::Up) => {
                packet.tunnel = TUNNEL;
                let link = self.radio.cell_of(packet.ue) % self.access.len();
                (&mut self.access, link)
            }
            (MEC, Way::Down) => {
                packet.tunnel = TUNNEL;
                packet.cell = user.route as u8;
                let link = user.route % self.access.len();
                (&mut self.access, link)
            }
            _ => (&mut self.wide, user.server),
        };
        links[link].enqueue(way, now, packet);
        let first = if packet.tunnel > 0 { 0 } else { WIDE };
        first + lane(link, way)
    }

    pub(crate) fn dequeue(&mut self, now: Time, lane: usize) -> Option<(Host, Datagram)> {
        match lane {
            Self::HELD => self.release(now),
            RADIO => {
                let packet = self.radio.dequeue(now);
                self.notice_handovers();
                packet.map(|(_, _, packet)| (UE, packet))
            }
            _ if lane < WIDE => self.tunnelled(now, lane),
            _ => {
                let (link, way) = unlane(lane - WIDE);
                let (_, packet) = self.wide[link].dequeue(way, now)?;
                Some((if way == Way::Up { SERVER } else { MEC }, packet))
            }
        }
    }

    pub(crate) fn next(&self, lane: usize) -> Time {
        match lane {
            Self::HELD => self.held.peek().map_or(Time::MAX, |held| held.at),
            RADIO => self.radio.next_event(),
            _ => {
                let links = if lane < WIDE { &self.access } else { &self.wide };
                let (link, way) = unlane(lane % WIDE);
                links.get(link).and_then(|link| link.next_event(way)).unwrap_or(Time::MAX)
            }
        }
    }

    /// A handover that has happened since the last one was asked for.
    pub(crate) fn handover(&mut self) -> Option<Handover> {
        self.handovers.pop_front()
    }

    /// What a relay at the old base station holds of a user, so many bytes, goes to the new one.
    pub(crate) fn move_context(&mut self, handover: &Handover, bytes: u64) {
        let nanos = bytes * 8 * 1_000_000_000 / CONTEXT_RATE.as_bps();
        self.users[handover.user as usize].moving = handover.at + self.x2 + Span::from_nanos(nanos);
    }

    /// Until when nothing can be done at `host` for a user, if so.
    pub(crate) fn moving(&self, now: Time, host: Host, user: u32) -> Option<Time> {
        let until = self.users[user as usize].moving;
        (host == ENB && until > now).then_some(until)
    }

    /// What comes out of a tunnel.
    fn tunnelled(&mut self, now: Time, lane: usize) -> Option<(Host, Datagram)> {
        let (link, way) = unlane(lane);
        loop {
            let (_, mut packet) = self.access[link].dequeue(way, now)?;
            packet.tunnel = 0;
            if way == Way::Up {
                return Some((MEC, packet));
            }
            let user = &self.users[packet.ue as usize];
            let is_here = self.radio.cell_of(packet.ue) == usize::from(packet.cell);
            let at = if is_here { user.fresh } else { now + self.x2 }.max(user.moving);
            if at <= now {
                return Some((ENB, packet));
            }
            self.hold(at, What::Packet(packet));
        }
    }

    fn hold(&mut self, at: Time, what: What) {
        self.sequence += 1;
        self.held.push(InTransit { at, sequence: self.sequence, what });
    }

    fn release(&mut self, now: Time) -> Option<(Host, Datagram)> {
        loop {
            self.held.peek().filter(|held| held.at <= now)?;
            match self.held.pop()?.what {
                What::Switch(user) => {
                    let serving = self.radio.cell_of(user as u32);
                    let user = &mut self.users[user];
                    user.route = serving;
                    user.fresh = now + self.there_and_back.0 + self.x2;
                }
                What::Packet(packet) => {
                    let moving = self.users[packet.ue as usize].moving;
                    if moving > now {
                        self.hold(moving, What::Packet(packet));
                        continue;
                    }
                    return Some((ENB, packet));
                }
            }
        }
    }

    fn notice_handovers(&mut self) {
        while let Some(handover) = self.radio.handover() {
            let (down, up) = self.there_and_back;
            self.users[handover.user as usize].silent = handover.resumes;
            // The new base station asks for the path, and has an answer.
            self.hold(handover.resumes + up + down, What::Switch(handover.user as usize));
            self.handovers.push_back(handover);
        }
    }

    pub(crate) fn stretches(&self) -> Vec<Stretch> {
        let together = |name, links: &[Link<Datagram>]| {
            let mut all = Stretch {
                name,
                counters: Default::default(),
                delays: (Times::new(), Times::new()),
            };
            for link in links {
                all.counters.0.add(&link.counters(Way::Up));
                all.counters.1.add(&link.counters(Way::Down));
                all.delays.0.add(link.delays(Way::Up));
                all.delays.1.add(link.delays(Way::Down));
            }
            all
        };
        let up = Counters {
            packets_out: self.up.packets_in,
            bytes_out: self.up.bytes_in,
            ..self.up.clone()
        };
        let radio = Stretch {
            name: "radio",
            counters: (up, self.radio.counters()),
            delays: (Times::new(), self.radio.delays().clone()),
        };
        vec![radio, together("access", &self.access), together("wide", &self.wide)]
    }

    pub(crate) fn restart_delays(&mut self) {
        self.radio.restart_delays();
        for link in self.access.iter_mut().chain(&mut self.wide) {
            link.restart_delays(Way::Up);
            link.restart_delays(Way::Down);
        }
    }
}

impl Ord for InTransit {
    /// The earliest is the greatest, for the heap.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl PartialOrd for InTransit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for InTransit {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for InTransit {}
