//! What an emulator says of itself.

use std::fmt;

use midspan_path::{Counters, Stretch, Times};
use midspan_units::Span;

use crate::timing::Scheduling;

/// What a link did, and how well, since it started or was last marked warm.
#[derive(Debug, Clone)]
pub struct Report {
    /// The link's name.
    pub name: String,
    /// The time that the report covers.
    pub elapsed: Span,
    /// How late packets left: the time just before the write to the kernel less the time that the
    /// path intended. Never negative.
    pub lateness: Distribution,
    /// For how long at a stretch the emulator did not look at its ports because it was busy: an
    /// upper bound on how long a packet waited unseen meanwhile.
    pub intake_gap: Distribution,
    /// Packets lost without the path's intending it.
    pub drops: Drops,
    /// What the elements from the UE towards the server did.
    pub up: Counters,
    /// What the elements from the server towards the UE did.
    pub down: Counters,
    /// How long packets from the UE towards the server took beyond the elements' base delays, as the
    /// path intended; the emulator's own lateness is not in it.
    pub up_delays: Times,
    /// The same from the server towards the UE.
    pub down_delays: Times,
    /// Bytes from the UE towards the server that wait in elements now, or are being sent by them.
    pub up_waiting: u64,
    /// The same from the server towards the UE.
    pub down_waiting: u64,
    /// What the air interface before the links did; none where there are no cells.
    pub radio: Option<Stretch>,
    /// Packets and super-packets read from the left port. Fewer than the packets that went up when
    /// the kernel handed super-packets over whole.
    pub up_reads: u64,
    /// Packets and super-packets read from the right port.
    pub down_reads: u64,
    /// Processor time that the emulator's thread used.
    pub cpu: Span,
    /// How the thread is scheduled.
    pub scheduling: Scheduling,
    /// Why a port stopped working, if one did.
    pub failure: Option<String>,
}

/// A distribution of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Distribution {
    /// How many were measured.
    pub count: u64,
    /// Median.
    pub p50: Span,
    /// 99th percentile.
    pub p99: Span,
    /// 99.9th percentile.
    pub p999: Span,
    /// Worst.
    pub max: Span,
}

impl Distribution {
    pub(crate) fn of(times: &Times) -> Distribution {
        Distribution {
            count: times.count(),
            p50: times.at(0.5),
            p99: times.at(0.99),
            p999: times.at(0.999),
            max: times.max(),
        }
    }
}

/// Packets lost by the emulator or the kernel rather than by an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drops {
    /// Dropped by the kernel between an interface and the emulator, which was too slow.
    pub not_taken: u64,
    /// Super-packets of a kind that cannot be cut, or packets that contradict themselves.
    pub unreadable: u64,
    /// Refused because packets in the path held all the memory that they may.
    pub no_memory: u64,
    /// Not accepted by the kernel on the way out.
    pub not_put_out: u64,
}

impl Drops {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.not_taken + self.unreadable + self.no_memory + self.not_put_out
    }
}

impl fmt::Display for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causes = [
            (self.not_taken, "not taken in"),
            (self.unreadable, "unreadable"),
            (self.no_memory, "beyond the memory limit"),
            (self.not_put_out, "not put out"),
        ];
        let causes: Vec<String> = causes
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, cause)| format!("{count} {cause}"))
            .collect();
        write!(f, "{}", if causes.is_empty() { "none".into() } else { causes.join(", ") })
    }
}

/// Why a run's numbers cannot be believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// A port stopped working.
    #[error("emulator failed: {failure}")]
    Failed {
        /// What happened.
        failure: String,
    },
    /// The emulator lost packets that the path did not mean to lose.
    #[error("emulator lost packets that its path did not mean to lose: {drops}")]
    Dropped {
        /// How many, and where.
        drops: Drops,
    },
    /// Packets left too late for the round-trip times under test.
    #[error(
        "emulator fell behind: 1 % of packets left {} us late or more, \
         a tenth of the shortest round trip is {limit}",
        p99.as_micros()
    )]
    Late {
        /// 99th percentile of the lateness.
        p99: Span,
        /// The most that could be trusted.
        limit: Span,
    },
}

impl Report {
    /// Why the run cannot be believed, if so: a drop that was not intended, or a 99th percentile
    /// of lateness above a tenth of `shortest_rtt`, the least round-trip time of the run's paths.
    pub fn distrust(&self, shortest_rtt: Span) -> Option<Distrust> {
        if let Some(failure) = self.failure.clone() {
            return Some(Distrust::Failed { failure });
        }
        if self.drops.total() > 0 {
            return Some(Distrust::Dropped { drops: self.drops });
        }
        let limit = shortest_rtt / 10;
        let p99 = self.lateness.p99;
        (p99 > limit).then_some(Distrust::Late { p99, limit })
    }

    /// The share of one processor that the emulator's thread used.
    pub fn cpu_share(&self) -> f64 {
        match self.elapsed {
            Span::ZERO => 0.0,
            elapsed => self.cpu.as_secs_f64() / elapsed.as_secs_f64(),
        }
    }
}

/// What `counters` counted since they were `earlier`. What is queued stays what it is now.
pub(crate) fn since(counters: &Counters, earlier: &Counters) -> Counters {
    let dropped = counters.dropped.iter().map(|(&cause, &count)| {
        (cause, count - earlier.dropped.get(cause).copied().unwrap_or_default())
    });
    Counters {
        packets_in: counters.packets_in - earlier.packets_in,
        bytes_in: counters.bytes_in - earlier.bytes_in,
        packets_out: counters.packets_out - earlier.packets_out,
        bytes_out: counters.bytes_out - earlier.bytes_out,
        packets_queued: counters.packets_queued,
        bytes_queued: counters.bytes_queued,
        dropped: dropped.filter(|(_, count)| *count > 0).collect(),
        marked: counters.marked - earlier.marked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut lateness = Times::new();
        (1..=1000).for_each(|micros| lateness.record(Span::from_micros(micros)));
        Report {
            name: "wide".into(),
            elapsed: Span::from_secs(1),
            lateness: Distribution::of(&lateness),
            intake_gap: Distribution::default(),
            drops: Drops::default(),
            up: Counters::default(),
            down: Counters::default(),
            up_delays: Times::new(),
            down_delays: Times::new(),
            up_waiting: 0,
            down_waiting: 0,
            radio: None,
            up_reads: 0,
            down_reads: 0,
            cpu: Span::from_millis(250),
            scheduling: Scheduling::Ordinary,
            failure: None,
        }
    }

    #[test]
    fn lateness_is_held_against_a_tenth_of_the_shortest_round_trip() {
        let report = report();
        assert_eq!(report.lateness.p99.as_micros() / 10, 99, "{:?}", report.lateness);
        assert_eq!(report.distrust(Span::from_millis(10)), None);
        let reason = report.distrust(Span::from_millis(9)).unwrap().to_string();
        assert!(reason.contains("fell behind") && reason.contains("900 us"), "{reason}");
        assert_eq!(report.cpu_share(), 0.25);
    }

    #[test]
    fn a_single_unintended_drop_is_one_too_many() {
        let mut report = report();
        report.drops.not_taken = 1;
        let reason = report.distrust(Span::from_secs(1)).unwrap().to_string();
        assert!(reason.ends_with("1 not taken in"), "{reason}");
    }

    #[test]
    fn a_failure_comes_first() {
        let mut report = report();
        report.failure = Some("UE side: gone".into());
        assert!(matches!(report.distrust(Span::MAX), Some(Distrust::Failed { .. })));
    }
}
