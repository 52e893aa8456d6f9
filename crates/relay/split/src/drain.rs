//! When a worker that drains listens no more.

use midspan_units::{Span, Time};

/// How long it still takes connections, at most: those whose handshake was under way when what brought them ended.
const HANDSHAKES: Span = Span::from_secs(1);
/// The same of a worker whose relay another one has taken over from, which is in no hurry: enough for a SYN+ACK that
/// is sent again.
const RETIRING: Span = Span::from_secs(4);
/// How often it looks whether there still are any.
const LOOK: Span = Span::from_millis(20);

/// Why a worker drains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DrainKind {
    /// The relay ends when the last flow has.
    Drain,
    /// Another relay has taken over.
    Retire,
}

/// Decides when the listeners of a worker that drains are closed.
#[derive(Debug, Clone)]
pub struct Drain {
    began: Time,
    kind: DrainKind,
    look: Time,
}

impl Drain {
    /// Of one that begins to.
    pub fn new(kind: DrainKind, now: Time) -> Self {
        // Packets that had been steered are on their way to the listener: the first look is not at once.
        Drain { began: now, kind, look: now + LOOK }
    }

    /// When it is to be asked again.
    pub fn poll_timeout(&self) -> Time {
        self.end().min(self.look)
    }

    /// Whether the listeners are closed now. Only a worker that holds no flows asks whether handshakes are under way: to
    /// look through the sockets of a relay in use takes long, and that is in no hurry.
    pub fn is_over(
        &mut self,
        now: Time,
        holds_flows: bool,
        handshakes_under_way: impl FnOnce() -> bool,
    ) -> bool {
        if now >= self.end() {
            return true;
        }
        if now < self.look {
            return false;
        }
        self.look = now + LOOK;
        self.kind == DrainKind::Drain && !holds_flows && !handshakes_under_way()
    }

    fn end(&self) -> Time {
        let last = match self.kind {
            DrainKind::Drain => HANDSHAKES,
            DrainKind::Retire => RETIRING,
        };
        self.began + last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    #[test]
    fn an_idle_worker_is_done_once_no_handshake_is_under_way() {
        let mut drain = Drain::new(DrainKind::Drain, at(0));
        assert_eq!(drain.poll_timeout(), at(20));
        assert!(!drain.is_over(at(19), false, || unreachable!("it is too early to look")));
        assert!(!drain.is_over(at(20), false, || true));
        assert_eq!(drain.poll_timeout(), at(40));
        assert!(drain.is_over(at(40), false, || false));
    }

    #[test]
    fn one_with_flows_or_that_retires_waits_without_looking() {
        let never = || unreachable!("it is in no hurry");
        let mut drain = Drain::new(DrainKind::Drain, at(0));
        assert!(!drain.is_over(at(999), true, never));
        assert!(drain.is_over(at(1000), true, never));
        let mut drain = Drain::new(DrainKind::Retire, at(0));
        assert!(!drain.is_over(at(3999), false, never));
        assert!(drain.is_over(at(4000), false, never));
    }
}
