//! SYNs of somebody who only knows the addresses and ports of a connection (RFC 5961, 4): nothing comes of them.

use std::net::SocketAddr;

use midspan_sys::tun::Unit;

use crate::hand::{Hand, accept};
use crate::peer::{ACK, RST, SYN, Segment, Wire, host};
use crate::steer::start;
use crate::world::{PATIENCE, SERVER, World};

/// The box has no socket of a connection that was there before the relay, and its listener answers the SYN.
#[test]
fn a_connection_from_before_the_relay_survives_a_blind_syn() {
    for (version, server) in [4, 6].into_iter().zip(SERVER) {
        let Some(world) = World::new() else { return };
        let Some(wire) = Wire::new(&world.relay, Unit::Packet) else { return };
        let (listener, address) = world.listen(server);
        let mut flow = Hand::open(&wire, SocketAddr::new(host(version, 2), 40_000), address, 7);
        let mut far = accept(&listener);
        flow.say(&wire, &mut far, b"before");
        let Some(mut relay) = start(&world, "") else { return };
        for sequence in [1, 1 << 31] {
            let mut syn = Segment::new(flow.from, flow.to, SYN);
            syn.sequence = sequence;
            wire.send(&syn);
            // The client, which has asked for nothing, says so (RFC 9293, 3.10.7.4).
            let answer = wire.receive(PATIENCE).expect("no answer");
            assert!(answer.flags & ACK != 0 && answer.flags & RST == 0, "{answer:?}");
            wire.send(&flow.segment(ACK, b""));
            flow.say(&wire, &mut far, b"after");
        }
        let counts = relay.counts();
        assert_eq!(counts["accepted"], 0, "{counts:?}");
    }
}
