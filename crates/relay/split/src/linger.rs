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
    has_had_time: bool,
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
        let since = *self.delivered.get_or_insert(now);
        self.has_had_time = now.since(since) >= Linger::GRACE;
    }

    /// Whether a client that has all of it has had [its time](Linger::GRACE) when that was last seen.
    pub fn has_had_time(&self) -> bool {
        self.has_had_time
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
        assert!(!linger.has_had_time());
        for millis in [1_000, 1_010, 1_049] {
            linger.delivered(at(millis));
            assert!(!linger.has_had_time());
        }
        linger.delivered(at(1_050));
        assert!(linger.has_had_time());
    }
}
