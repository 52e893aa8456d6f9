//! What is decided, from what is heard.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use midspan_config::{Config, DecideConfig, DecideMode};
use midspan_gain::{Estimator, Learner, Reason, Unit};

use crate::board::{Board, UnitDecision};
use crate::chance::{Because, Chance, Of};
use crate::drawn::Drawn;
use crate::places::{self, Places};
use crate::schedule::{Due, Schedule};

/// After how long without a connection a place is forgotten.
const FORGET: Duration = Duration::from_secs(14 * 86_400);

/// Learns from connections that were drawn, and decides how many of the next are left alone.
///
/// Tell it of each that has [ended](Decider::ended); [ask](Decider::poll) it what is due, and again
/// [when something may be](Decider::poll_timeout). Whenever a slot was [closed](Decider::close),
/// [what was decided](Decider::chances) may be something else. All times are the system's monotonic clock's.
#[derive(Debug)]
pub struct Decider {
    learner: Learner,
    places: Places,
    schedule: Schedule,
    /// What the learner counts from.
    since_1970: Duration,
    is_dry: bool,
    board: Arc<Board>,
}

impl Decider {
    /// Decides as it is configured by what an estimator has learned. `since_1970` is when the clock began, for the learner
    /// ([`Decider::since_1970`]).
    pub fn new(
        config: &Config,
        decide: &DecideConfig,
        estimator: Estimator,
        since_1970: Duration,
        now: Duration,
    ) -> Decider {
        let slot = Duration::from(config.policy.slot());
        let groups = if decide.groups.is_empty() { &config.clients } else { &decide.groups };
        let learner = Learner::new(estimator, slot);
        Decider {
            schedule: Schedule::new(&learner, since_1970 + now),
            learner,
            places: Places::new(groups.clone(), decide.always_split.clone()),
            since_1970,
            is_dry: decide.mode == DecideMode::DryRun,
            board: Arc::new(Board::new(decide.mode, slot)),
        }
    }

    /// What is to be added to the monotonic clock's time `now`, when the wall clock shows `wall` since 1970: slots of this
    /// length then begin at multiples of it since 1970, or less than one later.
    pub fn since_1970(wall: Duration, now: Duration, slot: Duration) -> Duration {
        let slots = wall.saturating_sub(now).as_nanos() / slot.as_nanos().max(1);
        slot * u32::try_from(slots).unwrap_or(u32::MAX)
    }

    /// What it shows.
    pub fn board(&self) -> Arc<Board> {
        self.board.clone()
    }

    /// What was learned.
    pub const fn estimator(&self) -> &Estimator {
        self.learner.estimator()
    }

    /// How long slots are.
    pub const fn slot(&self) -> Duration {
        self.learner.slot()
    }

    /// The groups of clients, by which places are told apart: the first is number 1.
    pub fn groups(&self) -> &[IpNet] {
        self.places.groups()
    }

    // What is heard.

    /// A connection has ended.
    pub fn ended(&mut self, drawn: &Drawn) {
        let transfer = self.places.transfer(drawn, self.since_1970, None);
        self.board.count(self.learner.ended(&transfer));
    }

    /// A connection is open, when open ones are [looked at](Due::Look).
    pub fn runs(&mut self, drawn: &Drawn, now: Duration) {
        if let Some(slot) = self.schedule.slot() {
            let transfer = self.places.transfer(drawn, self.since_1970, Some(now));
            self.learner.runs(&transfer, slot);
        }
    }

    // What is to be done, and when.

    /// When something may be due.
    pub fn poll_timeout(&self) -> Duration {
        self.schedule.poll_timeout().saturating_sub(self.since_1970)
    }

    /// What is due now.
    pub fn poll(&mut self, now: Duration) -> Option<Due> {
        self.schedule.poll(&self.learner, self.since_1970 + now)
    }

    /// All open connections were told of.
    pub fn looked(&mut self, now: Duration) {
        self.schedule.looked(&self.learner, self.since_1970 + now);
    }

    /// Closes the slot that is [due](Due::Close).
    pub fn close(&mut self, now: Duration) {
        let now = self.since_1970 + now;
        if let Some(slot) = self.schedule.slot() {
            self.learner.close(slot);
        }
        self.learner.forget(now, FORGET);
        self.schedule = Schedule::new(&self.learner, now);
    }

    // What is decided.

    /// How many are left alone, and from which slot on, counted from the clock's beginning. None if that is only told.
    pub fn chances(&self, now: Duration) -> Option<(BTreeMap<Of, Chance>, u64)> {
        if self.is_dry {
            return None;
        }
        let mut decided = BTreeMap::new();
        for (unit, decision) in self.estimator().decisions() {
            let because = match decision.reason {
                Reason::Pinned(_) => Because::Pinned,
                Reason::Unknown(_) => Because::Unknown,
                Reason::Fine(_) => Because::Fine,
                Reason::Harm(_) => Because::Harm,
            };
            let per_mille = ((1.0 - decision.split) * 1000.0).round() as u16;
            let chance = self.places.pinned(unit).unwrap_or(Chance { per_mille, because });
            decided.extend(self.places.of(unit).into_iter().map(|of| (of, chance)));
        }
        for &net in self.places.always_split() {
            decided.insert(Of::Servers(net), places::SPLIT);
        }
        let next = u64::try_from(now.as_nanos() / self.slot().as_nanos() + 1).unwrap_or(u64::MAX);
        Some((decided, next))
    }

    /// Shows it on the [board](Decider::board). Answers the servers to which splitting is slower, if there are others than
    /// before.
    pub fn show(&self) -> Option<Vec<String>> {
        let estimator = self.estimator();
        let decided: Vec<UnitDecision> = estimator
            .decisions()
            .map(|(unit, decision)| UnitDecision {
                unit,
                name: self.places.name(unit),
                decision,
                is_pinned: self.places.pinned(unit).is_some(),
                changes: estimator.changes(unit),
            })
            .collect();
        let harmed = decided.iter().filter(|unit| {
            matches!(unit.unit, Unit::Service { .. })
                && matches!(unit.decision.reason, Reason::Harm(_))
        });
        let named: Vec<String> = harmed.map(|unit| unit.name.clone()).collect();
        let is_new = self.board.harmed_are_new(&named);
        self.board.show(decided);
        is_new.then_some(named)
    }
}

#[cfg(test)]
mod tests {
    use core::net::{IpAddr, Ipv4Addr, SocketAddr};

    use midspan_gain::{Arm, Settings};
    use proptest::prelude::*;

    use super::*;
    use crate::drawn::Sent;

    const SLOT: Duration = Duration::from_secs(10);
    const SERVER: &str = "192.0.2.9:443";

    fn config(decide: &str) -> Config {
        // What is decided is not done in a dry run: it learns from what the policy leaves alone.
        let holdout = if decide.contains("dry-run") { 500 } else { 0 };
        let text = format!(
            "port = 1\nclients = [\"10.0.0.0/8\"]\n[policy]\nholdout = {holdout}\nholdout_slot = \"10 s\"\n\
             [decide]\n{decide}"
        );
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn decider(decide: &str, now: Duration) -> Decider {
        let config = config(decide);
        let decide = config.decide.clone().unwrap();
        let estimator = Estimator::new(decide.settings()).unwrap();
        Decider::new(&config, &decide, estimator, SLOT * 1000, now)
    }

    /// Of one client in a slot, which takes so long.
    fn drawn(client: u16, slot: u32, arm: Arm, took: Duration) -> Drawn {
        let [high, low] = client.to_be_bytes();
        let start = SLOT * slot + SLOT / 2;
        let end = Some(start + took);
        Drawn {
            client: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 1, high, low)), 40_000),
            server: SERVER.parse().unwrap(),
            arm,
            per_mille: 500,
            slot: SLOT * slot,
            start,
            up: Sent { bytes: 100, last: Some(start), acknowledged: Some(start) },
            down: Sent { bytes: 20_000, last: end, acknowledged: end },
        }
    }

    /// Lets time pass until something is due, and does it; answers what and when.
    fn step(decider: &mut Decider, now: &mut Duration) -> Due {
        loop {
            match decider.poll(*now) {
                Some(Due::Look) => {
                    decider.looked(*now);
                    return Due::Look;
                }
                Some(Due::Close) => {
                    decider.close(*now);
                    return Due::Close;
                }
                None => *now = decider.poll_timeout().max(*now),
            }
        }
    }

    /// Transfers that the estimator has taken.
    fn heard(decider: &Decider) -> u64 {
        let counts = decider.estimator().counts();
        counts.counted + counts.learned
    }

    /// Slots in which splitting takes so much longer, and what it comes to.
    fn learn(decider: &mut Decider, slots: u32, times: f64) -> Duration {
        let mut now = Duration::ZERO;
        for slot in 0..slots {
            for client in 0..60 {
                let arm = if client % 2 == 0 { Arm::Split } else { Arm::Unsplit };
                let jitter = 1.0 + f64::from(u32::from(client) * 7919 % 60) / 300.0;
                let took = if arm == Arm::Split { 0.1 * times } else { 0.1 } * jitter;
                decider.ended(&drawn(client, slot, arm, Duration::from_secs_f64(took)));
            }
            now = now.max(SLOT * (slot + 1));
            while step(decider, &mut now) != Due::Close {}
        }
        now
    }

    #[test]
    fn a_slot_is_closed_when_its_last_records_had_time_to_come() {
        let mut decider = decider("", Duration::ZERO);
        let mut now = Duration::ZERO;
        assert_eq!(step(&mut decider, &mut now), Due::Look);
        let grace = SLOT / 4;
        assert_eq!(now, grace, "what began before this relay did");
        assert_eq!(step(&mut decider, &mut now), Due::Close);
        assert_eq!(now, grace + Duration::from_millis(500));
        assert_eq!(step(&mut decider, &mut now), Due::Look);
        assert_eq!(now, SLOT + grace);
        assert_eq!(decider.poll(now), None, "it was done");
        now = SLOT * 5;
        assert_eq!(decider.poll(now), Some(Due::Close));
        assert_eq!(decider.poll(now), Some(Due::Close), "it is due until it is done");
        decider.close(now);
        assert_eq!(decider.poll_timeout(), now + grace, "slots that were slept through are one");
    }

    #[test]
    fn what_is_open_at_the_end_of_its_slot_counts_with_the_time_that_it_has_taken() {
        let mut decider = decider("", Duration::ZERO);
        let mut now = SLOT;
        let open = drawn(1, 1, Arm::Split, SLOT * 9);
        decider.runs(&open, now);
        while step(&mut decider, &mut now) != Due::Close {}
        assert_eq!(heard(&decider), 0, "no slot was to be closed");
        now = SLOT * 2 + SLOT / 4;
        while decider.poll(now) != Some(Due::Look) {
            now += SLOT / 8;
        }
        decider.runs(&open, now);
        decider.looked(now);
        assert_eq!(step(&mut decider, &mut now), Due::Close);
        assert_eq!(heard(&decider), 1);
    }

    #[test]
    fn where_splitting_harms_most_are_left_alone_and_it_is_said_once() {
        let mut decider = decider("", Duration::ZERO);
        assert_eq!(decider.show(), None);
        let now = learn(&mut decider, 60, 3.0);
        let (decided, from) = decider.chances(now).unwrap();
        assert_eq!(from, (now.as_secs() / SLOT.as_secs()) + 1);
        let server: SocketAddr = SERVER.parse().unwrap();
        let chance = decided[&Of::Servers(server.ip().into())];
        assert_eq!(chance.because, Because::Harm);
        let explore = Settings::default().explore;
        assert_eq!(chance.per_mille, ((1.0 - explore) * 1000.0).round() as u16);
        assert_eq!(decider.show(), Some(vec![server.ip().to_string()]));
        assert_eq!(decider.show(), None, "it is known");
        let board = decider.board();
        let harmed = board.units().into_iter().find(|units| units.because == "harm");
        assert!(harmed.is_some_and(|units| units.count >= 1));
        let told = board.decisions();
        assert!(!told.is_dry_run && told.slot_s == 10.0);
        let service = told.decided.iter().find(|unit| unit.of == server.ip().to_string()).unwrap();
        assert_eq!((&*service.level, &*service.because), ("service", "harm"));
        assert!(service.gain.unwrap() < 0.5 && service.at_most.unwrap() < 1.0);
        assert_eq!(told.transfers.counted + told.transfers.learned, 3600);
    }

    #[test]
    fn where_it_is_harmless_few_are_left_alone() {
        let mut decider = decider("", Duration::ZERO);
        let now = learn(&mut decider, 60, 0.3);
        let (decided, _) = decider.chances(now).unwrap();
        let server: SocketAddr = SERVER.parse().unwrap();
        let chance = decided[&Of::Servers(server.ip().into())];
        assert_eq!(chance.because, Because::Fine);
        let Settings { holdout, learning, .. } = Settings::default();
        let few = (holdout * 1000.0) as u16..=(learning * 1000.0) as u16;
        assert!(few.contains(&chance.per_mille), "{chance:?}");
        assert_eq!(decider.show(), None);
        assert!(decider.board().of_all().unwrap().gain > 0.5);
    }

    #[test]
    fn what_is_pinned_is_split_and_a_dry_run_decides_nothing() {
        let mut pinned = decider("always_split = [\"192.0.2.0/24\"]", Duration::ZERO);
        let now = learn(&mut pinned, 60, 3.0);
        let (decided, _) = pinned.chances(now).unwrap();
        let server: SocketAddr = SERVER.parse().unwrap();
        for net in [IpNet::from(server.ip()), "192.0.2.0/24".parse().unwrap()] {
            assert_eq!(decided[&Of::Servers(net)], places::SPLIT);
        }
        let _ = pinned.show();
        let told = pinned.board().decisions();
        let service = told.decided.iter().find(|unit| unit.level == "service").unwrap();
        assert_eq!((&*service.because, service.split), ("pinned", 1.0));
        let mut dry = decider("mode = \"dry-run\"", Duration::ZERO);
        let now = learn(&mut dry, 60, 3.0);
        assert_eq!(dry.chances(now), None);
        assert!(dry.show().is_some(), "it is told all the same");
        assert!(dry.board().decisions().is_dry_run);
    }

    #[test]
    fn groups_are_the_clients_where_none_are_named() {
        assert_eq!(decider("", Duration::ZERO).groups(), ["10.0.0.0/8".parse().unwrap()]);
        let named = decider("groups = [\"10.7.0.0/16\"]", Duration::ZERO);
        assert_eq!(named.groups(), ["10.7.0.0/16".parse().unwrap()]);
    }

    proptest! {
        /// Slots of the learner begin where those of the steering program do, less than one after those since 1970.
        #[test]
        fn slots_are_those_since_1970(
            wall in 0u64..4_000_000_000,
            up in 0u64..400_000_000,
            slot in 1u64..86_400,
        ) {
            let seconds = Duration::from_secs;
            let since = Decider::since_1970(seconds(wall), seconds(up), seconds(slot));
            prop_assert_eq!(since.as_nanos() % seconds(slot).as_nanos(), 0);
            let began = seconds(wall).saturating_sub(seconds(up));
            prop_assert!(since <= began && began - since < seconds(slot));
        }
    }
}
