//! What lies between hosts: two links in a row, or a mobile network.

use midspan_path::{Path, Stretch, Way, lane, unlane};
use midspan_units::Time;

use crate::host::{Host, MEC, SERVER, UE};
use crate::mobile::Mobile;
use crate::packet::Datagram;

/// Everything that carries packets. It is made of lanes, numbered from 0, each of which says when
/// something next leaves it.
pub(crate) enum Net {
    /// Between UE and MEC, and between MEC and server.
    Row(Path<Datagram>),
    /// Cells and their users.
    Cells(Box<Mobile>),
}

impl Net {
    pub(crate) fn lanes(&self) -> usize {
        match self {
            Net::Row(path) => 2 * path.links.len(),
            Net::Cells(_) => Mobile::LANES,
        }
    }

    /// A packet leaves `from` on its way up or down. Answers the lane that has it.
    pub(crate) fn enqueue(&mut self, now: Time, from: Host, way: Way, packet: Datagram) -> usize {
        match self {
            Net::Row(path) => {
                let link = match way {
                    Way::Up => usize::from(from >= MEC),
                    Way::Down => usize::from(from > MEC),
                };
                path.links[link].enqueue(way, now, packet);
                lane(link, way)
            }
            Net::Cells(mobile) => mobile.enqueue(now, from, way, packet),
        }
    }

    /// The next packet that has left a lane by `now`, and the host to which it has come.
    pub(crate) fn dequeue(&mut self, now: Time, lane: usize) -> Option<(Host, Datagram)> {
        match self {
            Net::Row(path) => {
                let (link, way) = unlane(lane);
                let (_, packet) = path.links[link].dequeue(way, now)?;
                let host = match (link, way) {
                    (0, Way::Down) => UE,
                    (0, Way::Up) | (_, Way::Down) => MEC,
                    (_, Way::Up) => SERVER,
                };
                Some((host, packet))
            }
            Net::Cells(mobile) => mobile.dequeue(now, lane),
        }
    }

    /// When something may next leave a lane.
    pub(crate) fn next(&self, lane: usize) -> Time {
        match self {
            Net::Row(path) => {
                let (link, way) = unlane(lane);
                path.links[link].next_event(way).unwrap_or(Time::MAX)
            }
            Net::Cells(mobile) => mobile.next(lane),
        }
    }

    /// A lane in which something may have changed along with another.
    pub(crate) fn aside(&self) -> Option<usize> {
        match self {
            Net::Row(_) => None,
            Net::Cells(_) => Some(Mobile::HELD),
        }
    }

    /// The stretches of the way, the UE's first.
    pub(crate) fn stretches(&self) -> Vec<Stretch> {
        match self {
            Net::Row(path) => {
                let named = path.links.iter().zip(["access", "wide"]);
                named
                    .map(|(link, name)| Stretch {
                        name,
                        counters: (link.counters(Way::Up), link.counters(Way::Down)),
                        delays: (link.delays(Way::Up).clone(), link.delays(Way::Down).clone()),
                    })
                    .collect()
            }
            Net::Cells(mobile) => mobile.stretches(),
        }
    }

    /// The bytes that wait on each link, up and down. Those of a mobile network are not told.
    pub(crate) fn waiting(&self) -> Vec<(&'static str, [u64; 2])> {
        let Net::Row(path) = self else { return Vec::new() };
        let named = path.links.iter().zip(["access", "wide"]);
        named
            .map(|(link, name)| (name, [Way::Up, Way::Down].map(|way| link.waiting_bytes(way))))
            .collect()
    }

    /// Forgets the delays so far.
    pub(crate) fn restart_delays(&mut self) {
        match self {
            Net::Row(path) => path.links.iter_mut().for_each(|link| {
                link.restart_delays(Way::Up);
                link.restart_delays(Way::Down);
            }),
            Net::Cells(mobile) => mobile.restart_delays(),
        }
    }
}
