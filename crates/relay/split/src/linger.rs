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
}

impl Linger {
    /// Time without an acknowledgement before the rest is given up.
    pub const PATIENCE: Span = Span::from_secs(10);

    /// Whether to give up, where the peer has acknowledged so many bytes in all by now.
    pub fn is_over(&mut self, acknowledged: u64, now: Time) -> bool {
        match self.since {
            Some(since) if acknowledged <= self.acknowledged => {
                now.since(since) >= Linger::PATIENCE
            }
            _ => {
                *self = Linger { acknowledged, since: Some(now) };
                false
            }
        }
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
}
