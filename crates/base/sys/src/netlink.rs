//! Interfaces, addresses, routes and rules of the calling thread's network namespace, by routing
//! netlink.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use ipnet::IpNet;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkBuffer,
    NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, Stats64,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// A routing netlink socket. It acts on the namespace in which it was opened.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

/// An interface of the namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// What the kernel calls it.
    pub index: u32,
    /// What people call it.
    pub name: String,
    /// Whether it leads back to this host.
    pub is_loopback: bool,
}

/// A way to `destination/prefix`.
#[derive(Debug, Clone, Copy)]
pub struct Route<'a> {
    /// Where it leads.
    pub destination: IpAddr,
    /// How much of `destination` counts, in bits.
    pub prefix: u8,
    /// The interface that it goes out of.
    pub index: u32,
    /// The next router; none if the destination is on the link itself.
    pub gateway: Option<IpAddr>,
    /// How TCP is to use it.
    pub tcp: RouteTcp<'a>,
}

/// How TCP connections use a way that they take. Works in any namespace, where the defaults (sysctls) are
/// restricted.
#[derive(Debug, Clone, Copy, Default)]
pub struct RouteTcp<'a> {
    /// Their congestion control, unless they choose for themselves once connected. None leaves the default.
    pub congestion_control: Option<&'a str>,
    /// They acknowledge each packet that comes at once.
    pub quickack: bool,
    /// Their initial window, in packets. None leaves Linux's 10 (RFC 6928).
    pub initcwnd: Option<u32>,
}

impl RouteTcp<'_> {
    fn metrics(&self) -> Vec<RouteMetric> {
        let control = self.congestion_control.map(|name| RouteMetric::CcAlgo(name.to_owned()));
        let quickack = self.quickack.then_some(RouteMetric::QuickAck(1));
        let initcwnd = self.initcwnd.map(RouteMetric::InitCwnd);
        control.into_iter().chain(quickack).chain(initcwnd).collect()
    }
}

impl Netlink {
    /// Opens a socket in the calling thread's namespace.
    ///
    /// # Errors
    /// Whatever the kernel says of the socket.
    pub fn open() -> io::Result<Netlink> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// The index of the interface called `name`.
    ///
    /// # Errors
    /// `ENODEV` if there is none.
    pub fn index(&mut self, name: &str) -> io::Result<u32> {
        self.link(name).map(|link| link.header.index)
    }

    /// All interfaces.
    ///
    /// # Errors
    /// Whatever the kernel says of the request.
    pub fn interfaces(&mut self) -> io::Result<Vec<Interface>> {
        let mut found = Vec::new();
        self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()), |message| match message {
            RouteNetlinkMessage::NewLink(link) => {
                found.push(interface(link));
                Ok(())
            }
            other => Err(other),
        })?;
        Ok(found)
    }

    /// Destinations whose route names a congestion control (`congctl`), with its name: it comes before what a listener has
    /// named. An unspecified address is the default route.
    ///
    /// # Errors
    /// Whatever the kernel says of the request.
    pub fn routes_with_congestion_control(&mut self) -> io::Result<Vec<(IpNet, String)>> {
        let mut found = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RouteMessage::default();
            message.header.address_family = family;
            self.dump(RouteNetlinkMessage::GetRoute(message), |message| match message {
                RouteNetlinkMessage::NewRoute(route) => {
                    found.extend(named_control(&route));
                    Ok(())
                }
                other => Err(other),
            })?;
        }
        Ok(found)
    }

    /// Asks for all there is of something, and gives each to `take`, which gives back what it does not know.
    fn dump(
        &mut self,
        what: RouteNetlinkMessage,
        mut take: impl FnMut(RouteNetlinkMessage) -> Result<(), RouteNetlinkMessage>,
    ) -> io::Result<()> {
        self.send(what, NLM_F_REQUEST | NLM_F_DUMP)?;
        loop {
            // A datagram holds several messages.
            let (buffer, _) = self.socket.recv_from_full()?;
            let mut rest = &buffer[..];
            while !rest.is_empty() {
                let length = NetlinkBuffer::new_checked(&rest).map_err(io::Error::other)?.length();
                let message = NetlinkMessage::deserialize(rest).map_err(io::Error::other)?;
                let unexpected = |what: &dyn std::fmt::Debug| {
                    io::Error::other(format!("unexpected netlink answer {what:?}"))
                };
                match message.payload {
                    NetlinkPayload::InnerMessage(message) => {
                        take(message).map_err(|other| unexpected(&other))?;
                    }
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    other => return Err(unexpected(&other)),
                }
                // Messages begin at multiples of four.
                rest = rest.get((length as usize).next_multiple_of(4)..).unwrap_or_default();
            }
        }
    }

    /// Removes an interface; a veth goes with its peer.
    ///
    /// # Errors
    /// `ENODEV`, `EPERM`.
    pub fn remove(&mut self, index: u32) -> io::Result<()> {
        self.request(RouteNetlinkMessage::DelLink(link_by_index(index)), 0)
    }

    /// The kernel's packet counters of the interface called `name`.
    ///
    /// # Errors
    /// `ENODEV` if there is none.
    pub fn statistics(&mut self, name: &str) -> io::Result<Stats64> {
        let link = self.link(name)?;
        let stats = link.attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(stats),
            _ => None,
        });
        stats.ok_or_else(|| io::Error::other(format!("interface {name} has no counters")))
    }

    /// Creates a veth pair: `name` here and `peer` in the namespace `peer_netns`.
    ///
    /// # Errors
    /// `EEXIST` if a name is taken, `EPERM` without CAP_NET_ADMIN.
    pub fn add_veth(
        &mut self,
        name: &str,
        peer: &str,
        peer_netns: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let mut other = LinkMessage::default();
        other.attributes = vec![
            LinkAttribute::IfName(peer.into()),
            LinkAttribute::NetNsFd(peer_netns.as_raw_fd()),
        ];
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.into()),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(other))),
            ]),
        ];
        self.create(RouteNetlinkMessage::NewLink(message))
    }

    /// Brings an interface up.
    ///
    /// # Errors
    /// `ENODEV`, `EPERM`.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        let mut message = link_by_index(index);
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.set_link(message)
    }

    /// Sets an interface's largest packet, in bytes of IP.
    ///
    /// # Errors
    /// `EINVAL` if the interface cannot carry it.
    pub fn set_mtu(&mut self, index: u32, mtu: u32) -> io::Result<()> {
        let mut message = link_by_index(index);
        message.attributes = vec![LinkAttribute::Mtu(mtu)];
        self.set_link(message)
    }

    /// Sets how many packets an interface's transmit queue holds.
    ///
    /// # Errors
    /// `ENODEV`, `EPERM`.
    pub fn set_queue_length(&mut self, index: u32, packets: u32) -> io::Result<()> {
        let mut message = link_by_index(index);
        message.attributes = vec![LinkAttribute::TxQueueLen(packets)];
        self.set_link(message)
    }

    /// Turns neighbour resolution off, for links on which there is only one neighbour.
    ///
    /// # Errors
    /// `ENODEV`, `EPERM`.
    pub fn set_no_arp(&mut self, index: u32) -> io::Result<()> {
        let mut message = link_by_index(index);
        message.header.flags = LinkFlags::Noarp;
        message.header.change_mask = LinkFlags::Noarp;
        self.set_link(message)
    }

    /// Gives an interface an address, and no route that would follow from it. IPv6 addresses are
    /// usable at once (no duplicate detection).
    ///
    /// # Errors
    /// `EEXIST` if it has that address.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix;
        message.header.index = index;
        let flags = AddressFlags::Noprefixroute | AddressFlags::Nodad;
        message.attributes = vec![
            AddressAttribute::Local(address),
            AddressAttribute::Address(address),
            AddressAttribute::Flags(flags),
        ];
        self.create(RouteNetlinkMessage::NewAddress(message))
    }

    /// Adds a route to the main table.
    ///
    /// # Errors
    /// `EEXIST`; `ENETUNREACH` if the gateway is not on the interface; `EINVAL` if there is no such
    /// congestion control.
    pub fn add_route(&mut self, route: &Route<'_>) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(route.destination);
        message.header.destination_prefix_length = route.prefix;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = match route.gateway {
            None if route.destination.is_ipv4() => RouteScope::Link,
            _ => RouteScope::Universe,
        };
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![
            RouteAttribute::Destination(route_address(route.destination)),
            RouteAttribute::Oif(route.index),
        ];
        if let Some(gateway) = route.gateway {
            message.attributes.push(RouteAttribute::Gateway(route_address(gateway)));
        }
        let metrics = route.tcp.metrics();
        if !metrics.is_empty() {
            message.attributes.push(RouteAttribute::Metrics(metrics));
        }
        self.create(RouteNetlinkMessage::NewRoute(message))
    }

    /// Makes packets with one of these firewall marks be delivered on this host whatever their
    /// destination: a rule for each mark that leads to table `table`, with one "local default" route. Doing it
    /// twice leaves one of each.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_ADMIN; `EAFNOSUPPORT` where the family is disabled.
    pub fn add_local_delivery(
        &mut self,
        family: AddressFamily,
        table: u32,
        marks: &[u32],
    ) -> io::Result<()> {
        let lo = self.index("lo")?;
        let route = RouteNetlinkMessage::NewRoute(local_default(family, table, lo));
        self.request(route, NLM_F_CREATE | NLM_F_REPLACE)?;
        for &mark in marks {
            // Rules have no "replace": an equal one is refused as existing, which is as good.
            match self.create(RouteNetlinkMessage::NewRule(mark_rule(family, mark, table))) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                result => result?,
            }
        }
        Ok(())
    }

    /// Takes back what [`Netlink::add_local_delivery`] did. Nothing to take back is no error.
    ///
    /// # Errors
    /// `EPERM` without CAP_NET_ADMIN.
    pub fn remove_local_delivery(
        &mut self,
        family: AddressFamily,
        table: u32,
        marks: &[u32],
    ) -> io::Result<()> {
        let lo = self.index("lo")?;
        let rule = |&mark| RouteNetlinkMessage::DelRule(mark_rule(family, mark, table));
        let route = RouteNetlinkMessage::DelRoute(local_default(family, table, lo));
        for message in marks.iter().map(rule).chain([route]) {
            match self.request(message, 0) {
                Err(error) if is_absent(&error) => {}
                result => result?,
            }
        }
        Ok(())
    }

    fn link(&mut self, name: &str) -> io::Result<LinkMessage> {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName(name.into())];
        self.send(RouteNetlinkMessage::GetLink(message), NLM_F_REQUEST)?;
        match self.receive()?.payload {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => Ok(link),
            NetlinkPayload::Error(error) => {
                let error = error.to_io();
                Err(io::Error::new(error.kind(), format!("interface {name}: {error}")))
            }
            other => Err(io::Error::other(format!("unexpected netlink answer {other:?}"))),
        }
    }

    fn set_link(&mut self, message: LinkMessage) -> io::Result<()> {
        self.request(RouteNetlinkMessage::SetLink(message), 0)
    }

    fn create(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        self.request(message, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Sends a request and waits until the kernel has carried it out.
    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.send(message, NLM_F_REQUEST | NLM_F_ACK | flags)?;
        match self.receive()?.payload {
            NetlinkPayload::Error(answer) if answer.code.is_none() => Ok(()),
            NetlinkPayload::Error(error) => Err(error.to_io()),
            other => Err(io::Error::other(format!("unexpected netlink answer {other:?}"))),
        }
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
        packet.finalize();
        let mut buffer = vec![0; packet.buffer_len()];
        packet.serialize(&mut buffer);
        self.socket.send(&buffer, 0)?;
        Ok(())
    }

    fn receive(&mut self) -> io::Result<NetlinkMessage<RouteNetlinkMessage>> {
        let (buffer, _) = self.socket.recv_from_full()?;
        NetlinkMessage::deserialize(&buffer).map_err(io::Error::other)
    }
}

fn interface(link: LinkMessage) -> Interface {
    let name = link.attributes.into_iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name),
        _ => None,
    });
    Interface {
        index: link.header.index,
        name: name.unwrap_or_default(),
        is_loopback: link.header.flags.contains(LinkFlags::Loopback),
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

fn link_by_index(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn local_default(family: AddressFamily, table: u32, lo: u32) -> RouteMessage {
    let everything = match family {
        AddressFamily::Inet6 => RouteAddress::Inet6(Ipv6Addr::UNSPECIFIED),
        _ => RouteAddress::Inet(Ipv4Addr::UNSPECIFIED),
    };
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Host;
    message.header.kind = RouteType::Local;
    message.attributes = vec![
        RouteAttribute::Destination(everything),
        RouteAttribute::Oif(lo),
        RouteAttribute::Table(table),
    ];
    message
}

fn named_control(route: &RouteMessage) -> Option<(IpNet, String)> {
    let metrics = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Metrics(metrics) => Some(metrics),
        _ => None,
    })?;
    let name = metrics.iter().find_map(|metric| match metric {
        RouteMetric::CcAlgo(name) => Some(name.clone()),
        _ => None,
    })?;
    let destination = route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(RouteAddress::Inet(v4)) => Some(IpAddr::from(*v4)),
        RouteAttribute::Destination(RouteAddress::Inet6(v6)) => Some(IpAddr::from(*v6)),
        _ => None,
    });
    let everything: IpAddr = match route.header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    };
    let length = route.header.destination_prefix_length;
    Some((IpNet::new(destination.unwrap_or(everything), length).ok()?, name))
}

fn mark_rule(family: AddressFamily, mark: u32, table: u32) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family;
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::FwMark(mark),
        RuleAttribute::FwMask(u32::MAX),
        RuleAttribute::Table(table),
        RuleAttribute::Priority(RULE_PRIORITY),
        RuleAttribute::Protocol(RouteProtocol::Static),
    ];
    message
}

/// Before the main table (32766), after the local one (0), and fixed, so that a rule left by a
/// killed process is found to exist rather than added again at another priority.
const RULE_PRIORITY: u32 = 8742;

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn route_address(address: IpAddr) -> RouteAddress {
    match address {
        IpAddr::V4(address) => RouteAddress::Inet(address),
        IpAddr::V6(address) => RouteAddress::Inet6(address),
    }
}

pub use netlink_packet_route::AddressFamily as Family;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::process::Command;

    use super::*;
    use crate::netns::Netns;

    #[test]
    fn a_route_says_how_tcp_is_to_use_it() {
        let Ok(netns) = Netns::create() else {
            eprintln!("skipped: this user may not create network namespaces");
            return;
        };
        let add = |third: u8, tcp| {
            netns
                .run(|| {
                    let mut netlink = Netlink::open()?;
                    let index = netlink.index("lo")?;
                    netlink.set_up(index)?;
                    let destination = Ipv4Addr::new(10, 0, third, 0).into();
                    netlink.add_route(&Route { destination, prefix: 24, index, gateway: None, tcp })
                })
                .unwrap()
                .unwrap();
        };
        add(1, RouteTcp { congestion_control: Some("reno"), quickack: true, initcwnd: Some(2) });
        add(2, RouteTcp { quickack: true, ..RouteTcp::default() });
        add(3, RouteTcp::default());
        let routes = netns.apply(Command::new("ip").args(["-4", "route"])).output().unwrap();
        let routes = String::from_utf8(routes.stdout).unwrap();
        let of = |network: &str| routes.lines().find(|line| line.starts_with(network)).unwrap();
        let told = |network: &str| {
            ["congctl reno", "quickack 1", "initcwnd 2"].map(|metric| of(network).contains(metric))
        };
        assert_eq!(told("10.0.1.0/24"), [true, true, true]);
        assert_eq!(told("10.0.2.0/24"), [false, true, false]);
        assert_eq!(told("10.0.3.0/24"), [false, false, false]);
        let named = netns.run(|| Netlink::open()?.routes_with_congestion_control());
        let expected = [("10.0.1.0/24".parse().unwrap(), "reno".to_owned())];
        assert_eq!(named.unwrap().unwrap(), expected);
    }
}
