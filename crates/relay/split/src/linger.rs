use midspan_units::{Span, Time};

/// How long the peer of a leg gets to take what it is still owed, when the other leg
/// [has failed](crate::Flow::lose).
///
/// It is not limited in all, as what is left may take long on a slow link, but in how long nothing more
/// is acknowledged.
#[derive(Debug, Clone, Copy, Default)]
pub struct Linger {
    acknowledged: u64,
    since: Option<Time>,
    /// When all was seen to be acknowledged.
    delivered: Option<Time>,
}

impl Linger {
    /// Time without an acknowledgement before the rest is given up.
    pub const PATIENCE: Span = Span::from_secs(10);

    /// Time between a client's acknowledgement of the last that its server had to say, and the reset.
    ///
    /// A client that still sends when its server answers and closes would else be told of the reset by its next
    /// write, and never look for the answer (RFC 9112, 9.6). What acknowledges is its kernel: this is for its
    /// application to run.
    pub const GRACE: Span = Span::from_millis(50);

    /// Whether to give up, where the peer has acknowledged so many bytes in all by now.
    pub fn is_over(&mut self, acknowledged: u64, now: Time) -> bool {
        match self.since {
            Some(since) if acknowledged <= self.acknowledged => {
                now.since(since) >= Linger::PATIENCE
            }
            _ => {
                (self.acknowledged, self.since) = (acknowledged, Some(now));
                false
            }
        }
    }

    /// The peer has acknowledged all of it by now.
    pub fn delivered(&mut self, now: Time) {
        self.delivered.get_or_insert(now);
    }

    /// Whether a client that has all of it by now has had [its time](Linger::GRACE).
    pub fn has_had_time(&self, now: Time) -> bool {
        self.delivered.is_some_and(|since| now.since(since) >= Linger::GRACE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_on_acknowledging_may_take_for_ever() {
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        let mut linger = Linger::default();
        for step in 0..100 {
            assert!(!linger.is_over(step, at(9 * step)));
        }
        assert!(!linger.is_over(99, at(9 * 99 + 9)));
        assert!(linger.is_over(99, at(9 * 99 + 10)));
    }

    #[test]
    fn who_has_all_of_it_has_time_to_read_it() {
        let at = |millis| Time::ZERO + Span::from_millis(millis);
        let mut linger = Linger::default();
        assert!(!linger.has_had_time(at(1_000)));
        linger.delivered(at(1_000));
        linger.delivered(at(1_010));
        assert!(!linger.has_had_time(at(1_049)));
        assert!(linger.has_had_time(at(1_050)));
    }
}
