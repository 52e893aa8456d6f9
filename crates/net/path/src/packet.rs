/// The ECN field of an IP header (RFC 3168, section 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Ecn {
    /// The transport cannot use marks: congestion is told by dropping.
    #[default]
    NotEct,
    /// ECN-capable transport, code point 10.
    Ect0,
    /// ECN-capable transport, code point 01.
    Ect1,
    /// Congestion experienced.
    Ce,
}

impl Ecn {
    /// Whether a mark may stand in for a drop: any code point but [`Ecn::NotEct`].
    pub const fn is_capable(self) -> bool {
        !matches!(self, Ecn::NotEct)
    }
}

/// A packet as elements see it: the emulator's hold real bytes, the simulator's hold segments.
pub trait Packet {
    /// Bytes on the wire, IP header included and link-layer framing not.
    fn wire_bytes(&self) -> u32;

    /// The number of the segmentation-offload super-packet that this packet was cut from.
    /// Consecutive packets with the same number were handed over as one (at most 64 KiB); a sender
    /// without offload gives each packet a number of its own.
    fn burst(&self) -> u64;

    /// The ECN field.
    fn ecn(&self) -> Ecn;

    /// Sets the ECN field to congestion experienced. Called only on ECN-capable packets, and on pure
    /// acknowledgements, on which the mark is TCP-ME's wireless loss alarm.
    fn mark_ce(&mut self);

    /// Whether it is a TCP segment that acknowledges and does nothing else: no data, no SYN, FIN or
    /// RST.
    fn is_pure_ack(&self) -> bool;
}
