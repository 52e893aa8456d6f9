use std::collections::BTreeMap;

/// What a direction has done so far. At any moment
/// `packets_in == packets_out + packets_queued + ` all of `dropped`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets that came in.
    pub packets_in: u64,
    /// Bytes that came in, IP headers included.
    pub bytes_in: u64,
    /// Packets that were handed out.
    pub packets_out: u64,
    /// Bytes that were handed out, IP headers included.
    pub bytes_out: u64,
    /// Packets inside now, those that have left but were not yet collected included.
    pub packets_queued: u64,
    /// Bytes of these.
    pub bytes_queued: u64,
    /// Packets dropped by intent, by cause: `queue`, `red`, `ecn-threshold`, `codel`, `loss`,
    /// `gilbert-elliott`, `policer`, `rlc-buffer`, `external`. A cause that never struck is not listed.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Packets marked congestion-experienced that were not so before.
    pub marked: u64,
}

impl Counters {
    /// Packets dropped by whatever cause.
    pub fn packets_dropped(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// The same of a part of several beside each other.
    pub fn add(&mut self, other: &Counters) {
        self.packets_in += other.packets_in;
        self.bytes_in += other.bytes_in;
        self.packets_out += other.packets_out;
        self.bytes_out += other.bytes_out;
        self.packets_queued += other.packets_queued;
        self.bytes_queued += other.bytes_queued;
        self.marked += other.marked;
        other.dropped.iter().for_each(|(cause, count)| self.add_dropped(cause, *count));
    }

    pub(crate) fn add_dropped(&mut self, cause: &'static str, packets: u64) {
        if packets > 0 {
            *self.dropped.entry(cause).or_default() += packets;
        }
    }
}
