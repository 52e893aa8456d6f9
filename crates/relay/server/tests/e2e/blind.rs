//! SYNs of somebody who only knows the addresses and ports of a connection (RFC 5961, 4): nothing comes of them.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use midspan_sys::tun::Unit;

use crate::hand::{Hand, accept};
use crate::peer::{ACK, RST, SYN, Segment, Wire, host};
use crate::process::EARLY;
use crate::steer::start;
use crate::world::{PATIENCE, SERVER, World};

/// Longer than Linux waits before it answers another such SYN (`net.ipv4.tcp_invalid_ratelimit`).
const NEXT: Duration = Duration::from_millis(600);

/// The box has no socket of a connection that was there before the relay: its listener answers the SYN, or the server does,
/// if it is asked first.
#[test]
fn a_connection_from_before_the_relay_survives_a_blind_syn() {
    let cases = [4, 6].into_iter().zip(SERVER);
    for ((version, server), settings) in cases.flat_map(|case| [(case, EARLY), (case, "")]) {
        let Some(world) = World::new() else { return };
        let Some(wire) = Wire::new(&world.relay, Unit::Packet) else { return };
        let (listener, address) = world.listen(server);
        let mut flow = Hand::open(&wire, SocketAddr::new(host(version, 2), 40_000), address, 7);
        let mut far = accept(&listener);
        flow.say(&wire, &mut far, b"before");
        let Some(mut relay) = start(&world, settings) else { return };
        for sequence in [1, 1 << 31] {
            let mut syn = Segment::new(flow.from, flow.to, SYN);
            syn.sequence = sequence;
            wire.send(&syn);
            // The client, which has asked for nothing, says so (RFC 9293, 3.10.7.4).
            let answer = wire.receive(PATIENCE).expect("no answer");
            assert!(answer.flags & ACK != 0 && answer.flags & RST == 0, "{answer:?}");
            wire.send(&flow.segment(ACK, b""));
            flow.say(&wire, &mut far, b"after");
            thread::sleep(NEXT);
        }
        let counts = relay.counts();
        assert_eq!(counts["accepted"], 0, "{counts:?}");
    }
}
