//! The client's end of a connection, driven by hand.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use socket2::SockRef;

use crate::peer::{ACK, PSH, RST, SYN, Segment, Wire};
use crate::world::PATIENCE;

pub(crate) fn accept(listener: &TcpListener) -> TcpStream {
    SockRef::from(listener).set_read_timeout(Some(PATIENCE)).unwrap();
    let (far, _) = listener.accept().expect("no connection in time");
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    far
}

/// The client's end of a connection, driven by hand.
pub(crate) struct Hand {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) next: u32,
    pub(crate) heard: u32,
}

impl Hand {
    pub(crate) fn open(wire: &Wire, from: SocketAddr, to: SocketAddr, sequence: u32) -> Hand {
        let mut hand = Hand { from, to, next: sequence, heard: 0 };
        let mut syn = hand.segment(SYN, b"");
        syn.acknowledgement = 0;
        wire.send(&syn);
        let answer = hand.await_segment(wire, |answer| answer.flags == SYN | ACK);
        assert_eq!(answer.acknowledgement, sequence + 1);
        (hand.next, hand.heard) = (syn.next(), answer.next());
        wire.send(&hand.segment(ACK, b""));
        hand
    }

    /// Says something, which the server hears, and which is acknowledged.
    pub(crate) fn say(&mut self, wire: &Wire, far: &mut TcpStream, words: &[u8]) {
        let segment = self.segment(PSH | ACK, words);
        wire.send(&segment);
        self.next = segment.next();
        let mut heard = vec![0; words.len()];
        far.read_exact(&mut heard).unwrap();
        assert_eq!(heard, words);
        let next = self.next;
        self.await_segment(wire, |answer| answer.acknowledgement == next);
        far.write_all(b"!").unwrap();
        let answer = self.await_segment(wire, |answer| answer.payload == b"!");
        self.heard = answer.next();
        wire.send(&self.segment(ACK, b""));
    }

    pub(crate) fn await_segment(&self, wire: &Wire, wanted: impl Fn(&Segment) -> bool) -> Segment {
        loop {
            let segment = wire.receive(PATIENCE).expect("no answer in time");
            let is_ours = segment.to == self.from && segment.from == self.to;
            assert!(!is_ours || segment.flags & RST == 0, "{segment:?}");
            if is_ours && wanted(&segment) {
                return segment;
            }
        }
    }

    pub(crate) fn segment(&self, flags: u8, payload: &[u8]) -> Segment {
        let mut segment = Segment::new(self.from, self.to, flags);
        (segment.sequence, segment.acknowledgement) = (self.next, self.heard);
        segment.payload = payload.to_vec();
        segment
    }
}
