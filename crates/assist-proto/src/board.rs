use core::net::IpAddr;
use std::collections::BTreeMap;

use midspan_units::{Rate, Span, Time};

use crate::Update;
use crate::fairness::Coefficient;

/// What a host's senders are to go by, UE by UE: the newest of what its daemons say, and how many
/// flows share the link.
#[derive(Debug, Default)]
pub struct Board {
    known: BTreeMap<IpAddr, Known>,
    counted: Option<BTreeMap<IpAddr, u32>>,
}

#[derive(Debug)]
struct Known {
    entry: Entry,
    reported: Option<Coefficient>,
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
    /// When it was measured.
    pub measured: Time,
    /// How many entries of this UE came before.
    pub sequence: u32,
}

impl Board {
    /// Takes feedback from a daemon that is `distance` away (round trip). Answers what is to be
    /// written; None if another daemon has said something newer. So a UE that moved is told of by
    /// the daemon that has it, whoever said something last.
    pub fn update(&mut self, update: Update, distance: Span) -> Option<Entry> {
        let before = self.known.get(&update.ue).map(|known| known.entry);
        if before.is_some_and(|before| before.measured > update.measured) {
            return None;
        }
        let counted = self.counted.as_ref().and_then(|counted| counted.get(&update.ue));
        let counted = counted.and_then(|flows| Coefficient::of_flows(*flows));
        let entry = Entry {
            ue: update.ue,
            bandwidth: update.bandwidth,
            min_rtt: update.min_rtt + distance,
            fairness: counted.or(update.fairness).unwrap_or(Coefficient::ONE),
            measured: update.measured,
            sequence: before.map_or(0, |before| before.sequence.wrapping_add(1)),
        };
        self.known.insert(update.ue, Known { entry, reported: update.fairness });
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
