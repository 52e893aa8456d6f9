//! Whether other programs keep a thread that stays awake from its processor.
//!
//! One at nice -20 has 99 % of a processor beside an ordinary program, but the scheduler gives the other its hundredth in
//! slices of milliseconds, and every packet that falls due in one is late. Beside a program at nice 5 on each of two
//! processors, 200 Mbit/s at 1 ms: the latest hundredth of packets was 1 to 8 ms late, in every run. A real-time thread that
//! sleeps between packets is punctual then, 48 to 80 us. One that stayed awake as a real-time thread was more so, 17 to
//! 35 us, but the relay, on the processors that the links leave, was starved: its uploads took 2.1 s where others took 1.4.

use midspan_units::{Span, Time};

/// Watches how late a thread's packets leave.
#[derive(Debug)]
pub(crate) struct Contention {
    since: Time,
    departed: u64,
    late: u64,
    stops: u64,
}

/// Later than a thread is that nobody keeps from its processor, but for the odd packet.
const LATE: Span = Span::from_micros(500);

/// How long is looked at.
const WINDOW: Span = Span::from_secs(1);

/// So often in that time it must have been kept: once or twice anything is.
const STOPS: u64 = 3;

/// And so much of what left must have been late: a link of which more is is not trusted where round trips are short.
const LATE_PERCENT: u64 = 1;

impl Contention {
    /// Nothing has left yet.
    pub(crate) const fn new() -> Contention {
        Contention { since: Time::ZERO, departed: 0, late: 0, stops: 0 }
    }

    /// Whether a packet that leaves at `now` is late by more than the thread's own doing.
    pub(crate) fn is_late(due: Time, now: Time) -> bool {
        now.since(due) > LATE
    }

    /// So many packets have left together at `now`, so many of them late. Whether others keep the thread from its processor.
    pub(crate) fn departed(&mut self, now: Time, packets: usize, late: usize) -> bool {
        if now.since(self.since) > WINDOW {
            *self = Contention { since: now, ..Contention::new() };
        }
        self.departed += packets as u64;
        self.late += late as u64;
        self.stops += u64::from(late > 0);
        self.stops >= STOPS && self.late * 100 > self.departed * LATE_PERCENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet each 60 us for two seconds, but for stops of `stop` microseconds each `every`: what fell due then leaves at once.
    fn lives(every: u64, stop: u64) -> bool {
        let mut contention = Contention::new();
        let at = |micros| Time::ZERO + Span::from_micros(micros);
        let (mut now, mut due) = (0, 0);
        let mut next_stop = every;
        let mut kept = false;
        while now < 2_000_000 {
            if now >= next_stop {
                (now, next_stop) = (now + stop, next_stop + every);
            }
            let (mut departed, mut late) = (0, 0);
            while due <= now {
                (departed, late) =
                    (departed + 1, late + usize::from(Contention::is_late(at(due), at(now))));
                due += 60;
            }
            kept |= departed > 0 && contention.departed(at(now), departed, late);
            now += 20;
        }
        kept
    }

    #[test]
    fn who_is_stopped_for_milliseconds_again_and_again_is_kept_from_its_processor() {
        assert!(lives(100_000, 4_000));
        assert!(lives(20_000, 1_200));
    }

    #[test]
    fn who_is_late_by_little_or_seldom_is_not() {
        assert!(!lives(2_000, 400));
        assert!(!lives(700_000, 6_000));
        assert!(!lives(3_000_000, 0));
    }

    #[test]
    fn on_a_slow_link_one_late_packet_is_not_enough() {
        let mut contention = Contention::new();
        let mut kept =
            |millis: u64| contention.departed(Time::ZERO + Span::from_millis(millis), 1, 1);
        assert!(!kept(2_000));
        assert!(!kept(2_100));
        assert!(!kept(3_200));
        assert!(!kept(3_300));
        assert!(kept(3_400));
    }
}
