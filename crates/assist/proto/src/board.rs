use core::net::IpAddr;
use std::collections::BTreeMap;

use midspan_units::{ByteSize, Rate, Span, Time};

use crate::Update;
use crate::fairness::Coefficient;

/// What a host's senders are to go by, UE by UE: the newest of what its daemons say, and how many
/// flows share the link.
#[derive(Debug, Default)]
pub struct Board {
    target: Target,
    known: BTreeMap<IpAddr, Known>,
    counted: Option<BTreeMap<IpAddr, u32>>,
}

#[derive(Debug)]
struct Known {
    entry: Entry,
    reported: Option<Coefficient>,
    /// Of the bandwidth, lately.
    mean: Rate,
}

/// What a host wants of the links that it sends over, beside the paper's equation 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// How long the link of a UE can go on from its queue without hearing of the sender. Zero is the
    /// paper's; 5 ms unless told otherwise; a period of the feedback uses the link fully, since
    /// feedback tells how much it carries in a period, and not when.
    pub standing_queue: Span,
    /// The rate to send at, in percent of the bandwidth: 100 in the paper, 99 unless told otherwise. A
    /// little less lets a queue go that has come up; more fills the one that is wanted.
    pub pace_percent: u32,
}

impl Default for Target {
    fn default() -> Self {
        Target { standing_queue: Span::from_millis(5), pace_percent: 99 }
    }
}

impl Target {
    /// Equation 1 alone, as in the paper.
    pub const PAPER: Target = Target { standing_queue: Span::ZERO, pace_percent: 100 };

    /// What this can be: a fault, or None.
    pub fn fault(&self) -> Option<&'static str> {
        if self.standing_queue > Span::from_secs(1) {
            return Some("`standing_queue` must be at most 1 s");
        }
        if !(50..=1_000).contains(&self.pace_percent) {
            return Some("`pace_percent` must be between 50 and 1000");
        }
        None
    }

    /// The rate to send at, in 256ths of the bandwidth.
    fn pace(&self) -> u32 {
        self.pace_percent * 256 / 100
    }

    /// What is to be in the queue of a link. One that is slow at the moment is likely to become what
    /// it was, before the sender hears of it.
    fn queue(&self, bandwidth: Rate, mean: Rate) -> ByteSize {
        bandwidth.max(mean).bytes_in(self.standing_queue)
    }
}

/// Over how long the mean of a link's bandwidth goes.
const MEMORY: Span = Span::from_secs(1);

/// The mean after another measurement, `since` the one before.
fn mean(before: Rate, bandwidth: Rate, since: Span) -> Rate {
    let (old, new) = (u128::from(MEMORY.as_nanos()), u128::from(since.as_nanos()));
    let sum = u128::from(before.as_bps()) * old + u128::from(bandwidth.as_bps()) * new;
    // Between the two.
    Rate::from_bps((sum / (old + new)) as u64)
}

/// What the congestion controls are told of one UE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Whose link: the remote address of its connections.
    pub ue: IpAddr,
    /// What it can carry; never zero.
    pub bandwidth: Rate,
    /// Round trip between this host and the UE without queues.
    pub min_rtt: Span,
    /// Among how many flows that is shared.
    pub fairness: Coefficient,
    /// What all of them are to keep in its queue.
    pub queue: ByteSize,
    /// The rate to send at, in 256ths of the bandwidth.
    pub pace: u32,
    /// When it was measured.
    pub measured: Time,
    /// How many entries of this UE came before.
    pub sequence: u32,
}

impl Board {
    /// Of a host that wants `target` of all links. Nothing is known yet.
    pub fn new(target: Target) -> Board {
        Board { target, ..Board::default() }
    }

    /// Takes feedback from a daemon that is `distance` away (round trip). Answers what is to be
    /// written; None if another daemon has said something newer. So a UE that moved is told of by
    /// the daemon that has it, whoever said something last.
    pub fn update(&mut self, update: Update, distance: Span) -> Option<Entry> {
        let known = self.known.get(&update.ue);
        let before = known.map(|known| known.entry);
        if before.is_some_and(|before| before.measured > update.measured) {
            return None;
        }
        let mean = known.map_or(update.bandwidth, |known| {
            mean(known.mean, update.bandwidth, update.measured.since(known.entry.measured))
        });
        let counted = self.counted.as_ref().and_then(|counted| counted.get(&update.ue));
        let counted = counted.and_then(|flows| Coefficient::of_flows(*flows));
        let entry = Entry {
            ue: update.ue,
            bandwidth: update.bandwidth,
            min_rtt: update.min_rtt + distance,
            fairness: counted.or(update.fairness).unwrap_or(Coefficient::ONE),
            queue: self.target.queue(update.bandwidth, mean),
            pace: self.target.pace(),
            measured: update.measured,
            sequence: before.map_or(0, |before| before.sequence.wrapping_add(1)),
        };
        self.known.insert(update.ue, Known { entry, reported: update.fairness, mean });
        Some(entry)
    }

    /// This host's own count of the flows to each UE holds from now on, whatever UEs report.
    /// Answers what is to be written because of it: what is not older than `timeout` at `now`.
    pub fn count(
        &mut self,
        counted: BTreeMap<IpAddr, u32>,
        now: Time,
        timeout: Span,
    ) -> Vec<Entry> {
        let mut changed = Vec::new();
        for known in self.known.values_mut() {
            let flows =
                counted.get(&known.entry.ue).and_then(|flows| Coefficient::of_flows(*flows));
            let fairness = flows.or(known.reported).unwrap_or(Coefficient::ONE);
            if known.entry.fairness != fairness {
                known.entry.fairness = fairness;
                if now.since(known.entry.measured) < timeout {
                    changed.push(known.entry);
                }
            }
        }
        self.counted = Some(counted);
        changed
    }

    /// A UE is no longer of interest. True if it was known.
    pub fn forget(&mut self, ue: IpAddr) -> bool {
        self.known.remove(&ue).is_some()
    }

    /// What holds for `ue`, or did.
    pub fn get(&self, ue: IpAddr) -> Option<&Entry> {
        self.known.get(&ue).map(|known| &known.entry)
    }

    /// All, by address.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.known.values().map(|known| &known.entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Quality;

    const NOW: Time = Time::from_nanos(1_000_000_000);

    fn update(measured: Time, bits: u64, flows: u32) -> Update {
        Update {
            ue: "10.45.0.2".parse().unwrap(),
            bandwidth: Rate::from_bps(bits),
            min_rtt: Span::from_millis(10),
            fairness: Coefficient::of_flows(flows),
            measured,
            quality: Quality::default(),
        }
    }

    #[test]
    fn the_newest_measurement_counts_whoever_made_it() {
        let mut board = Board::default();
        let distance = Span::from_millis(2);
        let later = NOW + Span::from_millis(1);
        let entry = board.update(update(later, 9, 1), distance).unwrap();
        assert_eq!((entry.min_rtt, entry.sequence), (Span::from_millis(12), 0));
        assert_eq!(board.update(update(NOW, 5, 1), distance), None);
        assert_eq!(board.update(update(later, 7, 1), distance).unwrap().sequence, 1);
        assert_eq!(board.entries().next().unwrap().bandwidth, Rate::from_bps(7));
    }

    #[test]
    fn the_wanted_queue_is_of_what_the_link_carries_now_or_of_late() {
        let bytes_after = |bits: &[u64]| {
            let standing_queue = Span::from_millis(50);
            let mut board = Board::new(Target { standing_queue, pace_percent: 125 });
            let told = (0..).zip(bits).map(|(number, bits)| {
                let at = NOW + Span::from_millis(50) * number;
                let entry = board.update(update(at, *bits, 1), Span::ZERO).unwrap();
                assert_eq!(entry.pace, 320);
                entry.queue.as_bytes()
            });
            told.last().unwrap()
        };
        // 8 Mbit/s carry 50,000 bytes in 50 ms.
        assert_eq!(bytes_after(&[8_000_000]), 50_000);
        assert_eq!(bytes_after(&[800_000, 8_000_000]), 50_000);
        // An outage takes a twentieth of what is left in each period.
        let after_outage = bytes_after(&[8_000_000, 0, 0, 0]);
        assert!((42_000..45_000).contains(&after_outage), "{after_outage}");
        assert_eq!(bytes_after(&[[8_000_000; 1].as_slice(), &[80_000; 400]].concat()), 500);
    }

    #[test]
    fn the_papers_target_is_no_queue_and_the_bandwidth() {
        let entry = Board::new(Target::PAPER).update(update(NOW, 9, 1), Span::ZERO).unwrap();
        assert_eq!((entry.queue, entry.pace), (ByteSize::from_bytes(0), 256));
        let fault = |target: Target| target.fault();
        assert_eq!(fault(Target::default()), None);
        let slow = Target { pace_percent: 49, ..Target::default() };
        assert!(fault(slow).is_some_and(|said| said.contains("pace_percent")));
        let long = Target { standing_queue: Span::from_millis(1_001), ..Target::default() };
        assert!(fault(long).is_some_and(|said| said.contains("standing_queue")));
    }

    #[test]
    fn a_host_that_sees_all_flows_counts_them_itself() {
        let mut board = Board::default();
        let (ue, timeout) = (update(NOW, 9, 3).ue, Span::from_millis(200));
        let flows = |entry: Entry| entry.fairness.as_256ths() / 256;
        assert_eq!(flows(board.update(update(NOW, 9, 3), Span::ZERO).unwrap()), 3);
        let changed = board.count([(ue, 5)].into(), NOW, timeout);
        assert_eq!(changed.into_iter().map(flows).collect::<Vec<_>>(), [5]);
        assert_eq!(board.count([(ue, 5)].into(), NOW, timeout), []);
        assert_eq!(flows(board.update(update(NOW, 9, 3), Span::ZERO).unwrap()), 5);
        // What is over is not written again, but what comes has the new count.
        assert_eq!(board.count([(ue, 2)].into(), NOW + timeout, timeout), []);
        assert_eq!(flows(board.update(update(NOW, 9, 3), Span::ZERO).unwrap()), 2);
        assert_eq!(board.count([].into(), NOW, timeout).len(), 1);
        assert_eq!(flows(board.update(update(NOW, 9, 0), Span::ZERO).unwrap()), 1);
    }
}
