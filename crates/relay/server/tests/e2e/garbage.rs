//! Damaged packets on the way to a relay at work: nothing comes of them, and what is good goes on.
//! How the steering program reads them one by one is tested in `midspan-steer`.

use std::net::SocketAddr;

use midspan_sys::tun::Unit;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::hand::{Hand, accept};
use crate::peer::{ACK, PSH, RST, SYN, Segment, Wire, host};
use crate::steer::start;
use crate::world::{SERVER, World};

#[test]
fn damaged_packets_change_nothing() {
    // Links without and with a link-layer header.
    for unit in [Unit::Packet, Unit::Frame] {
        for (version, server) in [4, 6].into_iter().zip(SERVER) {
            let Some(world) = World::new() else { return };
            let Some(wire) = Wire::new(&world.relay, unit) else { return };
            let Some(mut relay) = start(&world, "") else { return };
            let (listener, address) = world.listen(server);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(version as u64);

            let mut flow = Hand::open(&wire, SocketAddr::new(host(version, 2), 40_000), address, 7);
            let mut far = accept(&listener);
            flow.say(&wire, &mut far, b"before");
            assert_eq!(relay.counts()["accepted"], 1);
            for round in 0..ROUNDS {
                // A new connection's SYN, a SYN again, data, and a reset, of the open one.
                let from = SocketAddr::new(host(version, 3), 1000 + round);
                let mut syn = Segment::new(from, address, SYN);
                syn.sequence = 1;
                let data = flow.segment(PSH | ACK, b"never seen");
                let reset = flow.segment(RST, b"");
                let mut again = flow.segment(SYN, b"");
                again.sequence = 6;
                for good in [syn, data, reset, again] {
                    damaged(&wire.frame(&good.encode()), unit, &mut random, |frame| {
                        wire.send_frame(frame);
                    });
                }
            }
            // Where the damaged ones came from good ones come now, and are split.
            flow.say(&wire, &mut far, b"after");
            for round in 0..ROUNDS {
                let from = SocketAddr::new(host(version, 3), 1000 + round);
                let mut hand = Hand::open(&wire, from, address, 100_000);
                let mut far = accept(&listener);
                hand.say(&wire, &mut far, b"good");
            }
            let counts = relay.counts();
            assert_eq!(counts["accepted"], 1 + u64::from(ROUNDS), "{unit:?} {counts:?}");
            assert_eq!(counts["active"], counts["accepted"], "{counts:?}");
            assert_eq!(counts["bytes_from_client"], 11 + 4 * u64::from(ROUNDS), "{counts:?}");
        }
    }
}

const ROUNDS: u16 = 20;

/// Cut at every length, and with every byte changed; checksums find that out.
fn damaged(good: &[u8], unit: Unit, random: &mut impl Rng, mut send: impl FnMut(&[u8])) {
    for length in 0..good.len() {
        send(&good[..length]);
    }
    // No checksum protects the header of the link; nor IPv6's class, flow label and hop limit.
    let first = if unit == Unit::Frame { 14 } else { 0 };
    let is_v6 = good[first] >> 4 == 6;
    for at in first..good.len() {
        let unprotected = is_v6 && matches!(at - first, 0..4 | 7);
        if !unprotected {
            let mut frame = good.to_vec();
            frame[at] ^= 1 + (random.next_u32() % 255) as u8;
            send(&frame);
        }
    }
    if unit == Unit::Frame {
        for other in [0x8100u16, 0x88a8, 0x8847, 0x0806, 0x0000, 0xffff] {
            // A tag of nobody's VLAN, or another protocol.
            let mut frame = good.to_vec();
            frame.splice(12..12, other.to_be_bytes().into_iter().chain([0x0f, 0x77]));
            send(&frame);
            let mut elsewhere = good.to_vec();
            elsewhere[5] ^= 9;
            send(&elsewhere);
        }
    }
    let mut noise = vec![0; (random.next_u32() % 100) as usize + first + 1];
    random.fill_bytes(&mut noise);
    noise[..first].copy_from_slice(&good[..first]);
    noise[first] = good[first] & 0xf0 | noise[first] & 15;
    send(&noise);
}
