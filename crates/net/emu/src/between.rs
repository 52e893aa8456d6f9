//! What may lie between the two ports of an emulator.

use std::collections::HashMap;
use std::net::IpAddr;

use midspan_path::{Counters, Link, Stretch, Times, Way};
use midspan_units::Time;

use crate::cells::Cells;
use crate::packet::WirePacket;

/// What lies between the two ports of an emulator, and decides when packets leave it. Time begins at zero
/// when the emulator does.
pub enum Between {
    /// One link.
    Link(Box<Link<WirePacket>>),
    /// Links beside each other.
    Beside(Beside),
    /// Cells and their users, between users and gateway.
    Cells(Box<Cells>),
}

impl Between {
    pub(crate) fn enqueue(&mut self, way: Way, at: Time, packet: WirePacket) {
        match self {
            Between::Link(link) => link.enqueue(way, at, packet),
            Between::Beside(links) => links.enqueue(way, at, packet),
            Between::Cells(cells) => cells.enqueue(way, at, packet),
        }
    }

    /// When [`Between::dequeue`] should next be called.
    pub(crate) fn next_event(&self, way: Way) -> Option<Time> {
        match self {
            Between::Link(link) => link.next_event(way),
            Between::Beside(links) => links.first(way).map(|(at, _)| at),
            Between::Cells(cells) => cells.next_event(way),
        }
    }

    /// The next packet that has gone through by `now`, and when it was meant to leave.
    pub(crate) fn dequeue(&mut self, way: Way, now: Time) -> Option<(Time, WirePacket)> {
        match self {
            Between::Link(link) => link.dequeue(way, now),
            Between::Beside(links) => links.dequeue(way, now),
            Between::Cells(cells) => cells.dequeue(way, now),
        }
    }

    /// What links have done so far, all of them together.
    pub(crate) fn counters(&self, way: Way) -> Counters {
        match self {
            Between::Link(link) => link.counters(way),
            Between::Beside(links) => links.counters(way),
            Between::Cells(cells) => of_way(cells.access(), way).0,
        }
    }

    /// How long packets took across links beyond base delays.
    pub(crate) fn delays(&self, way: Way) -> Times {
        match self {
            Between::Link(link) => link.delays(way).clone(),
            Between::Beside(links) => of_way(links.stretch(), way).1,
            Between::Cells(cells) => of_way(cells.access(), way).1,
        }
    }

    /// Bytes that wait in links now, or are being sent by them.
    pub(crate) fn waiting_bytes(&self, way: Way) -> u64 {
        match self {
            Between::Link(link) => link.waiting_bytes(way),
            Between::Beside(links) => links.links.iter().map(|link| link.waiting_bytes(way)).sum(),
            Between::Cells(cells) => of_way(cells.access(), way).0.bytes_queued,
        }
    }

    pub(crate) fn restart_delays(&mut self) {
        let restart = |link: &mut Link<WirePacket>| {
            link.restart_delays(Way::Up);
            link.restart_delays(Way::Down);
        };
        match self {
            Between::Link(link) => restart(link),
            Between::Beside(links) => links.links.iter_mut().for_each(restart),
            Between::Cells(cells) => cells.restart_delays(),
        }
    }

    /// What the air interface has done so far, where there is one before the links.
    pub(crate) fn radio(&self) -> Option<Stretch> {
        match self {
            Between::Cells(cells) => Some(cells.radio()),
            Between::Link(_) | Between::Beside(_) => None,
        }
    }
}

impl From<Link<WirePacket>> for Between {
    fn from(link: Link<WirePacket>) -> Between {
        Between::Link(Box::new(link))
    }
}

fn of_way(stretch: Stretch, way: Way) -> (Counters, Times) {
    let Stretch { counters, delays, .. } = stretch;
    match way {
        Way::Up => (counters.0, delays.0),
        Way::Down => (counters.1, delays.1),
    }
}

/// Links beside each other, each to one of the hosts at the right end, which are told apart by their addresses.
pub struct Beside {
    links: Vec<Link<WirePacket>>,
    hosts: HashMap<IpAddr, usize>,
    strays: Strays,
}

impl Beside {
    /// The links, and the address of the host at the end of each.
    pub fn new(links: Vec<(IpAddr, Link<WirePacket>)>) -> Beside {
        let (hosts, links): (Vec<IpAddr>, Vec<_>) = links.into_iter().unzip();
        let hosts = hosts.into_iter().zip(0..).collect();
        Beside { links, hosts, strays: Strays::default() }
    }

    fn enqueue(&mut self, way: Way, at: Time, packet: WirePacket) {
        let host = match way {
            Way::Up => packet.destination(),
            Way::Down => packet.source(),
        };
        match self.hosts.get(&host) {
            Some(link) => self.links[*link].enqueue(way, at, packet),
            None => self.strays.count(way),
        }
    }

    /// The link of which something happens first, and when.
    fn first(&self, way: Way) -> Option<(Time, usize)> {
        let links = self.links.iter().zip(0..);
        links.filter_map(|(link, number)| Some((link.next_event(way)?, number))).min()
    }

    fn dequeue(&mut self, way: Way, now: Time) -> Option<(Time, WirePacket)> {
        loop {
            let (_, link) = self.first(way).filter(|(at, _)| *at <= now)?;
            let packet = self.links[link].dequeue(way, now);
            if packet.is_some() {
                return packet;
            }
        }
    }

    fn stretch(&self) -> Stretch {
        Stretch::of_links("beside", &self.links)
    }

    fn counters(&self, way: Way) -> Counters {
        self.strays.add_to(way, of_way(self.stretch(), way).0)
    }
}

/// Packets that are of none of those at an end.
#[derive(Debug, Default)]
pub(crate) struct Strays {
    up: u64,
    down: u64,
}

impl Strays {
    pub(crate) fn count(&mut self, way: Way) {
        match way {
            Way::Up => self.up += 1,
            Way::Down => self.down += 1,
        }
    }

    /// As packets that were dropped.
    pub(crate) fn add_to(&self, way: Way, mut counters: Counters) -> Counters {
        let strays = if way == Way::Up { self.up } else { self.down };
        if strays > 0 {
            counters.packets_in += strays;
            counters.dropped.insert("address", strays);
        }
        counters
    }
}
