//! The split relay: two sockets on a host, and between them the decisions of the live relay.

use std::sync::Arc;

use midspan_split::{
    Action, Cause, ClientLink, CopyMode, Failure, FirstWindows, Leg, LegInfo, Legs, Outcome,
    PerLeg, Read, Readiness, Shown, Write,
};
use midspan_tcp::{Endpoint, Stage};
use midspan_units::Rate;

use crate::socket::{Acquaintance, Socket, SocketId, User};
use crate::splitter::Splitter;
use crate::world::World;

/// Does what can be done for flow `number`, on both legs.
pub(crate) fn turn(world: &mut World, number: usize) {
    if world.flows[number].over {
        // What is left of the closing is the endpoints' own: a FIN that comes again is acknowledged again.
        for leg in Leg::BOTH {
            if let Some(id) = world.flows[number].legs[leg] {
                world.flush(id);
            }
        }
        return;
    }
    connect_onward(world, number);
    let Splitter { mut pump, legs, first, ref link, .. } = world.flows[number];
    let link = link.clone();
    let now = world.now;
    let mut ends = Endpoints { world, number, legs, first, link };
    for leg in Leg::BOTH {
        let Some(readiness) = ends.readiness(leg) else { continue };
        if pump.event(leg, readiness, &mut ends) == Outcome::Refused {
            pump.fail(Cause::ConnectFailed);
        }
    }
    let abort = match pump.turn(now, u64::MAX, &mut ends) {
        Action::Wait | Action::Turn | Action::Buffer => None,
        Action::Close => Some(false),
        Action::Abort(_) => Some(true),
    };
    world.flows[number].pump = pump;
    advertise(world, number);
    for leg in Leg::BOTH {
        let Some(id) = legs[leg] else { continue };
        if abort == Some(true)
            && !pump.flow().has_ended(leg)
            && let Some(endpoint) = endpoint(world, number, leg)
        {
            endpoint.abort();
        }
        world.flush(id);
    }
    if abort.is_some() {
        remember_server(world, number);
        world.flows[number].over = true;
        world.flows[number].link = None;
    }
}

/// Takes in what a flow that is over has shown of the way to its server.
fn remember_server(world: &mut World, number: usize) {
    let Splitter { legs, server_window, remembers_server, .. } = world.flows[number];
    let Some(leg) = legs.server.filter(|_| remembers_server) else { return };
    let server = acquaintance(world, leg);
    let Some((server, endpoint)) = server.zip(endpoint(world, number, Leg::Server)) else { return };
    if endpoint.written() < Shown::LEAST {
        return;
    }
    let info = endpoint.info();
    let packets = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let shown = Shown {
        began: server_window,
        window: info.cwnd,
        sent: packets(info.data_segments),
        lost: packets(info.retransmissions).saturating_sub(info.dsacks),
        rate: Rate::of(info.bytes_acked, info.busy),
        round_trip: info.min_rtt,
        packet: info.mss,
    };
    world.server_paths.over(server, world.now, shown);
}

/// What a host's memory of a leg's peer is found by.
fn acquaintance(world: &World, leg: SocketId) -> Option<Acquaintance> {
    let socket = world.sockets.get(leg)?.as_ref()?;
    let peer = world.sockets.get(socket.peer)?.as_ref()?;
    Some((socket.host, peer.host, socket.ue))
}

/// Of a shared buffer the window of each leg is what is left when all is counted that came in there and
/// is not acknowledged on the other one.
fn advertise(world: &mut World, number: usize) {
    let Some(mut windows) = world.flows[number].windows else { return };
    for (window, leg) in windows.iter_mut().zip([Leg::Client, Leg::Server]) {
        let far = endpoint(world, number, leg.other());
        let acknowledged = far.map_or(0, |far| far.acknowledged());
        if let Some(near) = endpoint(world, number, leg)
            && near.stage() == Stage::Established
        {
            let received = near.received();
            let open = window.advertise(received, received.saturating_sub(acknowledged));
            near.set_receive_window(Some(open));
        }
    }
    world.flows[number].windows = Some(windows);
}

/// The client is connected: so is the server to be.
fn connect_onward(world: &mut World, number: usize) {
    let open = endpoint(world, number, Leg::Client)
        .is_some_and(|client| client.stage() != Stage::SynReceived);
    if open && let Some(onward) = world.flows[number].onward.take() {
        let (leg, server) = *onward;
        let client = world.flows[number].legs.client;
        let Some((host, ue)) =
            client.and_then(|id| world.sockets[id].as_ref()).map(|leg| (leg.host, leg.ue))
        else {
            return;
        };
        world.flows[number].link = Some(world.client_link(host, ue));
        let next = match server.1 {
            User::Relay(next) => Some(next),
            User::Application(_) => None,
        };
        let (socket, peer) = world.connect(ue, (leg, User::Relay(number)), server);
        world.flows[number].legs.server = Some(socket);
        // Another relay, nearer the server.
        if let Some(next) = next {
            world.flows[next].set_client_leg(peer);
        }
    }
}

/// A flow's endpoints. Nothing is held between them but a number of bytes.
struct Endpoints<'a> {
    world: &'a mut World,
    number: usize,
    legs: PerLeg<Option<SocketId>>,
    first: FirstWindows,
    link: Option<Arc<ClientLink>>,
}

impl Endpoints<'_> {
    fn endpoint(&mut self, leg: Leg) -> Option<&mut Endpoint> {
        self.world.sockets[self.legs[leg]?].as_mut().and_then(Socket::endpoint_mut)
    }

    /// A leg is written to: with the first bytes it is settled how many packets of them go out at once.
    fn begin(&mut self, leg: Leg) {
        match leg {
            Leg::Client => self.begin_client_leg(),
            Leg::Server => _ = self.begin_server_leg(),
        }
    }

    fn begin_server_leg(&mut self) -> Option<()> {
        let (now, number) = (self.world.now, self.number);
        if !self.world.flows[number].remembers_server {
            return None;
        }
        let leg = self.endpoint(Leg::Server).filter(|leg| leg.written() == 0)?;
        let (handshake, kernel) = (leg.info().rtt, leg.cwnd());
        let server = acquaintance(self.world, self.legs.server?)?;
        let packets = self.world.server_paths.first(&server, now, handshake, kernel)?;
        self.endpoint(Leg::Server)?.set_first_window(packets);
        self.world.flows[number].server_window = Some(packets);
        Some(())
    }

    fn begin_client_leg(&mut self) {
        let (now, first) = (self.world.now, self.first);
        let Some(link) = self.link.clone() else { return };
        if let Some(client) = self.endpoint(Leg::Client).filter(|client| client.written() == 0) {
            link.handshake(now, client.info().rtt);
            if let Some(packets) = first.first(&link, now, client.cwnd()) {
                client.set_first_window(packets);
            }
        }
    }

    /// What has become of a leg, if there is one. To look again costs nothing here, so it says all that may be so.
    fn readiness(&mut self, leg: Leg) -> Option<Readiness> {
        let stage = self.endpoint(leg)?.stage();
        let failed = matches!(stage, Stage::Failed(_));
        Some(Readiness {
            readable: true,
            writable: stage == Stage::Established,
            hung_up: failed,
            failed,
            ..Readiness::default()
        })
    }
}

impl Legs for Endpoints<'_> {
    fn read(&mut self, from: Leg, _: CopyMode, most: u64) -> Read {
        let now = self.world.now;
        let Some(source) = self.endpoint(from) else { return Read::Dry };
        match source.read(now, most) {
            0 if source.is_finished() => Read::End,
            0 => Read::Dry,
            bytes => Read::Some { bytes, dry: false },
        }
    }

    fn write(&mut self, to: Leg, held: u64, _: bool) -> Write {
        self.begin(to);
        let bytes = self.endpoint(to).map_or(0, |sink| sink.write(held));
        if let (Leg::Client, Some(link)) = (to, &self.link) {
            link.write(self.world.now, bytes);
        }
        Write::Some { bytes, full: bytes < held }
    }

    fn release_if_empty(&mut self, _: Leg) {}

    fn discard(&mut self, _: Leg) {}

    /// It has ended: an [`Endpoint`] keeps no acknowledgement back.
    fn end_handshake(&mut self, _: Leg) {}

    fn shutdown(&mut self, to: Leg) -> Result<(), Failure> {
        let Some(id) = self.legs[to] else { return Err(Failure::Other) };
        // What was written is on its way before the FIN is asked for.
        self.world.flush(id);
        if let Some(endpoint) = self.endpoint(to) {
            endpoint.close();
        }
        Ok(())
    }

    fn take_error(&mut self, leg: Leg) -> Option<Failure> {
        let is_failed = matches!(self.endpoint(leg)?.stage(), Stage::Failed(_));
        is_failed.then_some(Failure::Other)
    }

    fn unread(&mut self, leg: Leg) -> u64 {
        self.endpoint(leg).map_or(0, |endpoint| endpoint.readable())
    }

    fn unacknowledged(&mut self, leg: Leg) -> Option<u64> {
        let endpoint = self.endpoint(leg)?;
        if endpoint.is_drained() {
            return Some(0);
        }
        Some((endpoint.written() - endpoint.acknowledged()).max(1))
    }

    fn info(&mut self, leg: Leg) -> Option<LegInfo> {
        let info = self.endpoint(leg)?.info();
        Some(LegInfo { acknowledged: info.bytes_acked, round_trip: info.rtt.max(info.rcv_rtt) })
    }

    fn set_notsent_lowat(&mut self, to: Leg, most: Option<u64>) {
        let most = most.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
        if let Some(endpoint) = self.endpoint(to) {
            endpoint.set_notsent_lowat(most);
        }
    }
}

fn endpoint(world: &mut World, number: usize, leg: Leg) -> Option<&mut Endpoint> {
    let id = world.flows[number].legs[leg]?;
    world.sockets[id].as_mut().and_then(Socket::endpoint_mut)
}
