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
    /// Its segments' timestamps, milliseconds, if it has any (RFC 7323). It understands SACK then too.
    pub(crate) stamp: Option<u32>,
}

impl Hand {
    pub(crate) fn open(wire: &Wire, from: SocketAddr, to: SocketAddr, sequence: u32) -> Hand {
        Hand { from, to, next: sequence, heard: 0, stamp: None }.connect(wire)
    }

    pub(crate) fn open_with_sack(wire: &Wire, from: SocketAddr, to: SocketAddr) -> Hand {
        Hand { from, to, next: 7, heard: 0, stamp: Some(1000) }.connect(wire)
    }

    fn connect(mut self, wire: &Wire) -> Hand {
        let sequence = self.next;
        let hand = &mut self;
        let mut syn = hand.segment(SYN, b"");
        syn.acknowledgement = 0;
        wire.send(&syn);
        let answer = hand.await_segment(wire, |answer| answer.flags == SYN | ACK);
        assert_eq!(answer.acknowledgement, sequence + 1);
        (hand.next, hand.heard) = (syn.next(), answer.next());
        wire.send(&hand.segment(ACK, b""));
        self
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
        if let Some(stamp) = self.stamp {
            segment.options = match flags & SYN {
                0 => vec![1, 1, 8, 10],
                // SACK permitted.
                _ => vec![4, 2, 8, 10],
            };
            segment.options.extend(stamp.to_be_bytes());
            segment.options.extend([0; 4]);
        }
        segment
    }
}
