//! The emulated network of one run: three hosts and the two links between them.
//!
//! ```text
//!   ue ---- access ---- mec ---- wide ---- server
//! ```
//!
//! Where there are cells the UEs are addresses of one host, the access link is their network up to the gateway, and the
//! servers are addresses of one host, each behind a link of its own.
//!
//! All of it is held by descriptors of this process, so it is gone when the process is.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use anyhow::{Context, Result, anyhow};
use ipnet::{IpNet, Ipv4Net, Ipv4Subnets, Ipv6Net};
use midspan_emu::{Backend, Beside, Between, Emulator, LinkConfig, PortConfig, Tap, WirePacket};
use midspan_path::{LinkSpec, SpecError, Traces};
use midspan_scenario::record::Variant;
use midspan_scenario::{CellSpec, Cells, Host, ServiceHost};
use midspan_sys::netlink::{Netlink, Route, RouteTcp};
use midspan_sys::netns::Netns;
use midspan_sys::sysctl;
use midspan_units::{Span, Time};

use crate::host::HostSettings;
use crate::links::LinkReports;

/// Addresses of one end of a link.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// IPv4.
    pub v4: Ipv4Addr,
    /// IPv6.
    pub v6: Ipv6Addr,
}

const fn addresses(link: u8, host: u8) -> Addresses {
    Addresses {
        v4: Ipv4Addr::new(10, 45, link, host),
        v6: Ipv6Addr::new(0xfd45, 0, 0, link as u16, 0, 0, 0, host as u16),
    }
}

/// The UE.
pub const UE: Addresses = addresses(1, 2);
/// The MEC's side of the access link.
pub const MEC_ACCESS: Addresses = addresses(1, 1);
/// The MEC's side of the wide area.
pub const MEC_WIDE: Addresses = addresses(2, 1);
/// The server.
pub const SERVER: Addresses = addresses(2, 2);

const V4_PREFIX: u8 = 24;
const V6_PREFIX: u8 = 64;
const MTU: u32 = 1500;

/// Before the addresses of the UEs of cells but the first.
const OTHER_UES: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 46, 0, 0), 16);

/// The address of a UE of cells, counted from 0.
pub(crate) fn ue_address(number: u32) -> Ipv4Addr {
    match number {
        0 => UE.v4,
        _ => Ipv4Addr::from_bits(OTHER_UES.addr().to_bits() + number),
    }
}

/// The address of one of the servers of cells, counted from 0.
pub(crate) fn server_address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(SERVER.v4.to_bits() + number)
}

/// Where the UEs' addresses come from that a proxy may take.
pub fn client_prefixes(cells: Option<&Cells>) -> Vec<IpNet> {
    let Some(cells) = cells else {
        let v4 = Ipv4Net::new_assert(UE.v4, V4_PREFIX).trunc();
        let v6 = Ipv6Net::new_assert(UE.v6, V6_PREFIX).trunc();
        return vec![v4.into(), v6.into()];
    };
    // Users' numbers follow each other, and but for the first one's so do their addresses.
    let mut split = (0..cells.total()).filter(|number| cells.splits(*number));
    let first = (cells.splits(0)).then(|| Ipv4Net::new_assert(ue_address(0), 32));
    let others = split.find(|number| *number > 0).map(|from| {
        let to = split.next_back().unwrap_or(from);
        Ipv4Subnets::new(ue_address(from), ue_address(to), 0)
    });
    first.into_iter().chain(others.into_iter().flatten()).map(IpNet::V4).collect()
}

/// Three hosts and two running links.
#[derive(Debug)]
pub struct Topology {
    /// The UE's namespace.
    pub ue: Netns,
    /// The MEC's namespace.
    pub mec: Netns,
    /// The server's namespace.
    pub server: Netns,
    access: Emulator,
    /// None where a cable is in its place.
    wide: Option<Emulator>,
}

/// What only some networks have.
#[derive(Debug, Default)]
pub(crate) struct Fittings {
    /// Who is told of the packets on the access link and on the wide area.
    pub(crate) taps: [Option<Tap>; 2],
    /// Whether a wide area that does nothing to packets is a cable, which takes no time, and not an emulated link, whose
    /// thread must wake for each.
    pub(crate) cable: bool,
}

impl Topology {
    /// Builds hosts, links, addresses and routes for `variant` to run on, and starts the links.
    ///
    /// # Errors
    /// What the system does not allow, or an element's specification that cannot be.
    pub fn build(
        spec: &CellSpec,
        variant: Variant,
        traces: &Traces,
        seed: u64,
        backend: Backend,
    ) -> Result<Self> {
        Topology::fitted(spec, variant, traces, seed, backend, Fittings::default())
    }

    /// The same, with what else it is to have.
    ///
    /// # Errors
    /// As [`Topology::build`].
    pub(crate) fn fitted(
        spec: &CellSpec,
        variant: Variant,
        traces: &Traces,
        seed: u64,
        backend: Backend,
        fittings: Fittings,
    ) -> Result<Self> {
        let host = || Netns::create().context("cannot create a network namespace");
        let (ue, mec, server) = (host()?, host()?, host()?);
        for (netns, settings, router) in [
            (&ue, &spec.hosts.ue, false),
            (&mec, &spec.hosts.mec, true),
            (&server, &spec.hosts.server, false),
        ] {
            apply(netns, settings, router)?;
        }
        let link = |name: &str, left: &Netns, right: &Netns, shortest_rtt: Span, tap| {
            let port = |netns: &Netns| PortConfig {
                netns: netns.clone(),
                interface: name.to_owned(),
                mtu: MTU,
            };
            LinkConfig {
                name: name.to_owned(),
                backend,
                left: port(left),
                right: port(right),
                shortest_rtt,
                tap,
            }
        };
        let [access, wide] = match &spec.cells {
            None => links(spec, traces, seed)?,
            Some(cells) => mobile(cells, spec, traces, seed)?,
        };
        let rtts = ShortestRtts::of(spec, variant);
        let [near, far] = fittings.taps;
        let does_nothing =
            spec.path.wide == LinkSpec::default() && spec.cells.is_none() && far.is_none();
        let access = midspan_emu::start(link("access", &ue, &mec, rtts.access, near), access)?;
        let wide = if fittings.cable && does_nothing {
            cable(&mec, &server, "wide").context("cannot make the cable to the server")?;
            None
        } else {
            Some(midspan_emu::start(link("wide", &mec, &server, rtts.wide, far), wide)?)
        };
        let hosts = &spec.hosts;
        let (on_ue, on_server) = (tcp(&hosts.ue), tcp(&hosts.server));
        let on_mec = match variant {
            // The relay's legs choose for themselves; a route's choice would come before theirs.
            Variant::Midspan => RouteTcp { congestion_control: None, ..tcp(&hosts.mec) },
            Variant::None | Variant::Haproxy => tcp(&hosts.mec),
        };
        connect(&ue, "access", UE, Some(MEC_ACCESS), on_ue)?;
        connect(&mec, "access", MEC_ACCESS, None, on_mec)?;
        connect(&mec, "wide", MEC_WIDE, None, on_mec)?;
        connect(&server, "wide", SERVER, Some(MEC_WIDE), on_server)?;
        if let Some(cells) = &spec.cells {
            populate(&ue, "access", (1..cells.total()).map(ue_address))?;
            populate(&server, "wide", (1..cells.servers).map(server_address))?;
            lead(&mec, "access", OTHER_UES, on_mec)?;
        }
        Ok(Topology { ue, mec, server, access, wide })
    }

    /// The host that the service runs on and its address.
    pub fn service(&self, place: ServiceHost) -> (&Netns, Ipv4Addr) {
        match place {
            ServiceHost::Server => (&self.server, SERVER.v4),
            ServiceHost::Mec => (&self.mec, MEC_ACCESS.v4),
        }
    }

    /// When the access link's time began, on the kernel's monotonic clock: where its traces start.
    pub fn access_epoch(&self) -> Time {
        self.access.epoch()
    }

    /// Starts the links' statistics anew: what came before was warm-up.
    pub fn restart_statistics(&self) {
        self.access.restart_statistics();
        self.wide.iter().for_each(Emulator::restart_statistics);
    }

    /// What the links report up to now.
    pub(crate) fn reports(&self) -> LinkReports {
        LinkReports { access: self.access.report(), wide: self.wide.as_ref().map(Emulator::report) }
    }
}

/// The two links in a row.
fn links(spec: &CellSpec, traces: &Traces, seed: u64) -> Result<[Between; 2]> {
    let links = [spec.path.access.clone(), spec.path.wide.clone()];
    let path = midspan_path::Path::<WirePacket>::new(&links, traces, seed)?;
    let links: Result<[_; 2], _> = path.links.try_into();
    Ok(links.map_err(|_| anyhow!("a path of two links has two links"))?.map(Between::from))
}

/// Cells up to their gateway, and the links behind that.
fn mobile(
    cells: &Cells,
    spec: &CellSpec,
    traces: &Traces,
    seed: u64,
) -> Result<[Between; 2], SpecError> {
    let (network, wide) = cells.network(&spec.path).build(traces, seed)?;
    let users = (0..cells.total()).map(|number| ue_address(number).into());
    let servers = (0..cells.servers).map(|number| server_address(number).into());
    Ok([
        Between::Cells(Box::new(midspan_emu::Cells::new(network, users))),
        Between::Beside(Beside::new(servers.zip(wide).collect())),
    ])
}

/// The shortest round trip of the connections that cross each link, which is what the link's
/// punctuality is held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShortestRtts {
    /// Over the access link.
    pub access: Span,
    /// Over the wide area.
    pub wide: Span,
}

impl ShortestRtts {
    /// Where a proxy splits, each link is a connection's whole path; elsewhere a connection
    /// crosses both, or the access link alone where the service runs on the MEC. What comes up over the air of cells
    /// takes its time.
    pub fn of(spec: &CellSpec, variant: Variant) -> ShortestRtts {
        let uplink = spec.cells.as_ref().map_or(Span::ZERO, |cells| cells.radio.uplink);
        let (access, wide) = (spec.path.access.base_rtt() + uplink, spec.path.wide.base_rtt());
        let ends_at_mec = variant != Variant::None || spec.service.at == ServiceHost::Mec;
        // Connections over a link without any delay are not quicker than the whole path.
        if ends_at_mec && access > Span::ZERO && wide > Span::ZERO {
            ShortestRtts { access, wide }
        } else {
            ShortestRtts { access: access + wide, wide: access + wide }
        }
    }
}

/// Connects two hosts by interfaces of this name on both.
fn cable(left: &Netns, right: &Netns, name: &str) -> io::Result<()> {
    let plug_in = || {
        // As on emulated links: no addresses but those that are given, of which nothing is sent unasked.
        let _ = sysctl::set(&format!("net.ipv6.conf.{name}.addr_gen_mode"), "1");
        let mut netlink = Netlink::open()?;
        let index = netlink.index(name)?;
        netlink.set_up(index)
    };
    left.run(|| Netlink::open()?.add_veth(name, name, right.as_fd()))??;
    left.run(plug_in)??;
    right.run(plug_in)?
}

fn apply(netns: &Netns, host: &Host, router: bool) -> Result<()> {
    let settings = HostSettings {
        tcp_rmem: &host.buffers.rmem.to_string(),
        tcp_wmem: &host.buffers.wmem.to_string(),
        ecn: host.ecn,
        sack: host.sack,
        rto_min: host.rto_min,
        metrics_save: host.metrics_save,
        comp_sack: (host.comp_sack_delay, host.comp_sack_nr),
        router,
    };
    Ok(settings.apply(netns)?)
}

/// How a host's routes have TCP use them.
fn tcp(host: &Host) -> RouteTcp<'_> {
    RouteTcp {
        congestion_control: Some(&host.congestion_control),
        quickack: host.quickack,
        initcwnd: host.initcwnd,
    }
}

/// Gives an interface its addresses and the routes that lead out of it: to its link, and to
/// everything else by `gateway`.
fn connect(
    netns: &Netns,
    interface: &str,
    own: Addresses,
    gateway: Option<Addresses>,
    tcp: RouteTcp<'_>,
) -> Result<()> {
    let connect = || {
        let mut netlink = Netlink::open()?;
        let index = netlink.index(interface)?;
        let (v4, v6) =
            (Ipv4Net::new_assert(own.v4, V4_PREFIX), Ipv6Net::new_assert(own.v6, V6_PREFIX));
        for net in [IpNet::V4(v4), IpNet::V6(v6)] {
            netlink.add_address(index, net.addr(), net.prefix_len())?;
            let (destination, prefix) = (net.network(), net.prefix_len());
            let gateway = None;
            let link = Route { destination, prefix, index, gateway, tcp };
            netlink.add_route(&link)?;
        }
        let Some(gateway) = gateway else { return Ok(()) };
        for (everything, gateway) in [
            (IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V4(gateway.v4)),
            (IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V6(gateway.v6)),
        ] {
            let (destination, gateway) = (everything, Some(gateway));
            let default = Route { destination, prefix: 0, index, gateway, tcp };
            netlink.add_route(&default)?;
        }
        io::Result::Ok(())
    };
    netns.run(connect)?.map_err(|error| match (error.raw_os_error(), tcp.congestion_control) {
        (Some(EINVAL), Some(name)) => anyhow!("this kernel has no congestion control `{name}`"),
        _ => anyhow!("cannot give interface `{interface}` its addresses: {error}"),
    })
}

/// Gives an interface more addresses, each for itself.
fn populate(
    netns: &Netns,
    interface: &str,
    addresses: impl Iterator<Item = Ipv4Addr> + Send,
) -> Result<()> {
    let add = || {
        let mut netlink = Netlink::open()?;
        let index = netlink.index(interface)?;
        addresses.into_iter().try_for_each(|one| netlink.add_address(index, one.into(), 32))
    };
    netns.run(add)?.with_context(|| format!("cannot give interface `{interface}` its addresses"))
}

/// Has an interface lead to a network.
fn lead(netns: &Netns, interface: &str, network: Ipv4Net, tcp: RouteTcp<'_>) -> Result<()> {
    let add = || {
        let mut netlink = Netlink::open()?;
        let index = netlink.index(interface)?;
        let (destination, prefix) = (network.addr().into(), network.prefix_len());
        netlink.add_route(&Route { destination, prefix, index, gateway: None, tcp })
    };
    netns
        .run(add)?
        .with_context(|| format!("cannot have interface `{interface}` lead to {network}"))
}

/// What the kernel says to a congestion control that it does not have.
const EINVAL: i32 = 22;

#[cfg(test)]
mod tests {
    use midspan_scenario::Scenario;

    use super::*;

    #[test]
    fn a_proxy_may_take_the_users_whom_it_is_to_split_and_nobody_else() {
        for (clients, splits) in [("all", 0..21), ("users", 0..7), ("others", 7..21)] {
            let text = format!(
                r#"
                name = "split"
                title = "Whose connections are split"
                variants = ["midspan"]
                [cells]
                users = 1
                clients = "{clients}"
                others = [{{ users = 2, workload = {{ kind = "bulk", direction = "download", time = "2 s" }} }}]
                [path.access]
                [path.wide]
                [workload]
                kind = "bulk"
                direction = "download"
                time = "2 s"
                "#
            );
            let scenario = Scenario::parse(&text, "test.toml").unwrap();
            let prefixes = client_prefixes(scenario.cells()[0].spec.cells.as_ref());
            for number in 0..30 {
                let address: IpAddr = ue_address(number).into();
                let may = prefixes.iter().any(|prefix| prefix.contains(&address));
                assert_eq!(may, splits.contains(&number), "{clients}: {number} in {prefixes:?}");
            }
        }
    }
}
