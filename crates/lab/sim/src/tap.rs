//! Packets as those see them who look at a host's interfaces.

use std::net::SocketAddrV4;

use midspan_path::{Packet, Way};
use midspan_units::Time;

use crate::headers;
use crate::host::{ENB, Host, MEC, SERVER, UE};
use crate::packet::Datagram;

/// An interface of a host. Base stations have some where there are cells only; those of all cells are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The UE's, or those of all UEs.
    Ue,
    /// The base station's, towards UEs.
    EnbRadio,
    /// The base station's, towards the MEC.
    EnbAccess,
    /// The MEC's, towards the UE.
    MecAccess,
    /// The MEC's, towards the server.
    MecWide,
    /// The server's.
    Server,
}

impl Place {
    /// Those of two links in a row, from the UE's on.
    pub const ROW: [Place; 4] = [Place::Ue, Place::MecAccess, Place::MecWide, Place::Server];
    /// Those of a mobile network.
    pub const CELLS: [Place; 6] = [
        Place::Ue,
        Place::EnbRadio,
        Place::EnbAccess,
        Place::MecAccess,
        Place::MecWide,
        Place::Server,
    ];

    /// The host's name, and that of the link where it has two.
    pub fn name(self) -> &'static str {
        match self {
            Place::Ue => "ue",
            Place::EnbRadio => "enb-radio",
            Place::EnbAccess => "enb-access",
            Place::MecAccess => "mec-access",
            Place::MecWide => "mec-wide",
            Place::Server => "server",
        }
    }

    /// Where a host sends up or down, and has what comes from there.
    fn of(host: Host, towards: Way) -> Place {
        match (host, towards) {
            (UE, _) => Place::Ue,
            (ENB, Way::Down) => Place::EnbRadio,
            (ENB, Way::Up) => Place::EnbAccess,
            (MEC, Way::Down) => Place::MecAccess,
            (MEC, Way::Up) => Place::MecWide,
            _ => Place::Server,
        }
    }
}

/// A packet that a host sent or received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sight<'a> {
    /// Where.
    pub place: Place,
    /// When, in the run's time.
    pub at: Time,
    /// How long the packet is, its IP header included.
    pub wire_bytes: u32,
    /// Its IPv4 and TCP headers. Checksums are those of a payload of zeros. Addresses are the live lab's; legs of a flow
    /// that is split have the same, as those of the transparent relay have.
    pub headers: &'a [u8],
}

/// Is told of packets, each twice for every link: where it came in and, unless it is lost, where it went out. Their times
/// do not decrease.
pub type Tap = Box<dyn FnMut(&Sight<'_>)>;

/// A tap, and what it takes to make packets of datagrams.
pub(crate) struct Tapped {
    tap: Tap,
    /// Of the connections opened so far, in their order.
    connections: Vec<Connection>,
}

/// A connection between two sockets.
#[derive(Debug, Clone, Copy)]
struct Connection {
    /// The socket that was connected to; it is farther from the UE.
    acceptor: u32,
    client: SocketAddrV4,
    server: SocketAddrV4,
}

impl Tapped {
    pub(crate) fn new(tap: Tap) -> Tapped {
        Tapped { tap, connections: Vec::new() }
    }

    /// The next connection is between `hosts`, for a UE; `acceptor` is the socket that it leads to. A leg of a relay's flow
    /// goes `on` from the connection of that number; one that is `split` leads to a relay.
    pub(crate) fn connect(
        &mut self,
        ue: u32,
        hosts: [Host; 2],
        acceptor: u32,
        on: Option<u32>,
        split: bool,
    ) {
        let before = on.and_then(|number| self.connection(number).copied());
        let connection = before.unwrap_or_else(|| {
            let number = self.connections.len() as u32;
            let [client, server] = hosts;
            let server = if split { SERVER } else { server };
            let (client, server) = headers::ends(number, (client, ue), server);
            Connection { acceptor, client, server }
        });
        self.connections.push(Connection { acceptor, ..connection });
    }

    /// A host sends a packet.
    pub(crate) fn sent(&mut self, now: Time, host: Host, datagram: &Datagram) {
        let Some(connection) = self.connection(datagram.connection).copied() else { return };
        let way = connection.way(datagram);
        self.tell(now, Place::of(host, way), connection, datagram);
    }

    /// A packet has come to a host.
    pub(crate) fn came(&mut self, now: Time, host: Host, datagram: &Datagram) {
        let Some(connection) = self.connection(datagram.connection).copied() else { return };
        let from = match connection.way(datagram) {
            Way::Up => Way::Down,
            Way::Down => Way::Up,
        };
        self.tell(now, Place::of(host, from), connection, datagram);
    }

    /// Connections are counted from 1.
    fn connection(&self, number: u32) -> Option<&Connection> {
        self.connections.get((number as usize).checked_sub(1)?)
    }

    fn tell(&mut self, at: Time, place: Place, connection: Connection, datagram: &Datagram) {
        let Connection { client, server, .. } = connection;
        let (from, to) = match connection.way(datagram) {
            Way::Up => (client, server),
            Way::Down => (server, client),
        };
        let headers = &headers::of(&datagram.segment, datagram.ecn(), from, to);
        let wire_bytes = datagram.segment.wire_bytes();
        (self.tap)(&Sight { place, at, wire_bytes, headers });
    }
}

impl Connection {
    fn way(&self, datagram: &Datagram) -> Way {
        if datagram.to == self.acceptor { Way::Up } else { Way::Down }
    }
}
