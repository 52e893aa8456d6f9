//! A user as its cell sees it: where it is, how it hears the sites, and what waits for it.

use std::collections::VecDeque;

use midspan_units::{Frequency, Span};

use super::adaptation;
use super::geometry::{SERVING, SITES, Sites, Walker};
use super::propagation::{self, Shadowing};
use super::spec::LteSpec;
use crate::Packet;
use crate::direction::Stamped;
use crate::radio::{Acknowledged, POINTS, PedestrianA, SPEED_OF_LIGHT, to_the_power};
use crate::random::Random;

/// PDCP header (TS 36.323, 12-bit numbers) and a length indicator of RLC (TS 36.322), in whole bytes.
const PACKET_HEADER: u64 = 4;

/// Carrier and width of the band.
const CARRIER: f64 = 2e9;
const BANDWIDTH: Frequency = Frequency::from_hz(9_000_000);

/// Milliseconds from a report of the channel to the next.
pub(super) const REPORT: u64 = 5;

/// Share of blocks that shall fail at first, and by how many decibels one that did lowers the next
/// (outer loop link adaptation: A. Sampath, P. S. Kumar and J. M. Holtzman, "On setting reverse link
/// target SIR in a CDMA system", VTC 1997). The bounds are ours.
const TARGET: f64 = 0.1;
const STEP: f64 = 0.5;
const MOST_CORRECTION: f64 = 6.0;

/// A neighbour must be heard so much better, for so many measurements, to be handed over to (event
/// A3 of TS 36.331, section 5.5.4.4, with 3 dB of hysteresis; measurements are 200 ms apart, as in TS
/// 36.133, section 8.1.2.2).
const BETTER: f64 = 2.0;
const LASTING: u32 = 2;
pub(super) const MEASUREMENT: Span = Span::from_millis(200);

/// A part of an RLC block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) block: u64,
    pub(super) bytes: u64,
    /// The millisecond from which it may be sent.
    pub(super) from: u64,
}

#[derive(Debug)]
pub(super) struct User<P> {
    /// Of blocks. Where it goes and how it hears has draws of its own, the same whatever is sent to it.
    pub(super) random: Random,
    ways: Random,
    walker: Walker,
    shadowing: Shadowing,
    /// Power of each site over noise, without fading.
    received: [f64; SITES],
    fading: Box<PedestrianA>,
    /// The cell that serves it, and how many have before.
    pub(super) cell: usize,
    pub(super) epoch: u32,
    /// A neighbour that is better, and for how many measurements it was.
    better: Option<(usize, u32)>,
    pub(super) queue: Acknowledged<Stamped<P>>,
    /// What HARQ gave up, and RLC sends anew.
    pub(super) again: VecDeque<Part>,
    /// Its cell has it in its list.
    pub(super) active: bool,
    /// Handed over, and not heard of yet.
    pub(super) silent: bool,
    /// Blocks that wait to be sent again by HARQ.
    pub(super) pending: u32,
    /// The last millisecond in which it was sent something.
    pub(super) served: Option<u64>,
    /// Bits per resource element that the channel carries at each point of the band, and when that was
    /// looked at.
    pub(super) channel: [f64; POINTS],
    looked: Option<u64>,
    /// The same as the cell knows it.
    pub(super) reported: [f64; POINTS],
    /// Decibels by which the cell corrects what it knows.
    pub(super) correction: f64,
    /// Milliseconds over which a mean is taken.
    window: f64,
    /// Mean bits of a millisecond, and until when it is told.
    average: f64,
    averaged: u64,
}

impl<P: Packet> User<P> {
    /// Somewhere where the cell `home` is heard best.
    pub(super) fn new(spec: &LteSpec, sites: &Sites, home: usize, seed: u64) -> Self {
        let mut ways = Random::new(seed, 0);
        let speed = spec.speed.as_metres_per_second();
        // Where another cell is heard best the user would be another cell's.
        let (walker, shadowing, received) = loop {
            let at = sites.anywhere_in(home, &mut ways);
            let shadowing = Shadowing::new(&mut ways);
            let received = propagation::received(spec, sites, at, &shadowing);
            if strongest(&received) == home {
                break (Walker::new(at, speed, sites, &mut ways), shadowing, received);
            }
        };
        let doppler = speed / SPEED_OF_LIGHT * CARRIER;
        let fading = Box::new(PedestrianA::new(doppler, BANDWIDTH, &mut ways));
        User {
            random: Random::new(ways.seed(), 0),
            ways,
            walker,
            shadowing,
            received,
            fading,
            cell: home,
            epoch: 0,
            better: None,
            queue: Acknowledged::new(PACKET_HEADER),
            again: VecDeque::new(),
            active: false,
            silent: false,
            pending: 0,
            served: None,
            channel: [0.0; POINTS],
            looked: None,
            reported: [0.0; POINTS],
            correction: 0.0,
            window: spec.averaging.as_millis_f64(),
            average: 0.0,
            averaged: 0,
        }
    }

    /// Walks for the time between two measurements. Answers the cell to which it should be handed
    /// over, if to any.
    pub(super) fn measure(&mut self, spec: &LteSpec, sites: &Sites) -> Option<usize> {
        let way = self.walker.walk(MEASUREMENT, sites, &mut self.ways);
        if way > 0.0 {
            self.shadowing.shift(way, &mut self.ways);
            self.received = propagation::received(spec, sites, self.walker.at, &self.shadowing);
        }
        let best = strongest(&self.received);
        if best == self.cell || self.received[best] < BETTER * self.received[self.cell] {
            self.better = None;
            return None;
        }
        let before = self.better.filter(|(cell, _)| *cell == best).map_or(0, |(_, times)| times);
        self.better = Some((best, before + 1));
        (before >= LASTING && !self.silent).then_some(best)
    }

    /// From now on `cell` serves it; everything that was under way is sent anew.
    pub(super) fn hand_over(&mut self, cell: usize) {
        self.cell = cell;
        self.epoch = self.epoch.wrapping_add(1);
        self.better = None;
        self.queue.restart();
        self.again.clear();
        self.pending = 0;
        self.looked = None;
        self.correction = 0.0;
        self.average = 0.0;
    }

    /// Whether the cell has something for it.
    pub(super) fn wants(&self) -> bool {
        self.queue.waiting() > 0 || !self.again.is_empty()
    }

    /// Looks at the channel if that is due. `activity` is how much of its band each site uses:
    /// interference is that share of its power, spread over the band, and does not fade.
    pub(super) fn look(&mut self, now: u64, activity: &[f64; SITES]) {
        if self.looked.is_some_and(|last| now < last + REPORT) {
            return;
        }
        let sites = self.received.iter().zip(activity).enumerate();
        let others = sites.filter(|(site, _)| *site != self.cell);
        let noise = others.fold(1.0, |sum, (_, (power, share))| sum + power * share);
        let mean = self.received[self.cell] / noise;
        let gains = self.fading.gains(Span::from_millis(now));
        let known = self.looked.is_some_and(|last| now < last + 2 * REPORT);
        if known {
            self.reported = self.channel.map(adaptation::reported);
        }
        self.channel =
            gains.map(|gain| adaptation::efficiency(crate::radio::decibels(mean * gain.max(1e-9))));
        if !known {
            self.reported = self.channel.map(adaptation::reported);
        }
        self.looked = Some(now);
    }

    /// Bits that it got in a millisecond on the mean, until `now`.
    pub(super) fn average(&mut self, now: u64) -> f64 {
        let passed = u32::try_from(now - self.averaged).unwrap_or(u32::MAX);
        if passed > 0 {
            self.average *= to_the_power(1.0 - 1.0 / self.window, passed);
            self.averaged = now;
        }
        self.average
    }

    /// It gets so many bits in this millisecond.
    pub(super) fn count(&mut self, bits: f64) {
        self.average += bits / self.window;
    }

    /// A block was received at first, or was not.
    pub(super) fn correct(&mut self, received: bool) {
        let step = if received { STEP * TARGET / (1.0 - TARGET) } else { -STEP };
        self.correction = (self.correction + step).clamp(-MOST_CORRECTION, MOST_CORRECTION);
    }
}

/// Of the cells that serve, the one that is heard best.
fn strongest(received: &[f64; SITES]) -> usize {
    (1..SERVING).fold(0, |best, site| if received[site] > received[best] { site } else { best })
}

#[cfg(test)]
mod tests {
    use midspan_units::Speed;

    use super::*;
    use crate::testing::TestPacket;

    fn user(spec: &LteSpec, seed: u64) -> (User<TestPacket>, Sites) {
        let sites = Sites::new(spec.distance.as_metres());
        (User::new(spec, &sites, 2, seed), sites)
    }

    #[test]
    fn a_user_begins_where_its_cell_is_heard_best() {
        let spec = LteSpec::default();
        for seed in 0..50 {
            let (user, _) = user(&spec, seed);
            assert_eq!((user.cell, strongest(&user.received)), (2, 2));
        }
    }

    /// Interference of sites that use half their band is half of theirs: with all silent the signal
    /// is noise-limited, and far better.
    #[test]
    fn silent_neighbours_do_not_interfere() {
        let spec = LteSpec::default();
        let carried = |activity: f64| {
            let one = |seed| {
                let (mut user, _) = user(&spec, seed);
                user.look(0, &[activity; SITES]);
                user.channel.iter().sum::<f64>() / POINTS as f64
            };
            (0..100).map(one).sum::<f64>() / 100.0
        };
        let (full, half, none) = (carried(1.0), carried(0.5), carried(0.0));
        assert!(1.2 < full && full < half && half < none && none < 5.56, "{full} {half} {none}");
    }

    #[test]
    fn reports_come_late_and_in_steps() {
        let activity = [1.0; SITES];
        // Somebody whose channel is not better than any block needs.
        let far = |seed: u64| {
            let (mut user, _) = user(&LteSpec::default(), seed);
            user.look(0, &activity);
            (user.channel[0] < 3.0).then_some(user)
        };
        let mut user = (0..).find_map(far).unwrap();
        let first = user.channel;
        assert_eq!(user.reported, first.map(adaptation::reported));
        user.look(4, &activity);
        assert_eq!(user.channel, first);
        user.look(5, &activity);
        assert_ne!(user.channel, first);
        assert_eq!(user.reported, first.map(adaptation::reported));
        // Who was not looked at for long is looked at anew.
        user.look(500, &activity);
        assert_eq!(user.reported, user.channel.map(adaptation::reported));
    }

    #[test]
    fn who_walks_far_is_handed_over_to_who_is_heard_3_db_better() {
        let spec = LteSpec { speed: Speed::from_metres_per_hour(120_000), ..LteSpec::default() };
        let (mut user, sites) = user(&spec, 1);
        let mut handovers = 0;
        for _ in 0..3000 {
            let Some(cell) = user.measure(&spec, &sites) else { continue };
            assert!(cell < SERVING && user.received[cell] >= 2.0 * user.received[user.cell]);
            user.hand_over(cell);
            handovers += 1;
        }
        // 20 km across cells of about 450 m.
        assert!((20..400).contains(&handovers), "{handovers}");
    }

    #[test]
    fn the_outer_loop_aims_at_one_failure_in_ten() {
        let (mut user, _) = user(&LteSpec::default(), 1);
        user.correct(false);
        (0..9).for_each(|_| user.correct(true));
        assert!(user.correction.abs() < 1e-9);
        (0..100).for_each(|_| user.correct(false));
        assert_eq!(user.correction, -MOST_CORRECTION);
    }

    /// (1 - 1/200)^200 is 0.367.
    #[test]
    fn means_fade_while_nothing_comes() {
        let (mut user, _) = user(&LteSpec::default(), 1);
        user.count(1000.0);
        assert_eq!(user.average(0), 5.0);
        assert!((user.average(200) - 5.0 * 0.367).abs() < 0.01);
        let spec = LteSpec { averaging: Span::from_millis(400), ..LteSpec::default() };
        let (mut slower, _) = self::user(&spec, 1);
        slower.count(1000.0);
        assert!((slower.average(400) - 2.5 * 0.367).abs() < 0.01);
    }
}
