//! Proof that what is steered to the relay arrives: a connection of the relay's own.
//!
//! Redirected packets take the way of packets for this host, where its firewall, `rp_filter` or
//! routing may eat them. A relay that steered without having seen that they do not would take its
//! clients' network down.

use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use midspan_steer::Steering;
use midspan_sys::netlink::{Netlink, Route, RouteTcp};
use midspan_sys::netns::Netns;
use midspan_sys::sysctl;
use socket2::{Domain, Socket, Type};

use super::InterceptionError;
use crate::config::{Config, Marks};

/// One end of a link to a namespace of the proof's own, for as long as it takes.
const LINK: &str = "midspan-proof";
/// Addresses that no network routes: they are set apart for benchmarks (RFC 2544, RFC 5180).
const CLIENTS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 19, 77, 2)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 77, 0, 0, 0, 2)),
];
const GATEWAYS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 19, 77, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 77, 0, 0, 0, 1)),
];
const SERVERS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(198, 18, 77, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 2, 0, 78, 0, 0, 0, 1)),
];
/// What never answers, whoever has it: discard (RFC 863).
const PORT: u16 = 9;

/// How long an attempt may take, and all of them. The link comes up a moment after it was set up.
const ATTEMPT: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(2);

/// Whom the proof's connections come from.
pub(crate) fn clients() -> Vec<IpNet> {
    CLIENTS.map(IpNet::from).into()
}

/// Whether a connection is one of these.
pub(crate) fn is_probe(client: IpAddr, server: SocketAddr) -> bool {
    CLIENTS.contains(&client) && SERVERS.contains(&server.ip()) && server.port() == PORT
}

/// Connects through the steering program to the relay, which must be running and reset what
/// [`is_probe`]; for each IP version that its clients have.
pub(super) fn prove(steering: &mut Steering, config: &Config) -> Result<(), InterceptionError> {
    let (clients, mark) = (&config.clients, Marks::of(config).client);
    let failed = |error: io::Error| {
        InterceptionError::Unproven(format!(
            "it cannot be proven that what is steered to the relay arrives: {error} (`prove = \
             false` goes without)"
        ))
    };
    let link = Link::new().map_err(failed)?;
    steering.attach(link.index, LINK, false)?;
    for version in [0, 1] {
        if !clients.iter().any(|prefix| prefix.addr().is_ipv4() == CLIENTS[version].is_ipv4()) {
            continue;
        }
        steering.set_probe(CLIENTS[version], true)?;
        let arrived = link.far.run(|| arrives(version)).map_err(failed)?;
        steering.set_probe(CLIENTS[version], false)?;
        if let Err(error) = arrived {
            let name = if version == 0 { "IPv4" } else { "IPv6" };
            return Err(InterceptionError::Unproven(format!(
                "what is steered to the relay over {name} does not arrive ({error}): look for a \
                 firewall rule in the INPUT path (let in what has the mark {mark:#x}), \
                 rp_filter, or a routing rule before that of the relay's mark"
            )));
        }
    }
    Ok(())
}

/// Connects, until the relay has taken the connection, and reset it.
fn arrives(version: usize) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let error = match attempt(version) {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if Instant::now() >= deadline {
            return Err(error);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn attempt(version: usize) -> io::Result<()> {
    let server = SocketAddr::new(SERVERS[version], PORT);
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
    socket.set_linger(Some(Duration::ZERO))?;
    match socket.connect_timeout(&server.into(), ATTEMPT) {
        // Nobody else is there to refuse: it was the relay, and so fast that this was not yet told.
        Err(error) if is_reset(&error) => return Ok(()),
        result => result?,
    }
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(ATTEMPT))?;
    match stream.read(&mut [0]) {
        Err(error) if is_reset(&error) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::other("somebody else answered")),
    }
}

fn is_reset(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused)
}

/// Whether this namespace has IPv6 at all, and not switched off.
fn has_ipv6() -> bool {
    let off = |scope| sysctl::get(&format!("net.ipv6.conf.{scope}.disable_ipv6"));
    [off("all"), off("default")].iter().all(|off| off.as_deref().is_ok_and(|off| off == "0"))
}

/// A link to a namespace in which the proof's client stands. It goes with this.
struct Link {
    index: u32,
    far: Netns,
}

impl Link {
    fn new() -> io::Result<Link> {
        let far = Netns::create()?;
        let mut netlink = Netlink::open()?;
        netlink.add_veth(LINK, "proof", far.as_fd())?;
        let link = Link { index: netlink.index(LINK)?, far };
        netlink.set_up(link.index)?;
        for (gateway, client) in GATEWAYS.into_iter().zip(CLIENTS) {
            let prefix = if gateway.is_ipv4() { 32 } else { 128 };
            // Where IPv6 is switched off there are no clients of it either.
            if gateway.is_ipv6() && !has_ipv6() {
                continue;
            }
            netlink.add_address(link.index, gateway, prefix)?;
            netlink.add_route(&route(client, prefix, link.index, None))?;
        }
        link.far.run(|| link.set_up_far())??;
        Ok(link)
    }

    fn set_up_far(&self) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        let index = netlink.index("proof")?;
        netlink.set_up(index)?;
        for (gateway, client) in GATEWAYS.into_iter().zip(CLIENTS) {
            if gateway.is_ipv6() && !has_ipv6() {
                continue;
            }
            let (prefix, any) = match gateway {
                IpAddr::V4(_) => (32, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
                IpAddr::V6(_) => (128, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
            };
            netlink.add_address(index, client, prefix)?;
            netlink.add_route(&route(gateway, prefix, index, None))?;
            netlink.add_route(&route(any, 0, index, Some(gateway)))?;
        }
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Its namespace would take it along, a moment later.
        if let Err(error) = Netlink::open().and_then(|mut netlink| netlink.remove(self.index)) {
            tracing::warn!(%error, "the proof's link could not be removed");
        }
    }
}

fn route(destination: IpAddr, prefix: u8, index: u32, gateway: Option<IpAddr>) -> Route<'static> {
    Route { destination, prefix, index, gateway, tcp: RouteTcp::default() }
}
