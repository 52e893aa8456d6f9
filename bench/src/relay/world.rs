//! Client, box and server: three namespaces joined by veth, which carry as much as the processor can.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use midspan_sys::netlink::{Family, Netlink, Route, RouteTcp};
use midspan_sys::netns::Netns;
use midspan_sys::process;
use midspan_sys::sysctl;

/// The three of them.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) client: Netns,
    pub(super) proxy: Netns,
    pub(super) server: Netns,
}

/// Where the client's network begins.
pub(super) const CLIENTS: &str = "10.81.0.0/24";

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 81, 0, 2);
const PROXY: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 81, 0, 1), Ipv4Addr::new(10, 82, 0, 1)];
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 82, 0, 2);
const PORT: u16 = 5001;

/// Where the service is.
pub(super) fn service() -> SocketAddr {
    (SERVER, PORT).into()
}

/// Where a proxy that is connected to listens.
pub(super) fn at_proxy() -> SocketAddr {
    (PROXY[0], PORT).into()
}

impl World {
    pub(super) fn build() -> io::Result<World> {
        let world =
            World { client: Netns::create()?, proxy: Netns::create()?, server: Netns::create()? };
        for netns in [&world.client, &world.proxy, &world.server] {
            netns.run(tune)??;
        }
        world.proxy.run(|| {
            sysctl::set("net.ipv4.ip_forward", "1")?;
            let mut netlink = Netlink::open()?;
            netlink.add_veth("access", "uplink", world.client.as_fd())?;
            netlink.add_veth("wide", "downlink", world.server.as_fd())?;
            join(&mut netlink, "access", PROXY[0])?;
            join(&mut netlink, "wide", PROXY[1])
        })??;
        for (netns, name, own, gateway) in [
            (&world.client, "uplink", CLIENT, PROXY[0]),
            (&world.server, "downlink", SERVER, PROXY[1]),
        ] {
            netns.run(|| {
                let mut netlink = Netlink::open()?;
                join(&mut netlink, name, own)?;
                let index = netlink.index(name)?;
                netlink.add_route(&route(Ipv4Addr::UNSPECIFIED, 0, index, Some(gateway)))
            })??;
        }
        Ok(world)
    }

    /// Has the box take packets that are for sockets with addresses of others, and give new connections of
    /// clients' to the proxy that listens: the rules that HAProxy's and nginx's manuals ask for, as few as do.
    pub(super) fn deliver_to_transparent_sockets(&self) -> io::Result<()> {
        let port = PORT;
        let table = format!(
            "table inet bench {{ chain prerouting {{ type filter hook prerouting priority mangle; \
             tcp flags & (fin | syn | rst | ack) == syn ip saddr {CLIENTS} tcp dport {port} \
             fib daddr type != local tproxy ip to {} meta mark set {MARK} accept; \
             meta l4proto tcp socket transparent 1 meta mark set {MARK} accept; }}; }}",
            at_proxy(),
        );
        self.proxy.run(|| Netlink::open()?.add_local_delivery(Family::Inet, MARK, &[MARK]))??;
        let mut nft = process::command("nft");
        let status = self.proxy.apply(nft.arg(table)).status()?;
        match status.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("nft ended with {status}"))),
        }
    }
}

/// Of packets that are for a transparent socket.
const MARK: u32 = 1;

/// Ports for many short connections, and windows that do not limit.
fn tune() -> io::Result<()> {
    for (name, value) in [
        ("net.ipv4.ip_local_port_range", "1024 65535"),
        ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
        ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
        ("net.ipv4.tcp_no_metrics_save", "1"),
        ("net.core.somaxconn", "4096"),
    ] {
        sysctl::set(name, value)?;
    }
    Ok(())
}

fn join(netlink: &mut Netlink, name: &str, own: Ipv4Addr) -> io::Result<()> {
    let index = netlink.index(name)?;
    netlink.set_up(index)?;
    netlink.add_address(index, own.into(), 24)?;
    let [a, b, c, _] = own.octets();
    netlink.add_route(&route(Ipv4Addr::new(a, b, c, 0), 24, index, None))
}

/// CUBIC, whatever the machine's default is.
fn route(
    destination: Ipv4Addr,
    prefix: u8,
    index: u32,
    gateway: Option<Ipv4Addr>,
) -> Route<'static> {
    Route {
        destination: destination.into(),
        prefix,
        index,
        gateway: gateway.map(Into::into),
        tcp: RouteTcp { congestion_control: Some("cubic"), ..RouteTcp::default() },
    }
}

/// Whether a socket listens at this port there.
pub(super) fn is_listening(netns: &Netns, port: u16) -> io::Result<bool> {
    let tables = netns.run(|| {
        ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/thread-self/net/{name}")))
    })?;
    let port = format!(":{port:04X}");
    Ok(tables.iter().flatten().flat_map(|table| table.lines().skip(1)).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1).is_some_and(|local| local.ends_with(&port)) && fields.get(3) == Some(&"0A")
    }))
}
