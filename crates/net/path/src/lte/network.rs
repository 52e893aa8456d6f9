//! A mobile network: users, cells, and a gateway behind them.
//!
//! Each cell's base station has a link of its own to the gateway, in which packets are tunnelled, or
//! shares one with others. Uplink radio is a delay. A handover (3GPP TS 36.300, section 10.1.2) forwards
//! what still comes to the old base station, and lets what comes to the new one wait for that.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use midspan_units::{Rate, Span, Time};

use super::{CELLS, Downlink, Handover, LteSpec};
use crate::random::Random;
use crate::stretch::{lane, unlane};
use crate::{
    Counters, Ecn, ElementSpec, Link, LinkSpec, Packet, SpecError, Stretch, Times, Traces, Way,
};

/// A mobile network with what is behind its gateway.
#[derive(Debug, Clone, Copy)]
pub struct NetworkSpec<'a> {
    /// The radio network.
    pub radio: &'a LteSpec,
    /// Users, numbered cell by cell, in rounds.
    pub users: u32,
    /// Links between base stations and the gateway: 1 to [`CELLS`].
    pub links: u32,
    /// Each of these.
    pub access: &'a LinkSpec,
    /// Links between the gateway and servers.
    pub servers: u32,
    /// Each of these.
    pub wide: &'a LinkSpec,
}

impl NetworkSpec<'_> {
    /// The network up to its gateway, and the links behind that. `seed` decides all randomness.
    ///
    /// # Errors
    /// An element's specification that cannot be.
    pub fn build<P: Packet>(
        &self,
        traces: &Traces,
        seed: u64,
    ) -> Result<(Network<P>, Vec<Link<P>>), SpecError> {
        let mut seeds = Random::new(seed, 0);
        let access = beside(self.access, traces, self.links, &mut seeds)?;
        let wide = beside(self.wide, traces, self.servers, &mut seeds)?;
        let homes: Vec<usize> = (0..self.users as usize).map(|user| user % CELLS).collect();
        let user = |home: &usize| Subscriber {
            route: *home,
            silent: Time::ZERO,
            fresh: Time::ZERO,
            moving: Time::ZERO,
        };
        let one_way = |elements: &[ElementSpec]| elements.iter().map(ElementSpec::base_delay).sum();
        let network = Network {
            radio: Downlink::new(self.radio, &homes, seeds.seed()),
            access,
            users: homes.iter().map(user).collect(),
            held: BinaryHeap::new(),
            sequence: 0,
            handovers: VecDeque::new(),
            uplink: self.radio.uplink,
            x2: self.radio.x2,
            there_and_back: (one_way(&self.access.down), one_way(&self.access.up)),
            up: Counters::default(),
        };
        Ok((network, wide))
    }
}

/// So many links of one kind, each with a seed of its own.
fn beside<P: Packet>(
    spec: &LinkSpec,
    traces: &Traces,
    count: u32,
    seeds: &mut Random,
) -> Result<Vec<Link<P>>, SpecError> {
    (0..count).map(|_| Link::new(spec, traces, seeds.seed())).collect()
}

/// Where a packet of a user's has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// To the user.
    User,
    /// To the base station that serves it, on this way.
    Enb(Way),
    /// To the gateway.
    Gateway,
}

/// See the module. It is made of lanes, numbered from 0, each of which says when something next leaves
/// it. What leaves one at a base station is to be sent on from there.
pub struct Network<P> {
    radio: Downlink<P>,
    /// Between base stations and the gateway.
    access: Vec<Link<Tunnelled<P>>>,
    users: Vec<Subscriber>,
    /// What is on its way up over the air, or forwarded, or waits for something.
    held: BinaryHeap<InTransit<P>>,
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
    /// The base station to which the gateway sends.
    route: usize,
    /// Until then a handover keeps it from sending.
    silent: Time,
    /// Until then what comes to its base station from the gateway waits for what is forwarded.
    fresh: Time,
    /// Until then what a base station's relay holds of it is on its way to the next one.
    moving: Time,
}

/// A packet between a base station and the gateway.
#[derive(Debug)]
struct Tunnelled<P> {
    packet: P,
    user: u32,
    /// The cell that a tunnel from the gateway leads to.
    cell: u8,
}

/// An IPv4 header, UDP's and GTP's (3GPP TS 29.281, section 5.1).
const TUNNEL: u32 = 20 + 8 + 8;

impl<P: Packet> Packet for Tunnelled<P> {
    fn wire_bytes(&self) -> u32 {
        self.packet.wire_bytes() + TUNNEL
    }

    fn burst(&self) -> u64 {
        self.packet.burst()
    }

    fn ecn(&self) -> Ecn {
        self.packet.ecn()
    }

    fn mark_ce(&mut self) {
        self.packet.mark_ce();
    }

    fn is_pure_ack(&self) -> bool {
        self.packet.is_pure_ack()
    }
}

struct InTransit<P> {
    at: Time,
    sequence: u64,
    user: u32,
    what: What<P>,
}

enum What<P> {
    /// Comes to the user's base station, on this way.
    Packet(Way, P),
    /// The gateway sends to another base station from now on.
    Switch,
}

/// At which what a relay holds is moved between base stations: that of the links between them.
const CONTEXT_RATE: Rate = Rate::from_bps(100_000_000);

/// The lane of the air interface, behind those of the links.
const RADIO: usize = 2 * CELLS;

impl<P: Packet> Network<P> {
    /// The lane of what is held. Something may change in it along with any other.
    pub const HELD: usize = RADIO + 1;
    /// How many lanes there are.
    pub const LANES: usize = RADIO + 2;

    /// `user` sends a packet. Answers the lane that has it.
    pub fn from_user(&mut self, now: Time, user: u32, packet: P) -> usize {
        let at = now.max(self.users[user as usize].silent) + self.uplink;
        self.up.packets_in += 1;
        self.up.bytes_in += u64::from(packet.wire_bytes());
        self.hold(at, user, What::Packet(Way::Up, packet));
        Self::HELD
    }

    /// The base station that serves `user` sends it a packet. Answers the lane that has it.
    pub fn to_user(&mut self, now: Time, user: u32, packet: P) -> usize {
        self.radio.enqueue(user, now, packet);
        RADIO
    }

    /// The base station that serves `user` sends a packet of its to the gateway. Answers the lane that has it.
    pub fn to_gateway(&mut self, now: Time, user: u32, packet: P) -> usize {
        let cell = self.radio.cell_of(user);
        self.tunnel(Way::Up, now, cell, Tunnelled { packet, user, cell: cell as u8 })
    }

    /// The gateway sends a packet to `user`. Answers the lane that has it.
    pub fn from_gateway(&mut self, now: Time, user: u32, packet: P) -> usize {
        let cell = self.users[user as usize].route;
        self.tunnel(Way::Down, now, cell, Tunnelled { packet, user, cell: cell as u8 })
    }

    fn tunnel(&mut self, way: Way, now: Time, cell: usize, packet: Tunnelled<P>) -> usize {
        let link = cell % self.access.len();
        self.access[link].enqueue(way, now, packet);
        lane(link, way)
    }

    /// The next packet that has left a lane by `now`: where it has come to, and whose it is.
    pub fn dequeue(&mut self, now: Time, lane: usize) -> Option<(Stop, u32, P)> {
        match lane {
            _ if lane == Self::HELD => self.release(now),
            RADIO => {
                let packet = self.radio.dequeue(now);
                self.notice_handovers();
                packet.map(|(_, user, packet)| (Stop::User, user, packet))
            }
            _ => self.tunnelled(now, lane),
        }
    }

    /// When something may next leave a lane.
    pub fn next(&self, lane: usize) -> Time {
        match lane {
            _ if lane == Self::HELD => self.held.peek().map_or(Time::MAX, |held| held.at),
            RADIO => self.radio.next_event(),
            _ => {
                let (link, way) = unlane(lane);
                self.access.get(link).and_then(|link| link.next_event(way)).unwrap_or(Time::MAX)
            }
        }
    }

    /// A handover that has happened since the last one was asked for.
    pub fn handover(&mut self) -> Option<Handover> {
        self.handovers.pop_front()
    }

    /// What a relay at the old base station holds of a user, so many bytes, goes to the new one.
    pub fn move_context(&mut self, handover: &Handover, bytes: u64) {
        let nanos = bytes * 8 * 1_000_000_000 / CONTEXT_RATE.as_bps();
        self.users[handover.user as usize].moving = handover.at + self.x2 + Span::from_nanos(nanos);
    }

    /// Until when nothing can be done at base stations for a user, if so.
    pub fn moving(&self, now: Time, user: u32) -> Option<Time> {
        let until = self.users[user as usize].moving;
        (until > now).then_some(until)
    }

    /// What comes out of a tunnel.
    fn tunnelled(&mut self, now: Time, lane: usize) -> Option<(Stop, u32, P)> {
        let (link, way) = unlane(lane);
        loop {
            let (_, tunnelled) = self.access[link].dequeue(way, now)?;
            let Tunnelled { packet, user: number, cell } = tunnelled;
            if way == Way::Up {
                return Some((Stop::Gateway, number, packet));
            }
            let user = &self.users[number as usize];
            let is_here = self.radio.cell_of(number) == usize::from(cell);
            let at = if is_here { user.fresh } else { now + self.x2 }.max(user.moving);
            if at <= now {
                return Some((Stop::Enb(way), number, packet));
            }
            self.hold(at, number, What::Packet(way, packet));
        }
    }

    fn hold(&mut self, at: Time, user: u32, what: What<P>) {
        self.sequence += 1;
        self.held.push(InTransit { at, sequence: self.sequence, user, what });
    }

    fn release(&mut self, now: Time) -> Option<(Stop, u32, P)> {
        loop {
            self.held.peek().filter(|held| held.at <= now)?;
            let InTransit { user: number, what, .. } = self.held.pop()?;
            let user = &mut self.users[number as usize];
            match what {
                What::Switch => {
                    user.route = self.radio.cell_of(number);
                    user.fresh = now + self.there_and_back.0 + self.x2;
                }
                What::Packet(..) if user.moving > now => {
                    let moving = user.moving;
                    self.hold(moving, number, what);
                }
                What::Packet(way, packet) => return Some((Stop::Enb(way), number, packet)),
            }
        }
    }

    fn notice_handovers(&mut self) {
        while let Some(handover) = self.radio.handover() {
            let (down, up) = self.there_and_back;
            self.users[handover.user as usize].silent = handover.resumes;
            // The new base station asks for the path, and has an answer.
            self.hold(handover.resumes + up + down, handover.user, What::Switch);
            self.handovers.push_back(handover);
        }
    }

    /// What the air interface has done so far, and the links between base stations and the gateway.
    pub fn stretches(&self) -> [Stretch; 2] {
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
        [radio, Stretch::of_links("access", &self.access)]
    }

    /// Forgets the delays so far.
    pub fn restart_delays(&mut self) {
        self.radio.restart_delays();
        for link in &mut self.access {
            link.restart_delays(Way::Up);
            link.restart_delays(Way::Down);
        }
    }
}

impl<P> Ord for InTransit<P> {
    /// The earliest is the greatest, for the heap.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.sequence).cmp(&(self.at, self.sequence))
    }
}

impl<P> PartialOrd for InTransit<P> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<P> PartialEq for InTransit<P> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<P> Eq for InTransit<P> {}
