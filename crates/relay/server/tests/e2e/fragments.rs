//! Segments that a router before the box has cut into fragments, as one of a smaller MTU does where the client allows it
//! (RFC 791, 2.3).

use std::io::Read;
use std::net::SocketAddr;

use midspan_sys::tun::Unit;

use crate::beside;
use crate::hand::{Hand, accept};
use crate::peer::{ACK, PSH, Wire, host};
use crate::process::RelayProcess;
use crate::steer;
use crate::world::{SERVER, World};

const WORDS: usize = 4000;

#[test]
fn what_comes_in_fragments_arrives() {
    // A box that tracks connections puts fragments together before it looks where they go.
    for rules in [None, Some(beside::STATEFUL)] {
        for settings in beside::settings() {
            for (version, server) in [4, 6].into_iter().zip(SERVER) {
                let Some(world) = World::new() else { return };
                let Some(wire) = Wire::new(&world.relay, Unit::Packet) else { return };
                if let Some(rules) = rules {
                    beside::load(&world.relay, rules);
                }
                let mut relay = settings.map(|text| RelayProcess::start(&world.relay, text));
                let (listener, address) = world.listen(server);
                let from = SocketAddr::new(host(version, 2), 40_000);
                let mut flow = Hand::open(&wire, from, address, 7);
                let mut far = accept(&listener);
                flow.say(&wire, &mut far, b"whole");
                for round in 0..5u8 {
                    let words: Vec<u8> = (0..WORDS).map(|at| (at >> 3) as u8 ^ round).collect();
                    let segment = flow.segment(PSH | ACK, &words);
                    for fragment in fragments(&segment.encode(), 1000 + u16::from(round)) {
                        wire.send_frame(&wire.frame(&fragment));
                    }
                    flow.next = segment.next();
                    let mut heard = vec![0; WORDS];
                    far.read_exact(&mut heard)
                        .unwrap_or_else(|error| panic!("{settings:?} {rules:?} {version} {error}"));
                    assert_eq!(heard, words);
                    flow.say(&wire, &mut far, b"whole");
                }
                if let Some(relay) = &mut relay {
                    assert_eq!(relay.counts()["accepted"], 1);
                }
            }
        }
    }
}

/// Fragments of other connections go on.
#[test]
fn what_passes_does_so_in_fragments_too() {
    for (version, server) in [4, 6].into_iter().zip(SERVER) {
        let Some(world) = World::new() else { return };
        let Some(wire) = Wire::new(&world.relay, Unit::Packet) else { return };
        let (listener, address) = world.listen(server);
        let settings = format!("[policy]\npass_ports = [{}]\n", address.port());
        let Some(mut relay) = steer::start(&world, &settings) else { return };
        let mut flow = Hand::open(&wire, SocketAddr::new(host(version, 2), 40_000), address, 7);
        let mut far = accept(&listener);
        let words = [7; WORDS];
        let segment = flow.segment(PSH | ACK, &words);
        let fragments = fragments(&segment.encode(), 9);
        for fragment in &fragments {
            wire.send_frame(&wire.frame(fragment));
        }
        flow.next = segment.next();
        let mut heard = [0; WORDS];
        far.read_exact(&mut heard).unwrap();
        assert_eq!(heard, words);
        assert_eq!(relay.counts()["fragment"], fragments.len() as u64);
    }
}

/// Cuts an IP packet.
fn fragments(packet: &[u8], id: u16) -> Vec<Vec<u8>> {
    /// A multiple of eight, for a link with an MTU of 1280.
    const PAYLOAD: usize = 1232;
    let header = if packet[0] >> 4 == 4 { 20 } else { 40 };
    let (header, payload) = packet.split_at(header);
    let last = payload.chunks(PAYLOAD).count() - 1;
    let cut = |(index, part): (usize, &[u8])| {
        let mut fragment = header.to_vec();
        let (offset, more) = ((index * PAYLOAD) as u16, u16::from(index < last));
        if header.len() == 20 {
            fragment[2..4].copy_from_slice(&(20 + part.len() as u16).to_be_bytes());
            fragment[4..6].copy_from_slice(&id.to_be_bytes());
            fragment[6..8].copy_from_slice(&((more << 13) | (offset / 8)).to_be_bytes());
            fragment[10..12].fill(0);
            let sum = crate::peer::checksum(&[&fragment]);
            fragment[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            fragment[4..6].copy_from_slice(&(8 + part.len() as u16).to_be_bytes());
            fragment[6] = 44;
            fragment.extend([6, 0]);
            fragment.extend((offset | more).to_be_bytes());
            fragment.extend(u32::from(id).to_be_bytes());
        }
        fragment.extend(part);
        fragment
    };
    payload.chunks(PAYLOAD).enumerate().map(cut).collect()
}
