//! A mobile network, and servers behind its gateway.
//!
//! Users who begin in a cell share a server behind a link of its own, wherever they go.

use midspan_path::lte::{CELLS, Handover, Network, Stop};
use midspan_path::{Link, SpecError, Stretch, Traces, Way, lane, unlane};
use midspan_scenario::{Cells, PathSpec};
use midspan_units::Time;

use crate::host::{ENB, Host, MEC, SERVER, UE};
use crate::packet::Datagram;

/// See the module.
pub(crate) struct Mobile {
    network: Network<Datagram>,
    /// Between the gateway and each server.
    wide: Vec<Link<Datagram>>,
    /// The server of each user.
    servers: Vec<usize>,
}

/// The first lane of the links to servers; those of the links to base stations are before, the others of the
/// network behind.
const WIDE: usize = 2 * CELLS;
const OTHERS: usize = 4 * CELLS;

impl Mobile {
    /// The lane of what is held.
    pub(crate) const HELD: usize = of_network(Network::<Datagram>::HELD);
    pub(crate) const LANES: usize = Network::<Datagram>::LANES + 2 * CELLS;

    pub(crate) fn new(
        cells: &Cells,
        path: &PathSpec,
        traces: &Traces,
        seed: u64,
    ) -> Result<Mobile, SpecError> {
        let (network, wide) = cells.network(path).build(traces, seed)?;
        let servers = (0..cells.total()).map(|user| cells.server_of(user) as usize).collect();
        Ok(Mobile { network, wide, servers })
    }

    pub(crate) fn enqueue(&mut self, now: Time, from: Host, way: Way, packet: Datagram) -> usize {
        let (network, user) = (&mut self.network, packet.ue);
        of_network(match (from, way) {
            (UE, _) => network.from_user(now, user, packet),
            (ENB, Way::Down) => network.to_user(now, user, packet),
            (ENB, Way::Up) => network.to_gateway(now, user, packet),
            (MEC, Way::Down) => network.from_gateway(now, user, packet),
            _ => {
                let link = self.servers[user as usize];
                self.wide[link].enqueue(way, now, packet);
                return WIDE + lane(link, way);
            }
        })
    }

    pub(crate) fn dequeue(&mut self, now: Time, lane: usize) -> Option<(Host, Datagram)> {
        if (WIDE..OTHERS).contains(&lane) {
            let (link, way) = unlane(lane - WIDE);
            let (_, packet) = self.wide[link].dequeue(way, now)?;
            return Some((if way == Way::Up { SERVER } else { MEC }, packet));
        }
        let (stop, _, packet) = self.network.dequeue(now, to_network(lane))?;
        let host = match stop {
            Stop::User => UE,
            Stop::Enb(_) => ENB,
            Stop::Gateway => MEC,
        };
        Some((host, packet))
    }

    pub(crate) fn next(&self, lane: usize) -> Time {
        if (WIDE..OTHERS).contains(&lane) {
            let (link, way) = unlane(lane - WIDE);
            return self.wide.get(link).and_then(|link| link.next_event(way)).unwrap_or(Time::MAX);
        }
        self.network.next(to_network(lane))
    }

    /// A handover that has happened since the last one was asked for.
    pub(crate) fn handover(&mut self) -> Option<Handover> {
        self.network.handover()
    }

    /// What a relay at the old base station holds of a user, so many bytes, goes to the new one.
    pub(crate) fn move_context(&mut self, handover: &Handover, bytes: u64) {
        self.network.move_context(handover, bytes);
    }

    /// Until when nothing can be done at `host` for a user, if so.
    pub(crate) fn moving(&self, now: Time, host: Host, user: u32) -> Option<Time> {
        self.network.moving(now, user).filter(|_| host == ENB)
    }

    pub(crate) fn stretches(&self) -> Vec<Stretch> {
        let wide = Stretch::of_links("wide", &self.wide);
        self.network.stretches().into_iter().chain([wide]).collect()
    }

    pub(crate) fn restart_delays(&mut self) {
        self.network.restart_delays();
        for link in &mut self.wide {
            link.restart_delays(Way::Up);
            link.restart_delays(Way::Down);
        }
    }
}

/// What a lane of the network's is called here.
const fn of_network(lane: usize) -> usize {
    if lane < WIDE { lane } else { lane + OTHERS - WIDE }
}

/// And the other way round.
const fn to_network(lane: usize) -> usize {
    if lane < WIDE { lane } else { lane + WIDE - OTHERS }
}
