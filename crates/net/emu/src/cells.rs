//! A mobile network between its users and its gateway, where nothing is done at base stations.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use midspan_path::lte::{Network, Stop};
use midspan_path::{Stretch, Way};
use midspan_units::Time;

use crate::between::Strays;
use crate::packet::WirePacket;

/// Cells and their users, who are told apart by their addresses: users are at the left end, the gateway is at
/// the right one.
///
/// Everything in it happens in the order of time and at the time that the model gives it, however late its
/// thread wakes: what comes out depends on the packets and the times at which they came in.
pub struct Cells {
    network: Network<WirePacket>,
    users: HashMap<IpAddr, u32>,
    /// What is through, up and down, in the order of time.
    through: [VecDeque<(Time, WirePacket)>; 2],
    /// Up to when everything has happened: what was read later came no earlier.
    happened: Time,
    strays: Strays,
}

impl Cells {
    /// A network, and the address of each of its users in turn.
    pub fn new(network: Network<WirePacket>, users: impl IntoIterator<Item = IpAddr>) -> Cells {
        Cells {
            network,
            users: users.into_iter().zip(0..).collect(),
            through: Default::default(),
            happened: Time::ZERO,
            strays: Strays::default(),
        }
    }

    pub(crate) fn enqueue(&mut self, way: Way, at: Time, packet: WirePacket) {
        let at = at.max(self.happened);
        let address = match way {
            Way::Up => packet.source(),
            Way::Down => packet.destination(),
        };
        let Some(user) = self.users.get(&address).copied() else {
            self.strays.count(way);
            return;
        };
        match way {
            Way::Up => self.network.from_user(at, user, packet),
            Way::Down => self.network.from_gateway(at, user, packet),
        };
    }

    pub(crate) fn next_event(&self, way: Way) -> Option<Time> {
        let through = self.through[end(way)].front().map(|(at, _)| *at);
        through.or_else(|| self.first().map(|(at, _)| at))
    }

    pub(crate) fn dequeue(&mut self, way: Way, now: Time) -> Option<(Time, WirePacket)> {
        while self.through[end(way)].is_empty() && self.step(now) {}
        let due = self.through[end(way)].front().is_some_and(|(at, _)| *at <= now);
        if due { self.through[end(way)].pop_front() } else { None }
    }

    /// The lane of which something leaves first, and when.
    fn first(&self) -> Option<(Time, usize)> {
        let lanes = 0..Network::<WirePacket>::LANES;
        let first = lanes.map(|lane| (self.network.next(lane), lane)).min();
        first.filter(|(at, _)| *at < Time::MAX)
    }

    /// Lets what is first happen if that is by `until`, and says whether there was something.
    fn step(&mut self, until: Time) -> bool {
        let Some((at, lane)) = self.first().filter(|(at, _)| *at <= until) else { return false };
        self.happened = at.max(self.happened);
        while let Some((stop, user, packet)) = self.network.dequeue(at, lane) {
            match stop {
                Stop::User => self.through[end(Way::Down)].push_back((at, packet)),
                Stop::Gateway => self.through[end(Way::Up)].push_back((at, packet)),
                Stop::Enb(Way::Down) => drop(self.network.to_user(at, user, packet)),
                Stop::Enb(Way::Up) => drop(self.network.to_gateway(at, user, packet)),
            }
        }
        // At base stations nothing is held that would have to go along.
        while self.network.handover().is_some() {}
        true
    }

    pub(crate) fn radio(&self) -> Stretch {
        let [radio, _] = self.network.stretches();
        radio
    }

    /// The links between base stations and the gateway. What is of no user counts as dropped there.
    pub(crate) fn access(&self) -> Stretch {
        let [_, mut access] = self.network.stretches();
        let (up, down) = access.counters;
        access.counters = (self.strays.add_to(Way::Up, up), self.strays.add_to(Way::Down, down));
        access
    }

    pub(crate) fn restart_delays(&mut self) {
        self.network.restart_delays();
    }
}

fn end(way: Way) -> usize {
    usize::from(way == Way::Down)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use midspan_path::lte::{CELLS, LteSpec, NetworkSpec};
    use midspan_path::{LinkSpec, Traces};
    use midspan_units::Span;
    use proptest::prelude::*;

    use super::*;

    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn address(user: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 1, 0, user)
    }

    /// A user in each cell, 10 ms from the gateway.
    fn cells() -> Cells {
        let link = r#"{"up": [{"delay": "10 ms"}], "down": [{"delay": "10 ms"}]}"#;
        let link: LinkSpec = serde_json::from_str(link).unwrap();
        let radio = &LteSpec::default();
        let users = CELLS as u32;
        let spec = NetworkSpec { radio, users, links: 7, access: &link, servers: 1, wide: &link };
        let (network, _) = spec.build(&Traces::new(), 1).unwrap();
        Cells::new(network, (0..users as u8).map(|user| address(user).into()))
    }

    fn packet(from: Ipv4Addr, to: Ipv4Addr, bytes: usize) -> WirePacket {
        let mut header = [0; 20];
        header[0] = 0x45;
        header[12..16].copy_from_slice(&from.octets());
        header[16..].copy_from_slice(&to.octets());
        WirePacket::new(&header, &vec![0; bytes], None, 0).unwrap()
    }

    fn at(micros: u64) -> Time {
        Time::ZERO + Span::from_micros(micros)
    }

    /// What comes out until `end`, with one look each `every`: when, which way, whose. `sent` comes in
    /// between, each when it was sent.
    fn through(sent: &[(u64, u8, Way)], every: u64, end: u64) -> Vec<(Time, bool, IpAddr)> {
        let mut cells = cells();
        let mut sent = sent.iter().peekable();
        let mut out = Vec::new();
        let mut look = |cells: &mut Cells, now: Time| {
            for way in [Way::Down, Way::Up] {
                while let Some((at, packet)) = cells.dequeue(way, now) {
                    let up = way == Way::Up;
                    out.push((at, up, if up { packet.source() } else { packet.destination() }));
                }
            }
        };
        for now in (0..end).step_by(every as usize) {
            while let Some((time, user, way)) = sent.next_if(|(time, ..)| *time <= now) {
                let (user, server) = (address(*user), SERVER);
                let (from, to) = if *way == Way::Up { (user, server) } else { (server, user) };
                cells.enqueue(*way, at(*time), packet(from, to, 1000));
            }
            look(&mut cells, at(now));
        }
        out.sort();
        out
    }

    #[test]
    fn packets_come_to_the_user_that_they_are_for_and_from_there_to_the_gateway() {
        let out = through(&[(0, 3, Way::Up), (0, 5, Way::Down)], 100, 1_000_000);
        let [down, up] = &out[..] else { panic!("{out:?}") };
        // 10 ms up over the air, 10 ms to the gateway.
        assert_eq!(up, &(at(20_000), true, address(3).into()));
        assert_eq!((down.1, down.2), (false, address(5).into()));
        assert!(down.0 > at(10_000), "{down:?}");
    }

    #[test]
    fn what_is_of_nobody_is_counted_as_dropped() {
        let mut cells = cells();
        cells.enqueue(Way::Down, at(0), packet(SERVER, SERVER, 100));
        cells.enqueue(Way::Up, at(0), packet(address(0), SERVER, 100));
        let (up, down) = cells.access().counters;
        assert_eq!((down.packets_in, down.dropped.get("address")), (1, Some(&1)));
        assert_eq!(up.dropped.get("address"), None);
    }

    proptest! {
        /// A thread that wakes late, for packets that came before it last looked, changes nothing.
        #[test]
        fn what_comes_out_when_does_not_hang_on_how_often_somebody_looks(
            sent in prop::collection::vec((0u64..300_000, 0u8..7, any::<bool>()), 1..40),
            every in 1u64..40,
        ) {
            // Packets come as a look sees them, so all arrive at looks of the slower one.
            let slow = every * 1000;
            let mut sent: Vec<(u64, u8, Way)> = sent
                .into_iter()
                .map(|(time, user, up)| {
                    (time.div_ceil(slow) * slow, user, if up { Way::Up } else { Way::Down })
                })
                .collect();
            sent.sort_by_key(|(time, ..)| *time);
            let end = 2_000_000;
            let often = through(&sent, 1000, end);
            prop_assert_eq!(often.len(), sent.len());
            prop_assert_eq!(often, through(&sent, slow, end));
        }
    }
}
