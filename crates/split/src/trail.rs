/// Times that something was sent between two looks at where packets arrive: to look takes two system calls.
const BETWEEN_LOOKS: u32 = 64;
/// The same for a flow that was taken elsewhere again and again.
const MOST_BETWEEN_LOOKS: u32 = BETWEEN_LOOKS << 12;
/// Looks on end that must find the same.
const AGREEING: u32 = 3;

/// Whether a flow is to go to another worker, by whose processor its packets are seen to arrive on.
#[derive(Debug, Clone, Copy)]
pub struct Trail {
    /// Sends until the next look.
    wait: u32,
    between_looks: u32,
    /// The worker that the last looks have found, and how many of them.
    worker: Option<usize>,
    agreeing: u32,
}

impl Trail {
    /// Of a flow that was not looked at yet.
    pub const fn new() -> Trail {
        Trail { wait: BETWEEN_LOOKS, between_looks: BETWEEN_LOOKS, worker: None, agreeing: 0 }
    }

    /// Whether to look, now that something was sent once more.
    pub const fn is_due(&mut self) -> bool {
        self.wait -= 1;
        if self.wait > 0 {
            return false;
        }
        self.wait = self.between_looks;
        true
    }

    /// Takes in a look: the packets of both legs arrive on the processor of this worker, which is another than the
    /// flow's; or none is better than its own. Gives to whom to go, if to go.
    pub fn leads_to(&mut self, worker: Option<usize>) -> Option<usize> {
        self.agreeing = if self.worker == worker { self.agreeing.saturating_add(1) } else { 1 };
        self.worker = worker;
        worker.filter(|_| self.agreeing >= AGREEING)
    }

    /// It was followed, and is again after a longer time: to go costs as much as some sends.
    pub fn followed(&mut self) {
        let between_looks = (self.between_looks * 2).min(MOST_BETWEEN_LOOKS);
        *self = Trail { wait: between_looks, between_looks, ..Trail::new() };
    }
}

impl Default for Trail {
    fn default() -> Self {
        Trail::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends until a look is due.
    fn sends(trail: &mut Trail) -> u32 {
        (1..).find(|_| trail.is_due()).unwrap()
    }

    #[test]
    fn it_is_followed_where_looks_agree() {
        let mut trail = Trail::new();
        assert_eq!([sends(&mut trail), sends(&mut trail)], [BETWEEN_LOOKS; 2]);
        for (looks, found) in [
            (&[Some(1), Some(1), Some(1)], Some(1)),
            (&[None, Some(1), Some(1)], None),
            (&[Some(2), Some(1), Some(2)], None),
            (&[None, None, None], None),
        ] {
            let last = looks.iter().map(|&look| trail.leads_to(look)).last();
            assert_eq!(last, Some(found));
        }
    }

    #[test]
    fn who_goes_to_and_fro_does_so_less_and_less_often() {
        let mut trail = Trail::new();
        for worker in [1, 0, 1, 0] {
            let before = sends(&mut trail);
            while trail.leads_to(Some(worker)).is_none() {}
            trail.followed();
            assert_eq!(sends(&mut trail), before * 2);
        }
        (0..40).for_each(|_| trail.followed());
        assert_eq!(sends(&mut trail), MOST_BETWEEN_LOOKS);
    }
}
