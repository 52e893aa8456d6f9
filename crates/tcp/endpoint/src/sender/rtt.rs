//! Round-trip time, and the retransmission timeout that follows from it.

use midspan_units::{Span, Time};

/// Smoothed round-trip time and timeout: RFC 6298 as Linux refines it (Sarolahti, Kuznetsov,
/// "Congestion control in Linux TCP", section 4): the variance part of the timeout has a floor of
/// its own, rises with the worst deviation of a round trip at once, and decays once a round trip.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rtt {
    /// Nanoseconds; zero before the first sample.
    srtt: u64,
    /// Mean deviation.
    mdev: u64,
    /// Greatest mean deviation of this round trip.
    mdev_max: u64,
    rttvar: u64,
    /// Where this round trip ends.
    round_end: u64,
    floor: u64,
    /// What earlier connections had, where that is longer and data has no sample yet; else zero.
    remembered: u64,
    /// How often the timeout was doubled.
    backoff: u32,
    min: WindowedMin,
}

/// RFC 6298, 2.1.
const INITIAL_RTO: Span = Span::from_secs(1);
/// Linux's ceiling.
const MAX_RTO: Span = Span::from_secs(120);

impl Rtt {
    pub(crate) fn new(floor: Span, window: Span) -> Rtt {
        Rtt {
            srtt: 0,
            mdev: 0,
            mdev_max: 0,
            rttvar: 0,
            round_end: 0,
            floor: floor.as_nanos(),
            remembered: 0,
            backoff: 0,
            min: WindowedMin::new(window),
        }
    }

    /// Mean deviation of the samples.
    pub(crate) fn deviation(&self) -> Span {
        Span::from_nanos(self.mdev)
    }

    /// A segment that was sent once was acknowledged after `sample`; `una` and `nxt` are the sender's.
    pub(crate) fn sample(&mut self, sample: Span, una: u64, nxt: u64) {
        let sample = sample.as_nanos().max(1);
        self.backoff = 0;
        self.remembered = 0;
        if self.srtt == 0 {
            self.srtt = sample;
            self.mdev = sample / 2;
            self.rttvar = self.mdev.max(self.floor / 4);
            self.mdev_max = self.rttvar;
            self.round_end = nxt;
            return;
        }
        let error = sample.abs_diff(self.srtt);
        let faster = sample < self.srtt;
        self.srtt = if faster { self.srtt - error / 8 } else { self.srtt + error / 8 };
        // A drop of the round-trip time is no reason to wait longer: it counts for an eighth.
        let gain = if faster && error > self.mdev { 32 } else { 4 };
        self.mdev = self.mdev - self.mdev / gain + error / gain;
        if self.mdev > self.mdev_max {
            self.mdev_max = self.mdev;
            self.rttvar = self.rttvar.max(self.mdev_max);
        }
        if una > self.round_end {
            if self.mdev_max < self.rttvar {
                self.rttvar -= (self.rttvar - self.mdev_max) / 4;
            }
            self.round_end = nxt;
            self.mdev_max = self.floor / 4;
        }
    }

    /// Takes in what earlier connections with the peer had. The round trip of a handshake is that of small packets past empty
    /// queues: until there is a better one, the longer of the two decides when to give up waiting, with the variance that
    /// RFC 6298 (2.2) has a first sample have.
    pub(crate) fn remember(&mut self, earlier: Option<Span>) {
        let earlier = earlier.map_or(0, Span::as_nanos);
        self.remembered = if earlier > self.srtt { earlier } else { 0 };
    }

    /// What later connections with the peer may go by.
    pub(crate) fn worth_remembering(&self) -> Option<Span> {
        (self.srtt > 0 && self.backoff == 0).then_some(Span::from_nanos(self.srtt))
    }

    /// Before the first sample, zero.
    pub(crate) fn smoothed(&self) -> Span {
        Span::from_nanos(self.srtt)
    }

    /// Samples of the least round-trip time may include the freshest segments only.
    pub(crate) fn observe_min(&mut self, now: Time, sample: Span) {
        self.min.observe(now, sample);
    }

    /// Least of the window; none before the first sample.
    pub(crate) fn min(&self) -> Option<Span> {
        self.min.get()
    }

    /// Retransmission timeout, doubled for each one in a row.
    pub(crate) fn rto(&self) -> Span {
        let base = if self.remembered > 0 {
            Span::from_nanos(self.remembered + (2 * self.remembered).max(self.floor))
        } else if self.srtt == 0 {
            INITIAL_RTO
        } else {
            Span::from_nanos(self.srtt + 4 * self.rttvar)
        };
        (base * (1 << self.backoff.min(16))).min(MAX_RTO)
    }

    /// A timeout has struck (RFC 6298, 5.5).
    pub(crate) fn back_off(&mut self) {
        self.backoff += 1;
    }

    /// The peer acknowledges again.
    pub(crate) fn recover(&mut self) {
        self.backoff = 0;
    }
}

/// The least of the samples of a sliding window, kept with three of them: the best, and the best
/// since each.
#[derive(Debug, Clone, Copy)]
struct WindowedMin {
    window: Span,
    best: [(Time, Span); 3],
    empty: bool,
}

impl WindowedMin {
    fn new(window: Span) -> WindowedMin {
        WindowedMin { window, best: [(Time::ZERO, Span::MAX); 3], empty: true }
    }

    fn get(&self) -> Option<Span> {
        (!self.empty).then_some(self.best[0].1)
    }

    fn observe(&mut self, now: Time, sample: Span) {
        let entry = (now, sample);
        if self.empty || sample <= self.best[0].1 || now.since(self.best[2].0) > self.window {
            self.empty = false;
            self.best = [entry; 3];
            return;
        }
        if sample <= self.best[1].1 {
            self.best[1] = entry;
            self.best[2] = entry;
        } else if sample <= self.best[2].1 {
            self.best[2] = entry;
        }
        let age = now.since(self.best[0].0);
        if age > self.window {
            self.best = [self.best[1], self.best[2], entry];
            if now.since(self.best[0].0) > self.window {
                self.best = [self.best[1], self.best[2], entry];
            }
        } else if self.best[1].0 == self.best[0].0 && age > self.window / 4 {
            self.best[1] = entry;
            self.best[2] = entry;
        } else if self.best[2].0 == self.best[1].0 && age > self.window / 2 {
            self.best[2] = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rtt() -> Rtt {
        Rtt::new(Span::from_millis(200), Span::from_secs(300))
    }

    #[test]
    fn the_timeout_is_one_second_before_any_sample_and_doubles() {
        let mut rtt = rtt();
        assert_eq!(rtt.rto(), Span::from_secs(1));
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.rto(), Span::from_secs(4));
    }

    #[test]
    fn a_steady_path_times_out_200_ms_after_its_round_trip() {
        let mut rtt = rtt();
        for n in 0..500 {
            rtt.sample(Span::from_millis(50), n * 10 + 10, n * 10 + 20);
        }
        assert_eq!(rtt.rto(), Span::from_millis(250));
        assert_eq!(rtt.smoothed(), Span::from_millis(50));
    }

    #[test]
    fn the_first_sample_is_taken_as_rfc_6298_says() {
        let mut rtt = rtt();
        rtt.sample(Span::from_millis(400), 1, 2);
        assert_eq!(rtt.rto(), Span::from_millis(400 + 4 * 200));
    }

    #[test]
    fn what_was_longer_before_decides_until_data_is_acknowledged() {
        let ms = Span::from_millis;
        for (earlier, until) in [
            (None, ms(35 + 200)),
            (Some(ms(30)), ms(35 + 200)),
            (Some(ms(60)), ms(60 + 200)),
            (Some(ms(500)), ms(1500)),
        ] {
            let mut rtt = rtt();
            rtt.sample(ms(35), 1, 1);
            rtt.remember(earlier);
            assert_eq!(rtt.rto(), until, "{earlier:?}");
            rtt.sample(ms(35), 1449, 2897);
            assert_eq!(rtt.rto(), ms(35 + 200));
        }
        let mut rtt = rtt();
        assert_eq!(rtt.worth_remembering(), None);
        rtt.remember(Some(ms(500)));
        assert_eq!(rtt.rto(), ms(1500));
        rtt.sample(ms(400), 1449, 2897);
        assert_eq!(rtt.worth_remembering(), Some(ms(400)));
        rtt.back_off();
        assert_eq!(rtt.worth_remembering(), None);
    }

    #[test]
    fn the_least_is_forgotten_after_its_window() {
        let mut min = WindowedMin::new(Span::from_secs(10));
        let at = |secs| Time::ZERO + Span::from_secs(secs);
        min.observe(at(0), Span::from_millis(1));
        for secs in 1..=10 {
            min.observe(at(secs), Span::from_millis(5));
            assert_eq!(min.get(), Some(Span::from_millis(1)));
        }
        min.observe(at(11), Span::from_millis(7));
        assert_eq!(min.get(), Some(Span::from_millis(5)));
    }
}
