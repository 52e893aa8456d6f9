use midspan_path::{Ecn, Packet};
use midspan_tcp::Segment;

/// A segment on its way to a socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Datagram {
    pub(crate) segment: Segment,
    /// The UE whose connection it belongs to.
    pub(crate) ue: u32,
    /// The socket that it is for.
    pub(crate) to: u32,
    /// The connection that it belongs to: sockets' numbers are given again.
    pub(crate) connection: u32,
    burst: u64,
}

impl Datagram {
    /// `burst` is the sending socket's number of the burst; sockets' bursts are told apart.
    pub(crate) fn new(segment: Segment, ue: u32, to: u32, connection: u32, burst: u64) -> Datagram {
        let burst = burst << 32 | u64::from(to);
        Datagram { segment, ue, to, connection, burst }
    }
}

impl Packet for Datagram {
    fn wire_bytes(&self) -> u32 {
        self.segment.wire_bytes()
    }

    fn burst(&self) -> u64 {
        self.burst
    }

    fn ecn(&self) -> Ecn {
        match (self.segment.ce, self.segment.ect) {
            (true, _) => Ecn::Ce,
            (false, true) => Ecn::Ect0,
            (false, false) => Ecn::NotEct,
        }
    }

    fn mark_ce(&mut self) {
        self.segment.ce = true;
    }

    fn is_pure_ack(&self) -> bool {
        let Segment { payload, ack_flag, syn, fin, rst, .. } = self.segment;
        payload == 0 && ack_flag && !(syn || fin || rst)
    }
}
