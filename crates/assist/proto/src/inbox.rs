use core::net::IpAddr;
use std::collections::BTreeMap;

use midspan_units::{Rate, Span, Time};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::fairness::Coefficient;
use crate::{BasisKind, FeedbackDatagram, Malformed, Quality, Seen, Window};

/// What a sender believes of the datagrams of one daemon: what it asked for, once, and in order.
///
/// Whoever the daemon is has been shown by its certificate, and that nobody else wrote the datagram
/// by QUIC. This is about a daemon that is wrong, and about datagrams that lose their order.
#[derive(Debug)]
pub struct Inbox {
    basis: BasisKind,
    oldest: Span,
    greatest: Rate,
    registered: BTreeMap<u32, Registered>,
    tally: Tally,
}

#[derive(Debug)]
struct Registered {
    ue: IpAddr,
    window: Window,
}

/// Feedback that is to be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Update {
    /// Whose link.
    pub ue: IpAddr,
    /// What it can carry; never zero.
    pub bandwidth: Rate,
    /// Round trip without queues; never zero.
    pub min_rtt: Span,
    /// Among how many flows, if the network knows.
    pub fairness: Option<Coefficient>,
    /// When the measurement was made, on the receiver's clock; the way here is not known and counts
    /// as nothing.
    pub measured: Time,
    /// How well the bandwidth is known.
    pub quality: Quality,
}

/// Why a datagram has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Refusal {
    /// It is not a feedback datagram.
    #[error("malformed: {0}")]
    Malformed(#[from] Malformed),
    /// Nobody asked for it.
    #[error("of a registration that does not exist")]
    Unregistered,
    /// The registration is for another UE.
    #[error("of another UE than was registered")]
    OtherUe,
    /// It is of windows to come and was to be of those that passed, or the other way round.
    #[error("of the wrong windows")]
    OtherBasis,
    /// It has been here before.
    #[error("replayed")]
    Replayed,
    /// A newer one has been here before.
    #[error("overtaken")]
    Overtaken,
    /// What it says is too old.
    #[error("too old")]
    Old,
    /// More bandwidth than this sender believes of any link.
    #[error("implausible")]
    Implausible,
}

/// How many datagrams had which fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Used.
    pub accepted: u64,
    /// Sequence numbers that were skipped: lost, or still to come.
    pub missing: u64,
    /// See [`Refusal::Malformed`].
    pub malformed: u64,
    /// See [`Refusal::Unregistered`].
    pub unregistered: u64,
    /// See [`Refusal::OtherUe`].
    pub other_ue: u64,
    /// See [`Refusal::OtherBasis`].
    pub other_basis: u64,
    /// See [`Refusal::Replayed`].
    pub replayed: u64,
    /// See [`Refusal::Overtaken`].
    pub overtaken: u64,
    /// See [`Refusal::Old`].
    pub old: u64,
    /// See [`Refusal::Implausible`].
    pub implausible: u64,
}

impl Tally {
    /// All that came and was not used.
    pub fn refused(&self) -> u64 {
        let Tally { accepted: _, missing: _, malformed, unregistered, other_ue, .. } = *self;
        let Tally { other_basis, replayed, overtaken, old, implausible, .. } = *self;
        let of_shape = malformed + unregistered + other_ue + other_basis;
        of_shape + replayed + overtaken + old + implausible
    }
}

impl Inbox {
    /// Nothing is registered yet. Feedback is to be of `basis`, not older than `oldest`, and not
    /// above `greatest`.
    pub fn new(basis: BasisKind, oldest: Span, greatest: Rate) -> Inbox {
        Inbox { basis, oldest, greatest, registered: BTreeMap::new(), tally: Tally::default() }
    }

    /// Feedback for `ue` has been asked for under this number.
    pub fn register(&mut self, registration: u32, ue: IpAddr) {
        self.registered.insert(registration, Registered { ue, window: Window::default() });
    }

    /// It has been withdrawn, or refused. The UE that it was for.
    pub fn withdraw(&mut self, registration: u32) -> Option<IpAddr> {
        self.registered.remove(&registration).map(|registered| registered.ue)
    }

    /// Whether feedback under this number is waited for.
    pub fn is_registered(&self, registration: u32) -> bool {
        self.registered.contains_key(&registration)
    }

    /// How many datagrams had which fate.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Takes a datagram in.
    ///
    /// # Errors
    /// Why it has no effect; that is counted.
    pub fn accept(&mut self, datagram: &[u8], now: Time) -> Result<Update, Refusal> {
        let result = self.judge(datagram, now);
        let count = match result {
            Ok(_) => &mut self.tally.accepted,
            Err(Refusal::Malformed(_)) => &mut self.tally.malformed,
            Err(Refusal::Unregistered) => &mut self.tally.unregistered,
            Err(Refusal::OtherUe) => &mut self.tally.other_ue,
            Err(Refusal::OtherBasis) => &mut self.tally.other_basis,
            Err(Refusal::Replayed) => &mut self.tally.replayed,
            Err(Refusal::Overtaken) => &mut self.tally.overtaken,
            Err(Refusal::Old) => &mut self.tally.old,
            Err(Refusal::Implausible) => &mut self.tally.implausible,
        };
        *count += 1;
        result
    }

    fn judge(&mut self, datagram: &[u8], now: Time) -> Result<Update, Refusal> {
        let feedback = FeedbackDatagram::parse(datagram)?;
        let registered =
            self.registered.get_mut(&feedback.registration).ok_or(Refusal::Unregistered)?;
        if feedback.ue != registered.ue {
            return Err(Refusal::OtherUe);
        }
        if feedback.basis != self.basis {
            return Err(Refusal::OtherBasis);
        }
        let before = registered.window.highest();
        match registered.window.note(feedback.sequence) {
            Seen::Newest => {}
            Seen::Late => {
                self.tally.missing = self.tally.missing.saturating_sub(1);
                return Err(Refusal::Overtaken);
            }
            Seen::Forgotten => return Err(Refusal::Overtaken),
            Seen::Replayed => return Err(Refusal::Replayed),
        }
        if let Some(before) = before {
            let skipped = feedback.sequence - before - 1;
            self.tally.missing = self.tally.missing.saturating_add(skipped);
        }
        if feedback.age > self.oldest {
            return Err(Refusal::Old);
        }
        if feedback.bandwidth > self.greatest {
            return Err(Refusal::Implausible);
        }
        let measured = Time::from_nanos(now.as_nanos().saturating_sub(feedback.age.as_nanos()));
        Ok(Update {
            ue: feedback.ue,
            bandwidth: feedback.bandwidth,
            min_rtt: feedback.min_rtt,
            fairness: feedback.fairness,
            measured,
            quality: feedback.quality,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::feedback::tests::sample;

    const NOW: Time = Time::from_nanos(5_000_000_000);

    fn inbox() -> Inbox {
        let mut inbox =
            Inbox::new(BasisKind::Causal, Span::from_millis(200), Rate::from_bps(1_000_000_000));
        inbox.register(7, sample().ue);
        inbox
    }

    #[test]
    fn what_was_asked_for_is_used_once() {
        let mut inbox = inbox();
        let datagram = sample().encode();
        let update = inbox.accept(&datagram, NOW).unwrap();
        assert_eq!(update.bandwidth, sample().bandwidth);
        assert_eq!(update.measured + sample().age, NOW);
        assert_eq!(inbox.accept(&datagram, NOW), Err(Refusal::Replayed));
        assert_eq!(inbox.tally(), Tally { accepted: 1, replayed: 1, ..Tally::default() });
    }

    #[test]
    fn what_is_overtaken_changes_nothing_and_is_not_missing() {
        let mut inbox = inbox();
        let at = |sequence| FeedbackDatagram { sequence, ..sample() }.encode();
        assert!(inbox.accept(&at(10), NOW).is_ok());
        assert!(inbox.accept(&at(13), NOW).is_ok());
        assert_eq!(inbox.tally().missing, 2);
        assert_eq!(inbox.accept(&at(11), NOW), Err(Refusal::Overtaken));
        assert_eq!(inbox.tally().missing, 1);
        assert!(inbox.accept(&at(14), NOW).is_ok());
    }

    #[test]
    fn everything_else_is_refused_and_counted() {
        let mut inbox = inbox();
        let mut refusal =
            |feedback: FeedbackDatagram| inbox.accept(&feedback.encode(), NOW).unwrap_err();
        assert_eq!(
            refusal(FeedbackDatagram { registration: 8, ..sample() }),
            Refusal::Unregistered
        );
        let other = "10.45.0.3".parse().unwrap();
        assert_eq!(refusal(FeedbackDatagram { ue: other, ..sample() }), Refusal::OtherUe);
        let oracle = FeedbackDatagram { basis: BasisKind::Oracle, ..sample() };
        assert_eq!(refusal(oracle), Refusal::OtherBasis);
        let old = FeedbackDatagram { age: Span::from_millis(201), sequence: 1, ..sample() };
        assert_eq!(refusal(old), Refusal::Old);
        let fast =
            FeedbackDatagram { bandwidth: Rate::from_bps(1_000_000_001), sequence: 2, ..sample() };
        assert_eq!(refusal(fast), Refusal::Implausible);
        assert!(matches!(inbox.accept(&[1, 2, 3], NOW), Err(Refusal::Malformed(_))));
        assert_eq!(inbox.withdraw(7), Some(sample().ue));
        assert_eq!(inbox.accept(&sample().encode(), NOW), Err(Refusal::Unregistered));
        let expected = Tally {
            malformed: 1,
            unregistered: 2,
            other_ue: 1,
            other_basis: 1,
            old: 1,
            implausible: 1,
            ..Tally::default()
        };
        assert_eq!(inbox.tally(), expected);
    }

    proptest! {
        /// Lost, doubled and reordered in whatever way: what is used only ever gets newer.
        #[test]
        fn what_is_used_only_gets_newer(sequences in prop::collection::vec(0u64..200, 1..300)) {
            let mut inbox = inbox();
            let mut newest = None;
            for sequence in sequences {
                let datagram = FeedbackDatagram { sequence, ..sample() }.encode();
                let used = inbox.accept(&datagram, NOW).is_ok();
                prop_assert_eq!(used, newest < Some(sequence));
                newest = newest.max(Some(sequence));
            }
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..80), cut in 0usize..48) {
            let mut inbox = inbox();
            let _ = inbox.accept(&bytes, NOW);
            let whole = [&sample().encode()[..cut], &bytes].concat();
            let _ = inbox.accept(&whole, NOW);
            let tally = inbox.tally();
            prop_assert_eq!(tally.accepted + tally.malformed + tally.unregistered + tally.other_ue
                + tally.other_basis + tally.old + tally.implausible + tally.replayed + tally.overtaken, 2);
        }
    }
}
