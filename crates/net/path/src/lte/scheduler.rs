//! Who gets which part of the band in a millisecond.

use serde::{Deserialize, Serialize};

use super::adaptation::{ELEMENTS, GROUPS, blocks_of, point_of};
use crate::radio::POINTS;

/// How a base station shares its band among the users for whom it has data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// Each part of the band to whom it serves best against what that user got lately (A. Jalali, R.
    /// Padovani and R. Pankaj, "Data throughput of CDMA-HDR", VTC Spring 2000, in time and frequency).
    #[default]
    ProportionalFair,
    /// Each part of the band to the next user in turn.
    RoundRobin,
}

/// A user for whom there is data.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    /// Whom it stands for.
    pub(crate) user: u32,
    /// Bits that would be sent if they could.
    pub(crate) wanted: f64,
    /// Bits that it got in a millisecond on the mean lately.
    pub(crate) average: f64,
    /// Bits per resource element at each point of the band, as it has reported them.
    pub(crate) efficiency: [f64; POINTS],
    /// Groups that it is given, by bits of this number.
    pub(crate) groups: u32,
    /// About how many bits these carry.
    pub(crate) bits: f64,
}

/// Groups by bits of a number.
pub(crate) const ALL_GROUPS: u32 = (1 << GROUPS) - 1;

impl Scheduler {
    /// Gives the groups in `free` to `candidates`, each to one at most; to none more than it wants.
    /// `turn` says with whom the round begins.
    pub(crate) fn assign(self, candidates: &mut [Candidate], free: u32, turn: u64) {
        let count = candidates.len();
        if count == 0 {
            return;
        }
        let mut next = (turn % count as u64) as usize;
        for group in (0..GROUPS).filter(|group| free & (1 << group) != 0) {
            let point = point_of(group);
            let takes = |candidate: &Candidate| {
                candidate.bits < candidate.wanted && candidate.efficiency[point] > 0.0
            };
            let chosen = match self {
                Scheduler::ProportionalFair => best(candidates, point, takes),
                Scheduler::RoundRobin => {
                    (0..count).map(|step| (next + step) % count).find(|n| takes(&candidates[*n]))
                }
            };
            let Some(chosen) = chosen else { continue };
            next = chosen + 1;
            let candidate = &mut candidates[chosen];
            candidate.groups |= 1 << group;
            candidate.bits += candidate.efficiency[point] * ELEMENTS * f64::from(blocks_of(group));
        }
    }
}

/// Who has the greatest ratio of rate to mean rate; the first of equals.
fn best(
    candidates: &[Candidate],
    point: usize,
    takes: impl Fn(&Candidate) -> bool,
) -> Option<usize> {
    let mut best: Option<(usize, &Candidate)> = None;
    for (number, candidate) in candidates.iter().enumerate().filter(|(_, one)| takes(one)) {
        // a / b > c / d as a d > c b: no division, and nothing special of those who got nothing yet.
        let better = best.is_none_or(|(_, known)| {
            candidate.efficiency[point] * known.average
                > known.efficiency[point] * candidate.average
        });
        if better {
            best = Some((number, candidate));
        }
    }
    best.map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::Random;

    fn candidate(user: u32, wanted: f64, average: f64, efficiency: f64) -> Candidate {
        Candidate { user, wanted, average, efficiency: [efficiency; POINTS], groups: 0, bits: 0.0 }
    }

    fn groups(candidates: &[Candidate]) -> Vec<u32> {
        candidates.iter().map(|one| one.groups.count_ones()).collect()
    }

    #[test]
    fn round_robin_goes_round() {
        let mut all: Vec<_> = (0..3).map(|user| candidate(user, 1e9, 1.0, 1.0)).collect();
        Scheduler::RoundRobin.assign(&mut all, ALL_GROUPS, 1);
        assert_eq!(groups(&all), [5, 6, 6]);
        assert_eq!(all[1].groups & 1, 1);
    }

    #[test]
    fn the_best_ratio_wins_and_who_got_nothing_is_first() {
        let mut all = vec![candidate(0, 1e9, 1000.0, 4.0), candidate(1, 1e9, 200.0, 1.0)];
        Scheduler::ProportionalFair.assign(&mut all, ALL_GROUPS, 0);
        assert_eq!(groups(&all), [0, 17]);
        let mut all = vec![candidate(0, 1e9, 1.0, 4.0), candidate(1, 1e9, 0.0, 0.2)];
        Scheduler::ProportionalFair.assign(&mut all, ALL_GROUPS, 0);
        assert_eq!(groups(&all), [0, 17]);
    }

    /// One group of three blocks at 1 bit per element carries 378 bits.
    #[test]
    fn nobody_gets_more_than_it_wants() {
        let mut all = vec![candidate(0, 379.0, 1.0, 1.0), candidate(1, 100.0, 2.0, 1.0)];
        Scheduler::ProportionalFair.assign(&mut all, ALL_GROUPS, 0);
        assert_eq!(groups(&all), [2, 1]);
    }

    /// Runs users who always have data over channels that fade independently; answers what each got
    /// of what it would have got alone, as PF gives equal users equal shares of their own rate.
    fn shares(scheduler: Scheduler, means: &[f64]) -> Vec<f64> {
        let mut random = Random::new(3, 0);
        let (mut averages, mut got) = (vec![0.0; means.len()], vec![0.0; means.len()]);
        let mut alone = vec![0.0; means.len()];
        for turn in 0..20_000u64 {
            let mut all: Vec<Candidate> = (0..means.len())
                .map(|user| {
                    let mut one = candidate(user as u32, 1e9, averages[user], 0.0);
                    let gain = 0.2 + 1.6 * super::super::geometry::uniform(&mut random);
                    one.efficiency = [means[user] * gain; POINTS];
                    alone[user] += means[user] * gain * ELEMENTS * 50.0;
                    one
                })
                .collect();
            scheduler.assign(&mut all, ALL_GROUPS, turn);
            for (user, one) in all.iter().enumerate() {
                averages[user] += (one.bits - averages[user]) / 200.0;
                got[user] += one.bits;
            }
        }
        got.iter().zip(alone).map(|(got, alone)| got / alone).collect()
    }

    /// Proportional fairness: whoever is ten times nearer gets ten times the bits, and all use the
    /// channel when it is good, so that n users get more than 1/n of what they would alone.
    #[test]
    fn proportional_fairness_gives_equal_shares_of_unequal_rates_and_a_gain() {
        for means in [&[1.0, 1.0][..], &[4.0, 0.4], &[3.0, 1.0, 0.5, 0.3]] {
            let shares = shares(Scheduler::ProportionalFair, means);
            let fair = 1.0 / means.len() as f64;
            for share in &shares {
                assert!((1.1..2.0).contains(&(share / fair)), "{means:?}: {shares:?}");
            }
            let (least, most) = shares.iter().fold((1.0f64, 0.0f64), |(least, most), share| {
                (least.min(*share), most.max(*share))
            });
            assert!(most / least < 1.1, "{means:?}: {shares:?}");
        }
        let shares = shares(Scheduler::RoundRobin, &[3.0, 1.0, 0.5]);
        assert!(shares.iter().all(|share| (share * 3.0 - 1.0).abs() < 0.02), "{shares:?}");
    }

    proptest! {
        /// No group is given twice, or where it is not free or not wanted; and none is left that
        /// somebody wants.
        #[test]
        fn every_group_is_given_once(
            scheduler in prop_oneof![Just(Scheduler::ProportionalFair), Just(Scheduler::RoundRobin)],
            users in prop::collection::vec((0.0f64..20_000.0, 0.0f64..5_000.0, 0.0f64..5.5), 0..12),
            free in 0..=ALL_GROUPS,
            turn: u64,
        ) {
            let mut all: Vec<Candidate> = users
                .iter()
                .enumerate()
                .map(|(user, (wanted, average, rate))| {
                    candidate(user as u32, *wanted, *average, if *rate < 0.5 { 0.0 } else { *rate })
                })
                .collect();
            scheduler.assign(&mut all, free, turn);
            let mut given = 0u32;
            for one in &all {
                prop_assert_eq!(given & one.groups, 0);
                given |= one.groups;
                let largest = one.efficiency[0] * ELEMENTS * 3.0;
                prop_assert!(one.groups == 0 || one.bits - largest < one.wanted);
            }
            prop_assert_eq!(given & !free, 0);
            let wants = |one: &Candidate| one.bits < one.wanted && one.efficiency[0] > 0.0;
            prop_assert!(given == free || !all.iter().any(wants));
        }
    }
}
