use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What a base station knows of a UE's downlink when one of its packets comes up. Written by the
/// `radio` element and read by the other direction's `wla`, between which [`crate::Link`] keeps the
/// order of time.
#[derive(Debug, Default)]
pub(crate) struct Bearer {
    queued: AtomicU64,
    consecutive: AtomicU32,
    most: AtomicU32,
}

impl Bearer {
    /// Of a HARQ that sends a block again `most` times at most.
    pub(crate) fn new(most: u32) -> Self {
        Bearer { most: AtomicU32::new(most), ..Bearer::default() }
    }

    pub(crate) fn set_queued(&self, bytes: u64) {
        self.queued.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_consecutive(&self, retransmissions: u32) {
        self.consecutive.store(retransmissions, Ordering::Relaxed);
    }

    /// Whether the equivalent queue length has reached `threshold` bytes: equation 1 of Han, Ansari,
    /// Wu, Yu, "TCP-Mobile Edge: accelerating delivery in mobile networks",
    ///
    /// L_E = L_I / (1 - (n / lambda)^3) for n < lambda, L_th for n >= lambda,
    ///
    /// with the instantaneous queue L_I, n consecutive HARQ retransmissions of lambda allowed.
    pub(crate) fn alarms(&self, threshold: u64) -> bool {
        let queued = u128::from(self.queued.load(Ordering::Relaxed));
        let n = u128::from(self.consecutive.load(Ordering::Relaxed));
        let most = u128::from(self.most.load(Ordering::Relaxed));
        if n >= most {
            return true;
        }
        let cube = |x: u128| x * x * x;
        queued.saturating_mul(cube(most))
            >= u128::from(threshold).saturating_mul(cube(most) - cube(n))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarms(queued: u64, n: u32, threshold: u64) -> bool {
        let bearer = Bearer::new(4);
        bearer.set_queued(queued);
        bearer.set_consecutive(n);
        bearer.alarms(threshold)
    }

    /// lambda = 4: 1 / (1 - (n / 4)^3) is 1, 64/63, 8/7, 64/37.
    #[test]
    fn equation_1() {
        for (n, least) in [(0, 6400), (1, 6300), (2, 5600), (3, 3700)] {
            assert!(alarms(least, n, 6400), "{n}");
            assert!(!alarms(least - 1, n, 6400), "{n}");
        }
    }

    /// n at lambda: L_E is the threshold, which counts as reached, whatever the queue.
    #[test]
    fn the_last_retransmission_always_alarms() {
        assert!(alarms(0, 4, u64::MAX));
        assert!(alarms(0, 9, 1));
        assert!(!alarms(0, 3, 1));
    }

    #[test]
    fn no_number_overflows() {
        let bearer = Bearer::new(u32::MAX);
        bearer.set_queued(u64::MAX);
        bearer.set_consecutive(u32::MAX - 1);
        assert!(bearer.alarms(u64::MAX));
    }
}
