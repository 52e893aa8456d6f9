//! What is known of a connection of which it was drawn whether to split it.

use core::net::SocketAddr;
use std::time::Duration;

use midspan_gain::Arm;

/// A connection that was split, or left alone for comparison, as the steering program has seen it. Times are those of the
/// system's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drawn {
    /// Who opened it.
    pub client: SocketAddr,
    /// Whom it was opened to.
    pub server: SocketAddr,
    /// Whether it was split.
    pub arm: Arm,
    /// Of a thousand so many were to be left alone.
    pub per_mille: u16,
    /// When the slot began in which all connections of its client had the same lot.
    pub slot: Duration,
    /// When its SYN passed first.
    pub start: Duration,
    /// From the client.
    pub up: Sent,
    /// From the server.
    pub down: Sent,
}

/// What was sent in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    /// Bytes of payload, each counted once however often it was sent.
    pub bytes: u64,
    /// When the last new one passed; none if none did.
    pub last: Option<Duration>,
    /// When who they are for acknowledged the last that it had not before; none if it has acknowledged none.
    pub acknowledged: Option<Duration>,
}

impl Sent {
    /// Whether something of it is not acknowledged yet.
    fn is_under_way(&self) -> bool {
        match (self.last, self.acknowledged) {
            (Some(sent), Some(acknowledged)) => sent > acknowledged,
            (sent, _) => sent.is_some(),
        }
    }
}

impl Drawn {
    /// When all that was sent was acknowledged, as far as one can see; now, of an open one, if it is not. None if nothing was
    /// sent.
    pub(crate) fn completed(&self, now: Option<Duration>) -> Option<Duration> {
        let ways = [self.up, self.down];
        match now {
            Some(now) if ways.iter().any(Sent::is_under_way) => Some(now),
            _ => ways.iter().filter_map(|way| way.acknowledged).max(),
        }
    }
}
