//! Holes in what clients send are kept from them where they fill by themselves (delayed duplicate acknowledgements).

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use midspan_sys::tun::Unit;

use crate::hand::{Hand, accept};
use crate::peer::{ACK, PSH, Segment, Wire, host};
use crate::process::EARLY;
use crate::steer::start;
use crate::world::{SERVER, World};

const PIECE: usize = 100;
/// How late a segment comes that others have overtaken.
const LATE: Duration = Duration::from_millis(20);
/// Longer than any hole is kept.
const HELD: Duration = Duration::from_millis(60);

/// A client whose segments come out of order.
struct Client<'a> {
    wire: &'a Wire,
    hand: Hand,
    far: TcpStream,
}

impl Client<'_> {
    /// Segment `place` after those that were acknowledged.
    fn piece(&self, place: u32) -> Segment {
        let mut segment = self.hand.segment(PSH | ACK, &[7; PIECE]);
        segment.sequence = self.number(place);
        segment
    }

    fn number(&self, place: u32) -> u32 {
        self.hand.next.wrapping_add(place * PIECE as u32)
    }

    /// What comes back within a while of segment `place`, as in `hear`.
    fn send(&self, place: u32) -> Vec<Vec<(u32, u32)>> {
        self.wire.send(&self.piece(place));
        self.hear()
    }

    /// What has come and comes within a while: of each acknowledgement that tells of a hole, what it tells.
    fn hear(&self) -> Vec<Vec<(u32, u32)>> {
        let mut told = Vec::new();
        while let Some(answer) = self.wire.receive(Duration::from_millis(5)) {
            let sack = answer.sack();
            if answer.to == self.hand.from && !sack.is_empty() {
                told.push(sack);
            }
        }
        told
    }

    /// The server has all up to segment `place`, and the client knows.
    fn all_there(&mut self, place: u32) {
        let mut got = vec![0; place as usize * PIECE];
        self.far.read_exact(&mut got).unwrap();
        self.hand.next = self.number(place);
        // Another millisecond: nothing that follows is a retransmission, or old.
        self.hand.stamp = self.hand.stamp.map(|stamp| stamp + 1000);
    }

    /// Segment 1 is overtaken. What was told of it before it came.
    fn one_late(&mut self) -> usize {
        self.send(0);
        let told = self.send(2).len() + self.send(3).len();
        thread::sleep(LATE);
        self.send(1);
        self.all_there(4);
        told
    }
}

#[test]
fn holes_that_fill_by_themselves_are_kept_from_clients() {
    // With and without a link-layer header.
    for (version, server, unit) in
        [(4, SERVER[0], Unit::Packet), (6, SERVER[1], Unit::Frame), (4, SERVER[0], Unit::Frame)]
    {
        let Some(world) = World::new() else { return };
        let Some(wire) = Wire::new(&world.relay, unit) else { return };
        let Some(mut relay) = start(&world, EARLY) else { return };
        let (listener, address) = world.listen(server);
        let from = SocketAddr::new(host(version, 2), 40_000);
        let hand = Hand::open_with_sack(&wire, from, address);
        let far = accept(&listener);
        let mut client = Client { wire: &wire, hand, far };
        for _ in 0..7 {
            assert_eq!(client.one_late(), 0, "{version} {unit:?}");
        }
        // Another client of the same network begins with what this one has shown.
        let from = SocketAddr::new(host(version, 3), 40_000);
        let hand = Hand::open_with_sack(&wire, from, address);
        let mut another = Client { wire: &wire, hand, far: accept(&listener) };
        assert_eq!(another.one_late(), 0, "{version} {unit:?}");
        // What comes twice meanwhile is told of when the hole has filled: a tail loss probe is answered (RFC 8985, 7.4).
        another.send(0);
        another.send(2);
        another.send(3);
        assert_eq!(another.send(3), [] as [Vec<_>; 0]);
        assert_eq!(another.send(1), [[(another.number(3), another.number(4))]]);
        another.all_there(4);
        // What does not come is told of in the end, and what is behind a younger hole is not.
        client.send(0);
        assert_eq!(client.send(2), [] as [Vec<_>; 0]);
        thread::sleep(HELD);
        client.hear();
        assert_eq!(client.send(4), [[(client.number(2), client.number(3))]]);
        thread::sleep(HELD);
        client.hear();
        let later = client.send(5);
        assert_eq!(later[0][0], (client.number(4), client.number(6)));
        client.send(1);
        client.send(3);
        client.all_there(6);
        let counts = relay.counts();
        assert!(counts["acknowledgement_kept_back"] >= 3, "{counts:?}");
        assert!(counts["acknowledgement_shortened"] >= 1, "{counts:?}");
    }
}

/// A client that has sent all that it may hears of what it has lost without sending anything.
#[test]
fn a_client_that_sends_nothing_more_is_told_of_its_holes_when_they_are_old_enough() {
    const NOTHING: [Vec<(u32, u32)>; 0] = [];
    let mut one_by_one = false;
    for (version, server, unit) in [
        (4, SERVER[0], Unit::Packet),
        (4, SERVER[0], Unit::Frame),
        (6, SERVER[1], Unit::Packet),
        (6, SERVER[1], Unit::Frame),
    ] {
        let Some(world) = World::new() else { return };
        let Some(wire) = Wire::new(&world.relay, unit) else { return };
        let Some(mut relay) = start(&world, EARLY) else { return };
        let (listener, address) = world.listen(server);
        let hand = Hand::open_with_sack(&wire, SocketAddr::new(host(version, 2), 40_000), address);
        let mut client = Client { wire: &wire, hand, far: accept(&listener) };
        // One that has filled is not told of later.
        for _ in 0..4 {
            assert_eq!(client.one_late(), 0);
        }
        thread::sleep(HELD);
        assert_eq!(client.hear(), NOTHING);
        let again = relay.counts()["acknowledgement_sent_again"];
        // Of the older of two holes first: what is behind the younger is not said yet.
        client.send(0);
        assert_eq!(client.send(2), NOTHING);
        assert_eq!(client.send(3), NOTHING);
        assert_eq!(client.send(5), NOTHING);
        let older = (client.number(2), client.number(4));
        let younger = (client.number(5), client.number(6));
        let mut told = Vec::new();
        for _ in 0..30 {
            told.extend(client.hear());
        }
        assert_eq!(told.pop(), Some(vec![younger, older]), "{version} {unit:?}");
        // On a slow machine both are old before the first acknowledgement goes.
        assert!(told.len() <= 1 && told.iter().all(|told| *told == [older]), "{told:?}");
        let times = told.len() as u64 + 1;
        assert_eq!(relay.counts()["acknowledgement_sent_again"], again + times);
        one_by_one |= times == 2;
        client.send(1);
        client.send(4);
        client.all_there(6);
    }
    assert!(one_by_one, "what is behind a younger hole is told with the older");
}

#[test]
fn a_client_is_told_of_every_hole_if_it_is_to_be() {
    let Some(world) = World::new() else { return };
    let Some(wire) = Wire::new(&world.relay, Unit::Packet) else { return };
    let settings = format!("reordering_hold = \"0 s\"\n{EARLY}");
    let Some(_relay) = start(&world, &settings) else { return };
    let (listener, address) = world.listen(SERVER[0]);
    let hand = Hand::open_with_sack(&wire, SocketAddr::new(host(4, 2), 40_000), address);
    let far = accept(&listener);
    let mut client = Client { wire: &wire, hand, far };
    for _ in 0..8 {
        assert_eq!(client.one_late(), 2);
    }
}

#[test]
fn after_one_loss_all_of_a_network_are_told_at_once() {
    let Some(world) = World::new() else { return };
    let Some(wire) = Wire::new(&world.relay, Unit::Packet) else { return };
    let Some(_relay) = start(&world, EARLY) else { return };
    let (listener, address) = world.listen(SERVER[0]);
    for last in [2, 3] {
        let hand = Hand::open_with_sack(&wire, SocketAddr::new(host(4, last), 40_000), address);
        let mut client = Client { wire: &wire, hand, far: accept(&listener) };
        if last == 2 {
            client.send(0);
            client.send(2);
            thread::sleep(HELD);
            assert_eq!(client.hear(), [[(client.number(2), client.number(3))]]);
            assert_eq!(client.send(3), [[(client.number(2), client.number(4))]]);
            client.hand.stamp = client.hand.stamp.map(|stamp| stamp + 100);
            client.send(1);
            client.all_there(4);
        }
        // Of this client, and of its neighbour.
        client.send(0);
        assert_eq!(client.send(2), [[(client.number(2), client.number(3))]], "{last}");
    }
}
