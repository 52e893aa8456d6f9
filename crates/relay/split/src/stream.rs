/// How much of one direction may be held, and when reading stops and starts again.
///
/// Reading stops when `high` bytes are held and starts again when no more than `low` are, so that
/// a slow reader is fed in large pieces instead of one segment's worth at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    low: u64,
    high: u64,
}

impl Watermarks {
    /// Holds at most `limit` bytes and reads again when half of them have gone. A limit of zero
    /// would move nothing and is taken as one.
    pub const fn up_to(limit: u64) -> Self {
        Watermarks::between(limit / 2, limit)
    }

    /// Holds at most `high` bytes and reads again when no more than `low` are left; `low` is
    /// brought below `high` where it is not.
    pub const fn between(low: u64, high: u64) -> Self {
        let high = if high == 0 { 1 } else { high };
        let low = if low < high { low } else { high - 1 };
        Watermarks { low, high }
    }

    /// The most that is ever held, in bytes.
    pub const fn limit(self) -> u64 {
        self.high
    }
}

/// One direction of a flow: bytes read from one leg, on their way to the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream {
    marks: Watermarks,
    received: u64,
    sent: u64,
    acknowledged: u64,
    /// Held bytes reached the high mark and have not yet fallen to the low one.
    paused: bool,
    end: End,
}

/// How far the end of a direction has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    /// More bytes may come.
    Open,
    /// The source has sent its FIN.
    Read,
    /// Our own FIN followed the last byte.
    Sent,
    /// All of it, the FIN included, is acknowledged.
    Acknowledged,
}

impl Stream {
    pub(crate) const fn new(marks: Watermarks) -> Self {
        Stream { marks, received: 0, sent: 0, acknowledged: 0, paused: false, end: End::Open }
    }

    /// Holds as much as these say from now on. What is held already stays, though it be more.
    pub(crate) fn set_marks(&mut self, marks: Watermarks) {
        self.marks = marks;
        self.paused |= self.held() >= marks.high;
        self.paused &= self.held() > marks.low;
    }

    pub(crate) const fn received(&self) -> u64 {
        self.received
    }

    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Read and not yet given to the other leg.
    pub(crate) const fn held(&self) -> u64 {
        self.received - self.sent
    }

    /// Given to the other leg and not yet acknowledged by its peer.
    pub(crate) const fn in_flight(&self) -> u64 {
        self.sent - self.acknowledged
    }

    pub(crate) fn may_read(&self) -> u64 {
        if self.end > End::Open || self.paused {
            0
        } else {
            self.marks.high.saturating_sub(self.held())
        }
    }

    pub(crate) fn must_finish(&self) -> bool {
        self.end == End::Read && self.held() == 0
    }

    /// The source has sent its FIN, and it was read.
    pub(crate) fn is_read(&self) -> bool {
        self.end >= End::Read
    }

    /// Our FIN followed all of it.
    pub(crate) fn is_sent(&self) -> bool {
        self.end >= End::Sent
    }

    pub(crate) fn awaits_drain(&self) -> bool {
        self.end == End::Sent
    }

    pub(crate) fn is_over(&self) -> bool {
        self.end == End::Acknowledged
    }

    /// False if that many were not asked for.
    #[must_use]
    pub(crate) fn receive(&mut self, bytes: u64) -> bool {
        let taken = bytes.min(self.may_read());
        self.received += taken;
        self.paused |= self.held() >= self.marks.high;
        taken == bytes
    }

    /// False if that many were not held.
    #[must_use]
    pub(crate) fn send(&mut self, bytes: u64) -> bool {
        let given = bytes.min(self.held());
        self.sent += given;
        self.paused &= self.held() > self.marks.low;
        given == bytes
    }

    /// False if that many were not in flight.
    #[must_use]
    pub(crate) fn acknowledge(&mut self, bytes: u64) -> bool {
        let done = bytes.min(self.in_flight());
        self.acknowledged += done;
        done == bytes
    }

    pub(crate) fn end(&mut self) {
        self.end = self.end.max(End::Read);
    }

    /// False if our FIN was not due.
    #[must_use]
    pub(crate) fn finish(&mut self) -> bool {
        let due = self.must_finish();
        if due {
            self.end = End::Sent;
        }
        due
    }

    /// The send queue of the leg written to is empty.
    pub(crate) fn drain(&mut self) {
        self.acknowledged = self.sent;
        if self.end == End::Sent {
            self.end = End::Acknowledged;
        }
    }
}
