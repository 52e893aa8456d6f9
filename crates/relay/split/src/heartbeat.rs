//! When a worker says that it lives, and what it has room for.

use midspan_units::{Span, Time};

/// How often it does where connections are steered to it, which takes its word for half a second.
const PERIOD: Span = Span::from_millis(100);
/// The same where only an operator is told.
const SLOW_PERIOD: Span = Span::from_secs(1);
/// Connections after which it does at once, for the room that it has is less.
const NEWS: u64 = 64;

/// What a worker has to say of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vitals {
    /// It takes connections.
    pub open: bool,
    /// It has buffers for more.
    pub has_buffers: bool,
    /// So many more flows the limits let it take, if it has buffers.
    pub room: u32,
    /// So many it has taken ever.
    pub accepted: u64,
}

impl Vitals {
    /// How many more flows it offers to take.
    pub const fn offered(&self) -> u32 {
        if self.has_buffers { self.room } else { 0 }
    }
}

/// Decides when a worker speaks.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    due: Time,
    said: Option<Vitals>,
}

impl Heartbeat {
    /// Of one that has said nothing yet, and is to.
    pub const fn new(now: Time) -> Self {
        Heartbeat { due: now, said: None }
    }

    /// When it is to speak if nothing changes.
    pub const fn poll_timeout(&self) -> Time {
        self.due
    }

    /// It is to speak in the next round: what it goes by has changed.
    pub fn hurry(&mut self, now: Time) {
        self.due = now;
    }

    /// Whether it speaks now, and whether because its time has come; else because of news, which it has for `steered`
    /// connections alone.
    pub fn beat(&mut self, now: Time, vitals: Vitals, steered: bool) -> Option<Beat> {
        let is_due = now >= self.due;
        let speaks = is_due || steered && self.is_news(&vitals);
        if !speaks {
            return None;
        }
        self.due = now + if steered { PERIOD } else { SLOW_PERIOD };
        self.said = Some(vitals);
        Some(Beat { is_due })
    }

    fn is_news(&self, now: &Vitals) -> bool {
        // That there is none any more is news; how much there is, is not.
        let kind = |vitals: &Vitals| (vitals.open, vitals.has_buffers, vitals.offered() > 0);
        self.said.is_none_or(|said| {
            kind(&said) != kind(now) || now.accepted.saturating_sub(said.accepted) >= NEWS
        })
    }
}

/// A worker speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// Its time has come: what is done once a period is done too.
    pub is_due: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Vitals = Vitals { open: true, has_buffers: true, room: 10, accepted: 0 };

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn said() -> Heartbeat {
        let mut heartbeat = Heartbeat::new(at(0));
        assert_eq!(heartbeat.beat(at(0), IDLE, true), Some(Beat { is_due: true }));
        heartbeat
    }

    #[test]
    fn it_speaks_ten_times_a_second_or_once_where_nothing_is_steered() {
        let mut heartbeat = said();
        assert_eq!(heartbeat.poll_timeout(), at(100));
        assert_eq!(heartbeat.beat(at(99), IDLE, true), None);
        assert_eq!(heartbeat.beat(at(100), IDLE, false), Some(Beat { is_due: true }));
        assert_eq!(heartbeat.poll_timeout(), at(1100));
    }

    #[test]
    fn news_do_not_wait_where_connections_are_steered() {
        for news in [
            Vitals { open: false, ..IDLE },
            Vitals { has_buffers: false, ..IDLE },
            Vitals { room: 0, ..IDLE },
            Vitals { accepted: 64, ..IDLE },
        ] {
            assert_eq!(said().beat(at(1), news, true), Some(Beat { is_due: false }), "{news:?}");
            assert_eq!(said().beat(at(1), news, false), None, "{news:?}");
        }
        // Told once.
        let mut heartbeat = said();
        let closed = Vitals { open: false, ..IDLE };
        assert!(heartbeat.beat(at(1), closed, true).is_some());
        assert_eq!(heartbeat.beat(at(2), closed, true), None);
    }

    #[test]
    fn a_little_more_or_less_is_no_news() {
        let mut heartbeat = said();
        assert_eq!(heartbeat.beat(at(1), Vitals { room: 1, accepted: 63, ..IDLE }, true), None);
        heartbeat.hurry(at(1));
        assert_eq!(heartbeat.beat(at(1), IDLE, true), Some(Beat { is_due: true }));
    }

    #[test]
    fn room_without_buffers_is_none_to_offer() {
        assert_eq!(IDLE.offered(), 10);
        assert_eq!(Vitals { has_buffers: false, ..IDLE }.offered(), 0);
    }
}
