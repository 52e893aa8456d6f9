use midspan_units::{Rate, Span, Time};

/// How far a relay reads ahead of the leg that takes what it has read.
///
/// Bytes that are read and cannot go on yet are a queue. It has to be long enough that the draining
/// leg never runs dry while the feeding leg's sender is asked for more, which takes one of that leg's
/// round trips. What is longer makes bytes older, and takes from a feeding link that others share
/// what its own flow cannot use yet.
///
/// So what is measured is what the draining leg's peer acknowledges in about one of the feeding leg's
/// round trips, as a receiver does that sizes its own buffer (M. Fisk, W. Feng, "Dynamic
/// right-sizing in TCP", 2001), and the greatest of the last one to two [epochs](ReadAhead::EPOCH)
/// counts. The limit is that rate times the round trip and [`ReadAhead::TURN`], within bounds. It holds
/// for each of two places: what the relay holds, and what waits in the draining leg's socket to be
/// sent; both together are the room in which a leg that becomes faster doubles its rate in each round.
/// A leg that takes all at once is not limited by either: nothing waits then. Nor is one whose limit is
/// the greatest there may be.
///
/// What the feeding leg's receive buffer holds is in none of this.
///
/// Time in which nothing is taken (an outage, or nothing to send) does not count: what was known
/// before it is what the leg begins with again.
#[derive(Debug, Clone, Copy)]
pub struct ReadAhead {
    most: u64,
    /// What the draining leg's socket is set up to have unsent at most.
    most_unsent: Option<u64>,
    measure: Option<Measure>,
}

#[derive(Debug, Clone, Copy)]
struct Measure {
    limit: u64,
    /// When the round that is being measured began, and how much had been acknowledged then. None
    /// before the first look.
    round: Option<(Time, u64)>,
    /// When it has lasted long enough.
    due: Time,
    /// The greatest rate of this epoch and of the one before.
    best: [Rate; 2],
    /// When this epoch began.
    epoch: Time,
    /// It is the first one.
    begins: bool,
}

impl ReadAhead {
    /// The least limit, bytes, which slow legs have: enough for the relay to read in pieces that are
    /// worth a call.
    pub const LEAST: u64 = 64 * 1024;
    /// The least limit in the first epoch, bytes, in which legs are in slow start and what they
    /// take says little of what they will.
    pub const BEGINNING: u64 = 128 * 1024;
    /// How late the relay itself may be: it waits its turn on a processor as others do.
    pub const TURN: Span = Span::from_millis(10);
    /// How long the greatest rate counts at least, or eight rounds if that is longer: longer than
    /// radio fades, and than a congestion control takes to come back from a loss.
    pub const EPOCH: Span = Span::from_secs(1);
    /// A longer round trip than this is more likely a sender that had nothing to send.
    const LONGEST: Span = Span::from_secs(1);

    /// Always up to `limit` bytes.
    pub const fn fixed(limit: u64) -> Self {
        ReadAhead { most: limit, most_unsent: None, measure: None }
    }

    /// As far as the draining leg needs, and never more than `most` bytes. Its socket is set up to have
    /// no more than `most_unsent` bytes unsent.
    pub const fn measured(most: u64, most_unsent: Option<u64>) -> Self {
        let measure = Measure {
            limit: if most < Self::BEGINNING { most } else { Self::BEGINNING },
            round: None,
            due: Time::ZERO,
            best: [Rate::from_bps(0); 2],
            epoch: Time::ZERO,
            begins: true,
        };
        ReadAhead { most, most_unsent, measure: Some(measure) }
    }

    /// The most that the relay may hold, in bytes.
    pub const fn limit(&self) -> u64 {
        match &self.measure {
            Some(measure) => measure.limit,
            None => self.most,
        }
    }

    /// What the draining leg's socket is to have unsent at most, in bytes. None for no limit.
    pub fn unsent_limit(&self) -> Option<u64> {
        let measured = self.measure.filter(|of| !of.begins && of.limit < self.most);
        [measured.map(|measure| measure.limit), self.most_unsent].into_iter().flatten().min()
    }

    /// Whether it is worth being [looked](ReadAhead::look) at when `read` bytes have been read from
    /// the feeding leg in all: it is measured, and there are more than what it is at least.
    pub fn is_of_use(&self, read: u64) -> bool {
        self.measure.is_some() && read > Self::LEAST
    }

    /// Whether a [look](ReadAhead::look) would tell something: about a round trip has passed since the
    /// last one. Until then there is no need to find out what to look with.
    pub fn is_due(&self, now: Time) -> bool {
        self.measure.is_some_and(|measure| now >= measure.due)
    }

    /// Takes in how much the draining leg's peer has `acknowledged` in all, in bytes, and the feeding
    /// leg's round trip, zero while it is not known. Whether a limit has changed.
    pub fn look(&mut self, now: Time, acknowledged: u64, round_trip: Span) -> bool {
        let before = (self.limit(), self.unsent_limit());
        let most = self.most;
        if let Some(measure) = self.measure.as_mut().filter(|measure| now >= measure.due) {
            measure.look(now, acknowledged, round_trip, most);
        }
        (self.limit(), self.unsent_limit()) != before
    }
}

impl Measure {
    fn look(&mut self, now: Time, acknowledged: u64, round_trip: Span, most: u64) {
        let time = round_trip.min(ReadAhead::LONGEST) + ReadAhead::TURN;
        self.due = now + time;
        let Some((since, before)) = self.round.replace((now, acknowledged)) else {
            self.epoch = now;
            return;
        };
        let lasted = now.since(since);
        let rate = Rate::of(acknowledged.saturating_sub(before), lasted);
        if rate == Rate::from_bps(0) {
            self.epoch += lasted;
            return;
        }
        if now.since(self.epoch) >= ReadAhead::EPOCH.max(time * 8) {
            self.best = [rate, self.best[0]];
            (self.epoch, self.begins) = (now, false);
        }
        self.best[0] = self.best[0].max(rate);
        let [this, last] = self.best;
        let needed = this.max(last).bytes_in(time).as_bytes();
        let least = if self.begins { ReadAhead::BEGINNING } else { ReadAhead::LEAST };
        self.limit = needed.clamp(least.min(most), most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: u64 = 1 << 20;

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    /// Looks at every millisecond from `from` to `until` at a leg that takes `rate` bytes a millisecond.
    fn drain(ahead: &mut ReadAhead, taken: &mut u64, rate: u64, from: u64, until: u64) {
        for millis in from..until {
            *taken += rate;
            ahead.look(at(millis), *taken, Span::from_millis(50));
        }
    }

    #[test]
    fn a_fixed_one_is_never_due() {
        let mut ahead = ReadAhead::fixed(MOST);
        assert!(
            !ahead.is_of_use(u64::MAX)
                && !ahead.is_due(at(1000))
                && !ahead.look(at(1000), 1, Span::ZERO)
        );
        assert_eq!((ahead.limit(), ahead.unsent_limit()), (MOST, None));
    }

    #[test]
    fn it_is_what_the_leg_takes_in_a_round_trip_and_a_turn() {
        let (mut ahead, mut taken) = (ReadAhead::measured(MOST, None), 0);
        assert_eq!((ahead.limit(), ahead.unsent_limit()), (ReadAhead::BEGINNING, None));
        drain(&mut ahead, &mut taken, 5000, 0, 1100);
        assert_eq!(ahead.limit(), 5000 * 60);
        assert_eq!(ahead.unsent_limit(), Some(5000 * 60));
        let (mut ahead, mut taken) = (ReadAhead::measured(MOST, Some(9)), 0);
        drain(&mut ahead, &mut taken, 100, 0, 1100);
        assert_eq!((ahead.limit(), ahead.unsent_limit()), (ReadAhead::LEAST, Some(9)));
    }

    #[test]
    fn at_the_most_it_is_as_a_fixed_one() {
        let (mut ahead, mut taken) = (ReadAhead::measured(MOST, None), 0);
        drain(&mut ahead, &mut taken, 50_000, 0, 2000);
        assert_eq!((ahead.limit(), ahead.unsent_limit()), (MOST, None));
    }

    #[test]
    fn it_falls_once_the_leg_has_been_slow_for_two_epochs_and_not_before() {
        let (mut ahead, mut taken) = (ReadAhead::measured(MOST, None), 0);
        drain(&mut ahead, &mut taken, 5000, 0, 1000);
        drain(&mut ahead, &mut taken, 2000, 1000, 1900);
        assert_eq!(ahead.limit(), 5000 * 60);
        drain(&mut ahead, &mut taken, 2000, 1900, 4000);
        assert_eq!(ahead.limit(), 2000 * 60);
    }

    #[test]
    fn an_outage_leaves_it_as_it_was() {
        let (mut ahead, mut taken) = (ReadAhead::measured(MOST, None), 0);
        drain(&mut ahead, &mut taken, 5000, 0, 1000);
        // Looked at while it lasts, or not.
        drain(&mut ahead, &mut taken, 0, 1000, 30_000);
        assert_eq!(ahead.limit(), 5000 * 60);
        drain(&mut ahead, &mut taken, 5000, 60_000, 60_200);
        assert_eq!(ahead.limit(), 5000 * 60);
    }

    #[test]
    fn a_long_silence_of_the_sender_is_no_round_trip() {
        let mut ahead = ReadAhead::measured(u64::MAX, None);
        ahead.look(at(0), 0, Span::from_secs(50));
        ahead.look(at(2000), 2_000_000, Span::from_secs(50));
        assert_eq!(ahead.limit(), 1_010_000);
    }

    /// A relay between two legs as fluids: the feeding leg's sender answers what is read after a round
    /// trip, and has a window of `window` bytes for it beside what the relay holds.
    struct Fluid {
        ahead: ReadAhead,
        /// Bytes under way to the relay, by the millisecond in which they come.
        coming: std::collections::VecDeque<u64>,
        round_trip: u64,
        /// In the feeding socket, in the relay, in the draining one.
        unread: u64,
        held: u64,
        unsent: u64,
        window: u64,
        sent: u64,
        now: u64,
        /// Nothing comes any more.
        silent: bool,
    }

    impl Fluid {
        fn new(most: u64, round_trip: u64, window: u64) -> Fluid {
            Fluid {
                ahead: ReadAhead::measured(most, None),
                coming: std::iter::repeat_n(0, round_trip as usize).collect(),
                round_trip,
                unread: 0,
                held: 0,
                unsent: 0,
                window,
                sent: 0,
                now: 0,
                silent: false,
            }
        }

        /// A millisecond in which the draining leg could take `able` bytes. How many it took.
        fn step(&mut self, able: u64) -> u64 {
            self.now += 1;
            let came = self.coming.pop_front().unwrap_or(0);
            self.unread += if self.silent { 0 } else { came };
            let (limit, before) = (self.ahead.limit(), self.sent);
            // The relay has as many turns as it takes.
            loop {
                let read = self.unread.min(limit.saturating_sub(self.held));
                (self.unread, self.held) = (self.unread - read, self.held + read);
                let unsent = self.ahead.unsent_limit().unwrap_or(u64::MAX);
                let write = self.held.min(unsent.saturating_sub(self.unsent));
                (self.held, self.unsent) = (self.held - write, self.unsent + write);
                let took = self.unsent.min(before + able - self.sent);
                (self.unsent, self.sent) = (self.unsent - took, self.sent + took);
                if read + write + took == 0 {
                    break;
                }
            }
            let under_way: u64 = self.coming.iter().sum();
            self.coming.push_back(self.window.saturating_sub(self.unread + under_way));
            let round_trip = Span::from_millis(self.round_trip);
            self.ahead.look(at(self.now), self.sent, round_trip);
            self.sent - before
        }
    }

    proptest! {
        /// Whatever it is told, it stays within its bounds.
        #[test]
        fn it_stays_within_its_bounds(
            most in 1u64..10_000_000,
            looks in prop::collection::vec((0u64..10_000_000, 0u64..5_000_000, 0u64..100_000), 1..300),
        ) {
            let mut ahead = ReadAhead::measured(most, None);
            let (mut now, mut taken) = (Time::ZERO, 0);
            for (micros, bytes, round_trip) in looks {
                now += Span::from_micros(micros);
                taken += bytes;
                let before = (ahead.limit(), ahead.unsent_limit());
                let changed = ahead.look(now, taken, Span::from_micros(round_trip));
                prop_assert_eq!(changed, (ahead.limit(), ahead.unsent_limit()) != before);
                prop_assert!(ahead.limit() <= most);
                prop_assert!(ahead.limit() >= most.min(ReadAhead::LEAST));
            }
        }

        /// A leg of a constant rate that the feeding socket's window can fill is never without
        /// anything to send, from its first round trips on; neither after an outage.
        #[test]
        fn a_constant_leg_never_runs_dry(
            rate in 50u64..20_000,
            round_trip in 1u64..300,
            outage in 0u64..3000,
        ) {
            let window = 2 * rate * (round_trip + 1);
            let mut fluid = Fluid::new(u64::MAX, round_trip, window);
            for _ in 0..4 * round_trip {
                fluid.step(rate);
            }
            for _ in 0..2000 {
                prop_assert_eq!(fluid.step(rate), rate);
            }
            for _ in 0..outage {
                fluid.step(0);
            }
            for _ in 0..2000 {
                prop_assert_eq!(fluid.step(rate), rate);
            }
            // Nor while the feeding leg brings nothing for two round trips: one is in its socket.
            fluid.silent = true;
            for _ in 0..2 * round_trip {
                prop_assert_eq!(fluid.step(rate), rate);
            }
        }

        /// One that becomes `times` as fast is fed as fast as the window brings it in: the limit is in
        /// nobody's way.
        #[test]
        fn a_leg_that_becomes_faster_is_fed_at_once(
            rate in 50u64..5_000,
            times in 2u64..20,
            round_trip in 1u64..300,
        ) {
            let window = 2 * times * rate * (round_trip + 1);
            let mut fluid = Fluid::new(u64::MAX, round_trip, window);
            for _ in 0..4 * round_trip + 500 {
                fluid.step(rate);
            }
            for _ in 0..2000 {
                prop_assert_eq!(fluid.step(times * rate), times * rate);
            }
        }
    }
}
