//! The emulated network of one run: three hosts and the two links between them.
//!
//! ```text
//!   ue ---- access ---- mec ---- wide ---- server
//! ```
//!
//! All of it is held by descriptors of this process, so it is gone when the process is.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use anyhow::{Context, Result, anyhow};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use midspan_emu::{Backend, Emulator, LinkConfig, PortConfig, Tap, WirePacket};
use midspan_path::{LinkSpec, Traces};
use midspan_scenario::record::Variant;
use midspan_scenario::{CellSpec, Host, ServiceHost};
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

/// Where the UEs' addresses come from: what a proxy may take.
pub fn client_prefixes() -> Vec<IpNet> {
    let v4 = Ipv4Net::new_assert(UE.v4, V4_PREFIX).trunc();
    let v6 = Ipv6Net::new_assert(UE.v6, V6_PREFIX).trunc();
    vec![v4.into(), v6.into()]
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
        let elements = midspan_path::Path::new(
            &[spec.path.access.clone(), spec.path.wide.clone()],
            traces,
            seed,
        )?;
        let [access, wide]: [midspan_path::Link<WirePacket>; 2] =
            elements.links.try_into().map_err(|_| anyhow!("a path of two links has two links"))?;
        let rtts = ShortestRtts::of(spec, variant);
        let [near, far] = fittings.taps;
        let does_nothing = spec.path.wide == LinkSpec::default() && far.is_none();
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
    /// crosses both, or the access link alone where the service runs on the MEC.
    pub fn of(spec: &CellSpec, variant: Variant) -> ShortestRtts {
        let (access, wide) = (spec.path.access.base_rtt(), spec.path.wide.base_rtt());
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

/// What the kernel says to a congestion control that it does not have.
const EINVAL: i32 = 22;
