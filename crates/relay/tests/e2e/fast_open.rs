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

#[test]
fn data_goes_with_the_syn_on_both_legs() {
    let Some(world) = World::new() else { return };
    for steered in ["", NFTABLES] {
        allow(&world.relay, "3");
        let mut relay = RelayProcess::start(&world.relay, &format!("fast_open = true\n{steered}"));
        let (at_relay, at_server) = (SynData::count(&world.relay), SynData::count(&world.server));
        allow(&world.server, "3");
        for server in SERVER {
            let (listener, _) = world.listen(server);
            midspan_sys::socket::accept_fast_open(&listener, 16).unwrap();
            let seen = || (at_relay.read(), at_server.read());
            let before = seen();
            let since = || (seen().0 - before.0, seen().1 - before.1);
            // The client gets its cookie from the relay, then the relay its own from the server.
            ask(&world, &listener, 0);
            assert_eq!(since(), (0, 0), "{server} {steered}");
            ask(&world, &listener, 1);
            assert_eq!(since(), (1, 0), "{server} {steered}");
            ask(&world, &listener, 2);
            assert_eq!(since(), (2, 1), "{server} {steered}");
            // A server that has lost its key, or is another one now, takes no data with the SYN.
            allow(&world.server, "0");
            ask(&world, &listener, 3);
            assert_eq!(since().0, 3, "{server} {steered}");
            allow(&world.server, "3");
        }
        let counts = relay.until(|counts| counts["active"] == 0);
        assert_eq!((counts["accepted"], counts["closed"]), (8, 8), "{counts:?}");
        assert_eq!((counts["fast_open_accepted"], counts["fast_open_sent"]), (6, 4), "{counts:?}");
        assert_eq!(counts["declined_fast_open"], 0);
        drop(relay);
        for netns in [&world.relay, &world.server] {
            let remove = ["delete", "table", "inet", "f"];
            assert!(netns.apply(Command::new("nft").args(remove)).status().unwrap().success());
        }
        // Cookies are remembered for addresses, and the next relay has another key.
        for netns in [&world.client, &world.relay] {
            let forget = ["tcp_metrics", "flush"];
            assert!(netns.apply(Command::new("ip").args(forget)).status().unwrap().success());
        }
    }
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
    let mut relay = RelayProcess::start(&world.relay, "");
    let at_server = SynData::count(&world.server);
    ask(&world, &listener, 2);
    let counts = relay.until(|counts| counts["active"] == 0);
    assert_eq!((counts["declined_fast_open"], counts["fast_open_accepted"]), (1, 0));
    assert_eq!((at_server.read(), counts["closed"]), (0, 1));
}
