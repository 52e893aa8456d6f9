/// A TCP segment: the header's fields, and the length of a payload that is not there.
///
/// Sequence numbers wrap, as on the wire. The ECN field of the IP header is kept here too, as
/// [`Segment::ect`] and [`Segment::ce`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Segment {
    /// Sequence number of the first byte, or of the SYN.
    pub seq: u32,
    /// Next byte expected, if [`Segment::ack_flag`].
    pub ack: u32,
    /// Bytes of payload.
    pub payload: u32,
    /// Timestamps option (RFC 7323): `TSval` and `TSecr`.
    pub timestamps: (u32, u32),
    /// SACK option (RFC 2018), the first [`Segment::sack_count`] of these: first byte, and the one
    /// after the last.
    pub sack: [(u32, u32); 3],
    /// The window field, not yet scaled.
    pub window: u16,
    /// MSS option; on a SYN only.
    pub mss: u16,
    /// Window scale option (RFC 7323); on a SYN only.
    pub window_scale: u8,
    /// SACK permitted (RFC 2018); on a SYN only.
    pub sack_permitted: bool,
    /// How many SACK blocks there are.
    pub sack_count: u8,
    /// SYN.
    pub syn: bool,
    /// ACK.
    pub ack_flag: bool,
    /// FIN.
    pub fin: bool,
    /// RST.
    pub rst: bool,
    /// PSH.
    pub psh: bool,
    /// ECN-Echo (RFC 3168).
    pub ece: bool,
    /// Congestion window reduced (RFC 3168).
    pub cwr: bool,
    /// The IP header says ECN-capable transport.
    pub ect: bool,
    /// The IP header says congestion experienced.
    pub ce: bool,
}

/// IPv4 and TCP header without options.
const HEADERS: u32 = 40;
/// MSS, SACK permitted, timestamps, window scale, as Linux lays them out.
const SYN_OPTIONS: u32 = 20;
/// Timestamps with padding.
const TIMESTAMPS: u32 = 12;

impl Segment {
    /// Bytes on the wire, the IPv4 header included and link-layer framing not.
    pub fn wire_bytes(&self) -> u32 {
        let options = match (self.syn, self.sack_count) {
            (true, _) => SYN_OPTIONS,
            (false, 0) => TIMESTAMPS,
            (false, blocks) => TIMESTAMPS + 4 + 8 * u32::from(blocks),
        };
        HEADERS + options + self.payload
    }

    /// The blocks of its SACK option.
    pub fn sack_blocks(&self) -> &[(u32, u32)] {
        &self.sack[..usize::from(self.sack_count)]
    }

    /// How much of the sequence space it takes.
    pub(crate) fn length(&self) -> u32 {
        self.payload + u32::from(self.syn) + u32::from(self.fin)
    }
}

/// The position nearest to `near` whose sequence number is `seq`, where position 0 has `initial`.
/// Positions count from the SYN and do not wrap.
pub(crate) fn position(initial: u32, near: u64, seq: u32) -> u64 {
    let here = initial.wrapping_add(near as u32);
    let offset = seq.wrapping_sub(here).cast_signed();
    near.saturating_add_signed(i64::from(offset))
}

/// The sequence number of a position.
pub(crate) fn sequence(initial: u32, position: u64) -> u32 {
    initial.wrapping_add(position as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_wrap_and_positions_do_not() {
        let initial = u32::MAX - 10;
        for at in [0u64, 5, 11, 1 << 31, (1 << 40) + 3] {
            for near in [at, at + 1000, at.saturating_sub(1000)] {
                assert_eq!(position(initial, near, sequence(initial, at)), at);
            }
        }
        assert_eq!(position(7, 0, 6), 0, "nothing is before the SYN");
    }

    #[test]
    fn a_full_packet_fills_1500_bytes() {
        let data = Segment { payload: 1448, ..Segment::default() };
        assert_eq!(data.wire_bytes(), 1500);
        assert_eq!(Segment { syn: true, ..Segment::default() }.wire_bytes(), 60);
        assert_eq!(Segment { sack_count: 3, ..Segment::default() }.wire_bytes(), 80);
    }
}
