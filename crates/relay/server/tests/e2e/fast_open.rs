//! Data on the SYN (RFC 7413), on both legs.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::process::Command;

use midspan_sys::netns::Netns;
use midspan_sys::sysctl;

use crate::process::{NFTABLES, RelayProcess};
use crate::world::{PATIENCE, SERVER, World};

/// Counts the SYNs with data that a namespace receives.
struct SynData<'a>(&'a Netns);

impl SynData<'_> {
    /// Headers alone are at most 100 bytes long: IPv6's and TCP's with all options.
    fn count(netns: &Netns) -> SynData<'_> {
        let rules = "add table inet f; add counter inet f data; \
             add chain inet f i { type filter hook prerouting priority -400; }; \
             add rule inet f i tcp flags & (syn | ack) == syn meta length > 100 counter name data";
        assert!(netns.apply(Command::new("nft").arg(rules)).status().unwrap().success());
        SynData(netns)
    }

    fn read(&self) -> u64 {
        let show = ["list", "counter", "inet", "f", "data"];
        let out = self.0.apply(Command::new("nft").args(show)).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        text.split("packets ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    }
}

/// Has a namespace do Fast Open as client (1), server (2), both (3).
fn allow(netns: &Netns, what: &str) {
    netns.run(|| sysctl::set("net.ipv4.tcp_fastopen", what)).unwrap().unwrap();
}

fn request(round: u8) -> Vec<u8> {
    (0..=255).map(|byte| byte ^ round).chain([round; 44]).collect()
}

/// A client's connection whose request must arrive once, and whole, and whose answer must too.
fn ask(world: &World, listener: &TcpListener, round: u8) {
    let request = request(round);
    let mut near = world.fast_open(listener.local_addr().unwrap(), &request);
    let (mut far, _) = listener.accept().unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    near.write_all(b"and more").unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    far.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, [&request[..], b"and more"].concat());
    far.write_all(&heard).unwrap();
    drop(far);
    let mut answer = Vec::new();
    near.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, heard);
}

/// Removes what [`SynData`] counts by, and the cookies, so that all can begin anew.
fn forget(world: &World) {
    for netns in [&world.relay, &world.server] {
        let remove = ["delete", "table", "inet", "f"];
        assert!(netns.apply(Command::new("nft").args(remove)).status().unwrap().success());
    }
    for netns in [&world.client, &world.relay] {
        let forget = ["tcp_metrics", "flush"];
        assert!(netns.apply(Command::new("ip").args(forget)).status().unwrap().success());
    }
}

/// Whether all of so many connections were split. BPF passes some if the machine is so busy that the
/// relay seems dead.
fn are_split(relay: &mut RelayProcess, connections: u64) -> bool {
    let counts = relay.counts();
    let passed = counts.get("pass_no_relay").copied().unwrap_or(0);
    assert_eq!(counts["accepted"] + passed, connections, "{counts:?}");
    passed == 0
}

#[test]
fn data_goes_with_the_syn_on_both_legs() {
    let Some(world) = World::new() else { return };
    for steered in ["", NFTABLES] {
        let mut tries = 0;
        while !goes_with_the_syn_on_both_legs(&world, steered) {
            tries += 1;
            assert!(tries < 5, "connections pass all the time");
            forget(&world);
        }
        forget(&world);
    }
}

/// False if some connection passed, so that nothing can be said.
fn goes_with_the_syn_on_both_legs(world: &World, steered: &str) -> bool {
    allow(&world.relay, "3");
    let mut relay = RelayProcess::start(&world.relay, &format!("fast_open = true\n{steered}"));
    let (at_relay, at_server) = (SynData::count(&world.relay), SynData::count(&world.server));
    let mut connections = 0;
    for server in SERVER {
        allow(&world.server, "3");
        let (listener, _) = world.listen(server);
        midspan_sys::socket::accept_fast_open(&listener, 16).unwrap();
        let before = (at_relay.read(), at_server.read());
        // The client gets its cookie from the relay, then the relay its own from the server. The last
        // server has lost its key, or is another one now, and takes no data with the SYN.
        for (round, seen) in [(0, (0, 0)), (1, (1, 0)), (2, (2, 1)), (3, (3, 2))] {
            if round == 3 {
                allow(&world.server, "0");
            }
            ask(world, &listener, round);
            connections += 1;
            if !are_split(&mut relay, connections) {
                return false;
            }
            let now = (at_relay.read() - before.0, at_server.read() - before.1);
            assert_eq!(now, seen, "{server} {steered} {round}");
        }
    }
    let counts = relay.until(|counts| counts["active"] == 0);
    assert_eq!((counts["accepted"], counts["closed"]), (8, 8), "{counts:?}");
    assert_eq!((counts["fast_open_accepted"], counts["fast_open_sent"]), (6, 4), "{counts:?}");
    assert_eq!(counts["declined_fast_open"], 0);
    true
}

/// By default nobody's data is taken with the SYN, and nothing else changes for who tries.
#[test]
fn without_it_data_comes_after_the_handshake() {
    let Some(world) = World::new() else { return };
    for netns in [&world.relay, &world.server] {
        allow(netns, "3");
    }
    let (listener, _) = world.listen(SERVER[0]);
    midspan_sys::socket::accept_fast_open(&listener, 16).unwrap();
    // The client has a cookie of the server itself.
    for round in 0..2 {
        ask(&world, &listener, round);
    }
    let mut relay = RelayProcess::start(&world.relay, NFTABLES);
    let at_server = SynData::count(&world.server);
    ask(&world, &listener, 2);
    assert!(are_split(&mut relay, 1));
    let counts = relay.until(|counts| counts["active"] == 0);
    assert_eq!((counts["declined_fast_open"], counts["fast_open_accepted"]), (1, 0));
    assert_eq!((at_server.read(), counts["closed"]), (0, 1));
}
