//! What the send buffer holds, and when the application may write.

use super::Sender;
use super::pacing::GSO_MAX_SIZE;

/// What Linux reckons that a full packet takes of the send buffer (as `ss -m` shows: a new connection
/// has room for 20 of them, 87,040 bytes).
const PACKET_MEMORY: u64 = 4352;
/// What a burst takes beside its payload, as `ss -m` shows.
const BURST_MEMORY: u64 = 832;

impl Sender {
    /// The application wants to write so much; answers how much was taken.
    pub(crate) fn write(&mut self, bytes: u64) -> u64 {
        let taken = bytes.min(self.room());
        self.written += taken;
        if bytes > 0 {
            self.full = taken < bytes;
        }
        taken
    }

    /// Bytes that the application may write now. One that found no room is woken when a third of the buffer
    /// is free, or half of what may wait unsent (`tcp_notsent_lowat`).
    pub(crate) fn room(&self) -> u64 {
        let (memory, buffer) = (self.memory(), self.buffer);
        let unsent = self.unsent() * if self.full { 2 } else { 1 };
        let unsent_limit = self.config.tcp_notsent_lowat.map_or(u64::MAX, u64::from);
        if unsent >= unsent_limit || (self.full && 3 * memory > 2 * buffer) {
            return 0;
        }
        // Whether there is room is asked for each burst, and not whether all of it fits.
        let burst = GSO_MAX_SIZE / u64::from(self.config.mss) * u64::from(self.config.mss);
        buffer.saturating_sub(memory).div_ceil(burst + BURST_MEMORY) * burst
    }

    /// How much of the buffer is taken by what is written and not acknowledged. Bytes that wait are kept in the longest
    /// bursts that there are, and cut as they are sent.
    fn memory(&self) -> u64 {
        let held = self.written - self.una.min(self.written);
        let bursts = u64::from(self.board.bursts()) + self.unsent().div_ceil(GSO_MAX_SIZE);
        held + bursts * BURST_MEMORY
    }

    /// Lets the buffer grow to twice the window, or three times for BBR, where the program has not fixed it. Not
    /// while there is enough to fill the window; and it never shrinks.
    pub(super) fn expand_buffer(&mut self) {
        if self.config.so_sndbuf.is_some() || self.fills_window() {
            return;
        }
        let windows = if self.owns_rate() { 3 } else { 2 };
        let packets = self.cwnd().max(self.config.initcwnd).max(self.reordering + 1);
        let memory = windows * u64::from(packets) * PACKET_MEMORY;
        let (least, most) = (self.config.tcp_wmem.initial, self.config.tcp_wmem.max);
        self.buffer = self.buffer.max(memory.clamp(u64::from(least), u64::from(most.max(least))));
    }

    fn fills_window(&self) -> bool {
        let mss = u64::from(self.config.mss);
        u64::from(self.board.in_flight()) * mss + self.unsent() >= u64::from(self.cwnd()) * mss
    }
}
