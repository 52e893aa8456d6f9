//! Hosts in a row with an emulated link between each two; those in the middle are routers.

use std::io;
use std::net::Ipv4Addr;

use anyhow::Result;
use midspan_emu::{Backend, Emulator, LinkConfig, PortConfig, WirePacket};
use midspan_path::{Link, LinkSpec, Traces};
use midspan_sys::netlink::{Netlink, Route, RouteTcp};
use midspan_sys::netns::Netns;
use midspan_sys::sysctl;

const MTU: u32 = 1500;

/// What a chain consists of, left to right.
pub(crate) struct Chain {
    pub(crate) links: Vec<Emulator>,
    hosts: Vec<Netns>,
}

impl Chain {
    /// Builds one or two links and gives hosts addresses and routes.
    pub(crate) fn build(backend: Backend, specs: &[LinkSpec], seed: u64) -> Result<Chain> {
        let hosts: Vec<Netns> =
            (0..=specs.len()).map(|_| Netns::create()).collect::<io::Result<_>>()?;
        for host in &hosts {
            host.run(tune)??;
        }
        let prepare = |index: usize| -> Result<(LinkConfig, Link<WirePacket>)> {
            let port = |host: &Netns| PortConfig {
                netns: host.clone(),
                interface: interface(index),
                mtu: MTU,
            };
            let config = LinkConfig {
                name: interface(index),
                backend,
                left: port(&hosts[index]),
                right: port(&hosts[index + 1]),
                shortest_rtt: midspan_path::base_rtt(specs),
                tap: None,
            };
            Ok((config, Link::new(&specs[index], &Traces::new(), seed + index as u64)?))
        };
        let start = |index| {
            let (config, link) = prepare(index)?;
            Ok(midspan_emu::start(config, link)?)
        };
        let links = (0..specs.len()).map(start).collect::<Result<_>>()?;
        for index in 0..specs.len() {
            join(&hosts[index], index, 1)?;
            join(&hosts[index + 1], index, 2)?;
        }
        if specs.len() > 1 {
            lead(&hosts[0], 0, 1, address(0, 2))?;
            lead(&hosts[2], 1, 0, address(1, 1))?;
        }
        Ok(Chain { links, hosts })
    }

    pub(crate) fn first(&self) -> &Netns {
        &self.hosts[0]
    }

    pub(crate) fn last(&self) -> &Netns {
        &self.hosts[self.hosts.len() - 1]
    }

    /// The last host's address.
    pub(crate) fn address(&self) -> Ipv4Addr {
        address(self.links.len() - 1, 2)
    }
}

/// Windows large enough for every case, nothing learnt from run to run, and forwarding.
fn tune() -> io::Result<()> {
    sysctl::set("net.ipv4.tcp_rmem", "4096 131072 67108864")?;
    sysctl::set("net.ipv4.tcp_wmem", "4096 16384 67108864")?;
    sysctl::set("net.ipv4.tcp_no_metrics_save", "1")?;
    sysctl::set("net.ipv4.ip_forward", "1")
}

fn interface(link: usize) -> String {
    format!("link{link}")
}

fn address(link: usize, host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 87, link as u8, host)
}

/// Gives a host its address on a link, and the way to its neighbour.
fn join(host: &Netns, link: usize, number: u8) -> io::Result<()> {
    host.run(|| {
        let mut netlink = Netlink::open()?;
        let index = netlink.index(&interface(link))?;
        netlink.add_address(index, address(link, number).into(), 30)?;
        netlink.add_route(&route(link, index, None))
    })?
}

/// Gives a host the way to a link that it is not on.
fn lead(host: &Netns, own: usize, far: usize, gateway: Ipv4Addr) -> io::Result<()> {
    host.run(|| {
        let mut netlink = Netlink::open()?;
        let index = netlink.index(&interface(own))?;
        netlink.add_route(&route(far, index, Some(gateway)))
    })?
}

/// The way to a link's network. CUBIC, whatever the machine's default is.
fn route(link: usize, index: u32, gateway: Option<Ipv4Addr>) -> Route<'static> {
    Route {
        destination: address(link, 0).into(),
        prefix: 30,
        index,
        gateway: gateway.map(Into::into),
        tcp: RouteTcp { congestion_control: Some("cubic"), ..RouteTcp::default() },
    }
}
