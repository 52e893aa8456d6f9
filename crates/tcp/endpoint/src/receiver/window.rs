//! The receive window, and autotuning of the buffer behind it (Fisk, Feng, "Dynamic right-sizing in
//! TCP", 2001, as Linux does it).

use midspan_units::{Span, Time};

use crate::Config;

/// A buffer of n bytes takes a window of half as many: what segments take in memory beside their
/// payload needs the rest (`tcp_adv_win_scale` 1).
const OVERHEAD: u64 = 2;

#[derive(Debug)]
pub(super) struct Window {
    /// Greatest window that the buffer allows, bytes.
    limit: u64,
    /// The same when the buffer is as large as it may get.
    most: u64,
    /// Whether the buffer grows.
    moderate: bool,
    /// The window opens up to here as segments show to be full ones.
    threshold: u64,
    scale: u8,
    mss: u32,
    /// Where the window ends that was advertised last, and the position acknowledged with it.
    right_edge: u64,
    acknowledged: u64,
    /// The caller decides.
    fixed: Option<u64>,
    /// The sender's round trip as seen from here, and the echo it was measured by.
    rtt: Span,
    last_echo: u32,
    /// Bytes read in a round trip, from which position and when on they are counted.
    per_round: u64,
    round_start: (Time, u64),
}

impl Window {
    pub(super) fn new(config: &Config) -> Window {
        let (buffer, most) = match config.so_rcvbuf {
            Some(bytes) => (2 * u64::from(bytes), 2 * u64::from(bytes)),
            None => (u64::from(config.tcp_rmem.initial), u64::from(config.tcp_rmem.max)),
        };
        let limit = buffer / OVERHEAD;
        let mut scale = 0;
        while scale < 14 && most >> scale > u64::from(u16::MAX) {
            scale += 1;
        }
        let mss = u64::from(config.mss);
        Window {
            limit,
            most: (most / OVERHEAD).max(limit),
            moderate: config.tcp_moderate_rcvbuf && config.so_rcvbuf.is_none(),
            threshold: limit.min(u64::from(u16::MAX) / mss * mss),
            scale,
            mss: config.mss,
            right_edge: 1,
            acknowledged: 1,
            fixed: None,
            rtt: Span::ZERO,
            last_echo: 0,
            per_round: 10 * mss,
            round_start: (Time::ZERO, 1),
        }
    }

    pub(super) fn establish(&mut self, now: Time, mss: u32, read: u64) {
        self.mss = mss;
        self.right_edge = self.right_edge.max(1 + u64::from(self.initial()));
        self.round_start = (now, read);
    }

    pub(super) fn scale(&self) -> u8 {
        self.scale
    }

    pub(super) fn initial(&self) -> u16 {
        let window = self.fixed.unwrap_or(self.threshold);
        window.min(u64::from(u16::MAX)) as u16
    }

    pub(super) fn set_limit(&mut self, bytes: Option<u64>) {
        self.fixed = bytes;
    }

    pub(super) fn rtt(&self) -> Span {
        self.rtt
    }

    /// Greatest window.
    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    /// Where the window ends that was advertised last.
    pub(super) fn right_edge(&self) -> u64 {
        self.right_edge
    }

    /// The position that was acknowledged last.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// The window as it was advertised last.
    pub(super) fn offered(&self) -> u64 {
        self.right_edge - self.acknowledged
    }

    /// What is left of it.
    pub(super) fn remaining(&self, nxt: u64) -> u64 {
        self.right_edge.saturating_sub(nxt)
    }

    /// What would be advertised now, with `buffered` bytes held. Not shrunk (RFC 9293, 3.8.6), and
    /// opened only by a full segment or half the buffer (3.8.6.2.2).
    pub(super) fn would_offer(&self, nxt: u64, buffered: u64) -> u64 {
        let remaining = self.remaining(nxt);
        let free = match self.fixed {
            Some(window) => window,
            None => self.room(buffered).min(self.threshold),
        };
        if free < u64::from(self.mss).min(self.limit / 2).max(1) {
            return remaining;
        }
        // Rounded up, or what remains would shrink.
        let step = 1 << self.scale;
        free.max(remaining).next_multiple_of(step).min(u64::from(u16::MAX) << self.scale)
    }

    /// Advertises it: the field to send.
    pub(super) fn advertise(&mut self, nxt: u64, buffered: u64) -> u16 {
        let window = self.would_offer(nxt, buffered);
        let field = (window >> self.scale).min(u64::from(u16::MAX));
        self.acknowledged = nxt;
        self.right_edge = self.right_edge.max(nxt + (field << self.scale));
        field as u16
    }

    /// What the buffer has room for, in bytes of window. What it holds already takes little more memory
    /// than its payload (30,624 bytes for 28,960, as `ss -m` shows), and with it half as much window.
    fn room(&self, buffered: u64) -> u64 {
        self.limit.saturating_sub(buffered / OVERHEAD)
    }

    /// A segment came, in order or not: if its payload is worth its memory, the window may open further.
    pub(super) fn grow(&mut self, payload: u32, buffered: u64) {
        if payload < 128 {
            return;
        }
        let room = self.room(buffered).saturating_sub(self.threshold);
        self.threshold += room.min(2 * u64::from(payload.max(self.mss)));
    }

    /// A segment came that echoes `echo`.
    pub(super) fn observe_rtt(&mut self, now: Time, echo: u32, full: bool) {
        if echo == 0 || echo == self.last_echo || !full {
            return;
        }
        self.last_echo = echo;
        let millis = crate::timestamp(now).wrapping_sub(echo).max(1);
        let sample = Span::from_millis(u64::from(millis).min(60_000));
        self.rtt = if self.rtt == Span::ZERO { sample } else { (self.rtt * 7 + sample) / 8 };
    }

    /// The application has read up to `read`: once a round trip the buffer is fitted to twice what
    /// it reads in one, and to more while that grows.
    pub(super) fn moderate(&mut self, now: Time, read: u64) {
        let (since, from) = self.round_start;
        if self.rtt == Span::ZERO || now.since(since) < self.rtt {
            return;
        }
        let copied = read - from;
        self.round_start = (now, read);
        if copied <= self.per_round {
            return;
        }
        if self.moderate {
            let base = 2 * copied + 16 * u64::from(self.mss);
            let growth = u128::from(base) * u128::from(copied - self.per_round)
                / u128::from(self.per_round.max(1));
            let wanted = u128::from(base) + 2 * growth;
            self.limit = self.limit.max(wanted.min(u128::from(self.most)) as u64);
        }
        self.per_round = copied;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    /// RFC 9293, 3.8.6: whatever is held and however little has come, the end of the window stays or moves on.
    #[test]
    fn the_window_never_shrinks() {
        let mut window = Window::new(&Config::default());
        let (mut nxt, mut right_edge) = (1, 0);
        for step in 0..500_u64 {
            let field = window.advertise(nxt, step % 7 * 9_000);
            let end = nxt + (u64::from(field) << window.scale());
            assert!(end >= right_edge, "step {step}: from {right_edge} to {end}");
            right_edge = end;
            nxt += (step * 37 % 1448).min(right_edge - nxt);
        }
    }

    /// A buffer of 1 MB is a window of half as many bytes; what it holds out of order takes half of its
    /// length off that.
    #[test]
    fn what_is_held_takes_half_as_much_window() {
        let memory = Memory { initial: 1 << 20, max: 1 << 20 };
        let mut window = Window::new(&Config { tcp_rmem: memory, ..Config::default() });
        for _ in 0..1000 {
            window.grow(1448, 0);
        }
        let (empty, held) = (window.would_offer(1, 0), window.would_offer(1, 200_000));
        assert!(empty.abs_diff(1 << 19) <= 1 << window.scale, "{empty}");
        assert!((empty - held).abs_diff(100_000) <= 1 << window.scale, "{held}");
    }
}
