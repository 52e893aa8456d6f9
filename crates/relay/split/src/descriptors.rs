use crate::admission::Limits;

/// How a process's descriptors are shared out among what its workers need them for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// Flows, with two each.
    pub flows: u32,
    /// Pipes of each worker, with two each.
    pub pipes_per_worker: usize,
}

impl Descriptors {
    /// Shares `limit` of them out: a quarter for pipes, the rest for flows, but for what the program, its
    /// `workers` and the listeners that these have for each of `forwards` need themselves.
    pub fn share_out(limit: u64, workers: usize, forwards: usize) -> Descriptors {
        /// Standard streams, signals, nft or BPF, logs, who looks in.
        const PROGRAM: u64 = 64;
        /// Two of epoll, io_uring, wake-up, two listeners, a connection to be refused and its server leg.
        const WORKER: u64 = 8;
        let pipes_per_worker = limit / 8 / workers as u64;
        let taken = PROGRAM + workers as u64 * (WORKER + forwards as u64 + 2 * pipes_per_worker);
        let flows = limit.saturating_sub(taken) / 2;
        Descriptors {
            flows: u32::try_from(flows).unwrap_or(u32::MAX).max(1),
            pipes_per_worker: pipes_per_worker as usize,
        }
    }

    /// What is admitted where so much is wanted: never more than there are descriptors for. With some to
    /// spare a connection too many can be taken, and reset, instead of waiting for ever.
    pub fn limits(self, wanted: Limits) -> Limits {
        Limits { flows: wanted.flows.min(self.flows), ..wanted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_enough_for_all_at_once() {
        for limit in [256, 1024, 20_000, 1 << 20] {
            for workers in [1, 2, 16] {
                let share = Descriptors::share_out(limit, workers, 0);
                let pipes = 2 * (share.pipes_per_worker * workers) as u64;
                assert!(u64::from(share.flows) * 2 + pipes < limit, "{limit} {workers} {share:?}");
            }
        }
        let of = |forwards| Descriptors::share_out(20_000, 2, forwards).flows;
        assert!(of(0) > 7_000);
        // Each of 100 listeners in each of two workers.
        assert_eq!(of(0) - of(100), 100);
    }

    #[test]
    fn no_more_is_admitted_than_there_are_descriptors_for() {
        let share = Descriptors { flows: 10, pipes_per_worker: 1 };
        let wanted = |flows| Limits { flows, flows_per_client: 3 };
        assert_eq!(share.limits(wanted(u32::MAX)), wanted(10));
        assert_eq!(share.limits(wanted(9)), wanted(9));
    }
}
