//! Connections that cross the box in VLANs, tagged once and twice, are split like any other.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::Command;

use midspan_sys::netns::Netns;
use midspan_sys::sysctl;

use crate::steer::{exchange, start};
use crate::world::{PATIENCE, World, await_link, connect, ip, skip};

/// Two networks through the box, on either side of it, in VLANs of the links that there are.
struct Vlans {
    /// By IP version.
    clients: [IpAddr; 2],
    servers: [IpAddr; 2],
}

impl Vlans {
    /// None, and says so, where the kernel has no VLANs. `tags` are those on the client's side, outermost first; the server's side has one.
    fn new(world: &World, tags: &[(&str, u16)]) -> Option<Vlans> {
        let probe = "link add link access name probe type vlan id 1";
        if !ip_command(&world.relay, probe).status().unwrap().success() {
            skip("this kernel has no VLANs");
            return None;
        }
        let near = [10, 71];
        for (netns, link, host) in [(&world.client, "uplink", 2), (&world.relay, "access", 1)] {
            add(netns, link, tags, near, host);
        }
        let far = [10, 72];
        for (netns, link, host) in [(&world.server, "downlink", 2), (&world.relay, "wide", 1)] {
            add(netns, link, &[("802.1Q", 9)], far, host);
        }
        // The default routes lead to the untagged links.
        for (netns, there, via) in [(&world.client, far, near), (&world.server, near, far)] {
            let [(network, _), (network6, _)] = addresses(there, 0);
            let [(gateway, _), (gateway6, _)] = addresses(via, 1);
            run(netns, &format!("route add {network}/24 via {gateway}"));
            run(netns, &format!("-6 route add {network6}/64 via {gateway6}"));
        }
        let host = |network| addresses(network, 2).map(|(address, _)| ip(&address));
        let vlans = Vlans { clients: host(near), servers: host(far) };
        let neighbours = vlans.clients.into_iter().chain(vlans.servers);
        world.relay.run(|| neighbours.for_each(|host| await_link(&host.to_string()))).unwrap();
        Some(vlans)
    }
}

fn add(netns: &Netns, link: &str, tags: &[(&str, u16)], network: [u8; 2], host: u8) {
    let mut parent = link.to_owned();
    for (protocol, id) in tags {
        let name = format!("{parent}.{id}");
        run(
            netns,
            &format!("link add link {parent} name {name} type vlan protocol {protocol} id {id}"),
        );
        run(netns, &format!("link set {name} up"));
        parent = name;
    }
    for (address, prefix) in addresses(network, host) {
        run(netns, &format!("addr add {address}/{prefix} dev {parent}"));
    }
}

/// A host's addresses, IPv4 and IPv6, with the lengths of their networks.
fn addresses([a, b]: [u8; 2], host: u8) -> [(String, u8); 2] {
    let last = if host == 0 { String::new() } else { host.to_string() };
    [(format!("{a}.{b}.0.{host}"), 24), (format!("fd{b}::{last}"), 64)]
}

fn run(netns: &Netns, arguments: &str) {
    assert!(ip_command(netns, arguments).status().unwrap().success(), "ip {arguments}");
}

fn ip_command(netns: &Netns, arguments: &str) -> Command {
    let mut command = Command::new("ip");
    netns.apply(command.args(arguments.split(' ')));
    command
}

/// A relay that steers at all links sees what is in a VLAN twice: at the link, and at the VLAN's.
#[test]
fn connections_in_vlans_are_split() {
    for tags in [&[("802.1Q", 7)][..], &[("802.1ad", 7), ("802.1Q", 8)]] {
        let Some(world) = World::new() else { return };
        let Some(vlans) = Vlans::new(&world, tags) else { return };
        for interfaces in ["", "interfaces = [\"access\", \"wide\"]\n"] {
            assert_split(&world, &vlans, interfaces);
        }
    }
}

/// The links that VLANs stand on need not forward anything themselves.
#[test]
fn connections_in_vlans_of_links_that_do_not_forward_are_split() {
    let Some(world) = World::new() else { return };
    let Some(vlans) = Vlans::new(&world, &[("802.1Q", 7)]) else { return };
    world
        .relay
        .run(|| {
            for link in ["access", "wide"] {
                for version in ["ipv4", "ipv6"] {
                    sysctl::set(&format!("net.{version}.conf.{link}.forwarding"), "0").unwrap();
                }
            }
        })
        .unwrap();
    assert_split(&world, &vlans, "");
}

/// Connections of both IP versions are given to the relay.
fn assert_split(world: &World, vlans: &Vlans, settings: &str) {
    let Some(mut relay) = start(world, settings) else { return };
    let mut accepted = 0;
    for (client, server) in vlans.clients.into_iter().zip(vlans.servers) {
        let listener = world.server.run(|| TcpListener::bind((server, 0))).unwrap().unwrap();
        let (from, to) = (SocketAddr::new(client, 0), listener.local_addr().unwrap());
        let mut near = world.client.run(|| connect(from, to)).unwrap().unwrap();
        let (mut far, seen) = listener.accept().unwrap();
        for end in [&near, &far] {
            end.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        assert_eq!(seen, near.local_addr().unwrap());
        exchange(&mut near, &mut far);
        accepted += 1;
        let counts = relay.counts();
        assert_eq!(counts["accepted"], accepted, "{settings} {counts:?}");
    }
    let counts = relay.until(|counts| counts["active"] == 0);
    assert_eq!(counts["not_steered"], 0, "{counts:?}");
}
