//! How the process's descriptors are shared out, and what of the limits follows from that.

use midspan_config::Config;
use midspan_split::Limits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How the process's descriptors are used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptors {
    /// Flows, with two each.
    pub(crate) flows: u32,
    /// Pipes of each worker, with two each.
    pub(crate) pipes_per_worker: usize,
}

impl Descriptors {
    /// Raises the soft limit to the hard one and shares it out: a quarter for pipes, the rest for
    /// flows, but for what the program needs itself.
    pub(crate) fn share_out(workers: usize, forwards: usize) -> Descriptors {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        let limit = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(_) => limit.current,
        };
        // Unlimited is not meant literally: /proc/sys/fs/nr_open ends it.
        Self::of(limit.unwrap_or(1 << 20).min(1 << 20), workers, forwards)
    }

    /// How many flows may be open at one time. Never more than there are descriptors for: with
    /// some to spare a connection too many can be taken, and reset, instead of waiting for ever.
    pub(crate) fn limit(self, config: &Config) -> u32 {
        config.limits.flows.unwrap_or(u32::MAX).min(self.flows)
    }

    /// What is admitted under a configuration.
    pub(crate) fn limits(self, config: &Config) -> Limits {
        let flows_per_client = config.limits.flows_per_client.unwrap_or(u32::MAX);
        Limits { flows: self.limit(config), flows_per_client }
    }

    fn of(limit: u64, workers: usize, forwards: usize) -> Descriptors {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_enough_for_all_at_once() {
        for limit in [256, 1024, 20_000, 1 << 20] {
            for workers in [1, 2, 16] {
                let share = Descriptors::of(limit, workers, 0);
                let pipes = 2 * (share.pipes_per_worker * workers) as u64;
                assert!(u64::from(share.flows) * 2 + pipes < limit, "{limit} {workers} {share:?}");
            }
        }
        assert!(Descriptors::of(20_000, 2, 0).flows > 7_000);
        // Each of 100 listeners in each of two workers.
        let flows = Descriptors::of(20_000, 2, 0).flows - Descriptors::of(20_000, 2, 100).flows;
        assert_eq!(flows, 100);
    }
}
