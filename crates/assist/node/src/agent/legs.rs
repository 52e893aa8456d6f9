//! Whether the legs that go by feedback have some. A leg without falls back to its base control and
//! goes on, so that nobody would notice.

use std::collections::BTreeMap;
use std::net::IpAddr;

use midspan_units::{Span, Time};
use serde::{Deserialize, Serialize};

/// How long legs may be without feedback before somebody is told.
const SILENCE: Span = Span::from_secs(1);

/// How the legs to one UE fare.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Legs {
    /// The UE.
    pub ue: IpAddr,
    /// How many there are.
    pub legs: u32,
    /// For how long there has been at least one.
    pub watched: Span,
    /// For how much of it no feedback held.
    pub fallback: Span,
    /// For how long none has held by now.
    pub silent: Span,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Watch {
    ues: BTreeMap<IpAddr, Watched>,
    last: Option<Time>,
    watched: Span,
    fallback: Span,
    alarms: u64,
}

#[derive(Debug, Default)]
struct Watched {
    legs: u32,
    watched: Span,
    fallback: Span,
    silent: Span,
}

impl Watch {
    /// There are so many assisted legs to each UE; `holds` says whether there is feedback for one. Answers
    /// the UEs whose legs have been without for a second now.
    pub(super) fn look(
        &mut self,
        now: Time,
        legs: &BTreeMap<IpAddr, u32>,
        holds: impl Fn(IpAddr) -> bool,
    ) -> Vec<IpAddr> {
        let passed = self.last.replace(now).map_or(Span::ZERO, |last| now.since(last));
        self.ues.retain(|ue, _| legs.contains_key(ue));
        let mut alarms = Vec::new();
        for (ue, legs) in legs {
            let Some(watched) = self.ues.get_mut(ue) else {
                // What was before it came is not its time.
                self.ues.insert(*ue, Watched { legs: *legs, ..Watched::default() });
                continue;
            };
            watched.legs = *legs;
            watched.watched += passed;
            self.watched += passed;
            if holds(*ue) {
                watched.silent = Span::ZERO;
                continue;
            }
            watched.fallback += passed;
            self.fallback += passed;
            let before = watched.silent;
            watched.silent += passed;
            if before < SILENCE && watched.silent >= SILENCE {
                self.alarms += 1;
                alarms.push(*ue);
            }
        }
        alarms
    }

    /// UE by UE.
    pub(super) fn legs(&self) -> Vec<Legs> {
        let legs = |(ue, watched): (&IpAddr, &Watched)| {
            let Watched { legs, watched, fallback, silent } = *watched;
            Legs { ue: *ue, legs, watched, fallback, silent }
        };
        self.ues.iter().map(legs).collect()
    }

    /// Over all legs that were: for how long they were watched, for how much of it they were without
    /// feedback, and how often for a second.
    pub(super) fn totals(&self) -> (Span, Span, u64) {
        (self.watched, self.fallback, self.alarms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_without_feedback_is_told_once_and_all_of_it_is_counted() {
        let mut watch = Watch::default();
        let ue: IpAddr = "10.45.0.2".parse().unwrap();
        let legs = BTreeMap::from([(ue, 2)]);
        let mut told = Vec::new();
        for tenth in 0..=50u64 {
            let now = Time::from_nanos(tenth * 100_000_000);
            // For 1.5 s and for 0.5 s there is none.
            let holds = !(10..25).contains(&tenth) && !(30..35).contains(&tenth);
            told.extend(watch.look(now, &legs, |_| holds).iter().map(|_| tenth));
        }
        assert_eq!(told, [19]);
        let (seconds, silent) = (Span::from_secs(5), Span::from_secs(2));
        assert_eq!(watch.totals(), (seconds, silent, 1));
        let expected = Legs { ue, legs: 2, watched: seconds, fallback: silent, silent: Span::ZERO };
        assert_eq!(watch.legs(), [expected]);
        watch.look(Time::from_nanos(5_100_000_000), &BTreeMap::new(), |_| false);
        assert_eq!((watch.legs(), watch.totals()), (vec![], (seconds, silent, 1)));
    }
}
