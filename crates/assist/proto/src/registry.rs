//! The daemon's decisions: who is registered for whom, and what is due when.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use midspan_units::{ByteSize, Span, Time};
use serde::{Deserialize, Serialize};

use crate::estimate::{Clip, Estimate, EstimatorConfig, UeEstimator};
use crate::fairness::Coefficient;
use crate::turns::{PeerId, Turn, Turns};
use crate::{Basis, FeedbackDatagram, Reading, Reason, Rights, ToDaemon, ToSender};

/// A connection of a sender, or of a UE. Chosen by the caller; not used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// A source of readings. Chosen by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

/// What a daemon holds at most, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// UEs of which something is known.
    pub ues: usize,
    /// Registrations of all sessions.
    pub registrations: usize,
    /// Sessions of one peer, which is who has the same certificate.
    pub sessions_per_peer: usize,
    /// Registrations of all its sessions.
    pub registrations_per_peer: usize,
    /// Datagrams a second to all its sessions; what is above it comes later.
    pub datagrams_per_peer: u64,
    /// How old a measurement may be and still be sent; three of its windows if that is longer.
    pub stale: Span,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            ues: 20_000,
            registrations: 50_000,
            sessions_per_peer: 256,
            registrations_per_peer: 20_000,
            datagrams_per_peer: 400_000,
            stale: Span::from_millis(600),
        }
    }
}

/// What a registry has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Readings taken in.
    pub readings: u64,
    /// Readings refused because as many UEs are known as may be.
    pub refused_ues: u64,
    /// Readings clipped to the network's ceiling.
    pub clipped_ceiling: u64,
    /// Readings clipped because they jumped.
    pub clipped_jump: u64,
    /// Registrations made.
    pub registered: u64,
    /// Registrations and reports refused by the policy.
    pub refused_not_allowed: u64,
    /// Registrations refused because there are as many as may be.
    pub refused_too_many: u64,
    /// Datagrams handed out.
    pub sent: u64,
    /// Times a registration found its UE's measurement too old to send, and began to wait for a new
    /// one.
    pub stale: u64,
}

/// A datagram that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// To whom.
    pub session: SessionId,
    /// What.
    pub datagram: [u8; FeedbackDatagram::BYTES],
    /// How long ago it could first have been sent: what the caller's clock and load cost.
    pub late: Span,
}

/// What is known of one UE.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UeView {
    /// Its address.
    pub ue: IpAddr,
    /// What its senders are told, in bit/s. None: nothing, or not any more.
    pub bandwidth_bps: Option<u64>,
    /// The same for minRTT.
    pub min_rtt: Option<Span>,
    /// How old the measurement is.
    pub age: Option<Span>,
    /// From what the bandwidth is known.
    pub evidence: Option<crate::estimate::Evidence>,
    /// What waits for the UE, where the source tells.
    pub backlog: Option<u64>,
    /// The flows that the UE has, as reported by it.
    pub flows: Option<u16>,
    /// Who has the source.
    pub source: Option<u32>,
    /// Sessions that are registered for it.
    pub sessions: Vec<u64>,
}

/// UEs, their estimators, and who is told of them. `B` says of which windows all of it is.
///
/// Feedback for a registration is sent when there is a new measurement and three quarters of its
/// period have passed since the last: so feedback falls into step with a source of about the same
/// period, and what is sent is fresh. Without a new one the last is sent again after five quarters.
/// Until a UE is known here, or while what is known of it is too old, nothing is sent for it.
#[derive(Debug)]
pub struct Registry<B: Basis> {
    estimator: EstimatorConfig,
    limits: Limits,
    network: Option<Span>,
    withheld: BTreeSet<SourceId>,
    ues: BTreeMap<IpAddr, Ue<B>>,
    sessions: BTreeMap<SessionId, Session>,
    registrations: BTreeMap<(SessionId, u32), Registration>,
    turns: Turns,
    counts: Counts,
}

#[derive(Debug)]
struct Ue<B: Basis> {
    known: Option<(SourceId, UeEstimator<B>)>,
    flows: Option<(SessionId, u16)>,
    watchers: Vec<(SessionId, u32)>,
}

#[derive(Debug)]
struct Session {
    rights: Rights,
    peer: PeerId,
    /// UE by UE: each is registered once.
    numbers: BTreeMap<IpAddr, u32>,
    /// Above every sequence number that the session has had, so that a number that is registered
    /// again does not look replayed.
    next_sequence: u64,
}

#[derive(Debug)]
struct Registration {
    ue: IpAddr,
    peer: PeerId,
    period: Span,
    sequence: u64,
    last_sent: Option<Time>,
    /// Never, while there is nothing to send.
    due: Time,
}

impl<B: Basis> Registry<B> {
    /// Empty.
    pub fn new(estimator: EstimatorConfig, limits: Limits) -> Self {
        Registry {
            estimator,
            limits,
            network: None,
            withheld: BTreeSet::new(),
            ues: BTreeMap::new(),
            sessions: BTreeMap::new(),
            registrations: BTreeMap::new(),
            turns: Turns::new(limits.datagrams_per_peer),
            counts: Counts::default(),
        }
    }

    /// What has been done so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The first part of minRTT as a probe measured it; None leaves it as configured.
    pub fn set_network(&mut self, network: Option<Span>) {
        self.network = network;
    }

    /// A session has begun, of a peer that has no other.
    pub fn open(&mut self, id: SessionId, rights: Rights) {
        self.open_of(id, &format!("session {}", id.0), rights);
    }

    /// A session of this peer has begun. False if it has as many as may be.
    pub fn open_of(&mut self, id: SessionId, peer: &str, rights: Rights) -> bool {
        let Some(peer) = self.turns.open(peer, self.limits.sessions_per_peer) else {
            return false;
        };
        let session = Session { rights, peer, numbers: BTreeMap::new(), next_sequence: 0 };
        self.sessions.insert(id, session);
        true
    }

    /// A session is over: its registrations and reports go with it.
    pub fn close(&mut self, id: SessionId) {
        let numbers: Vec<u32> = self.numbers_of(id).collect();
        for number in numbers {
            self.drop_registration((id, number));
        }
        if let Some(session) = self.sessions.remove(&id) {
            self.turns.close(session.peer);
        }
        for ue in self.ues.values_mut() {
            ue.flows = ue.flows.filter(|(reporter, _)| *reporter != id);
        }
        self.ues.retain(|_, ue| ue.matters());
    }

    /// A session may do something else from now on. What it may no longer do is refused, one
    /// answer each.
    pub fn set_rights(&mut self, id: SessionId, rights: Rights) -> Vec<ToSender> {
        let Some(session) = self.sessions.get_mut(&id) else { return Vec::new() };
        session.rights = rights.clone();
        let lost: Vec<u32> = self
            .numbers_of(id)
            .filter(|number| !rights.may_ask(self.registrations[&(id, *number)].ue))
            .collect();
        for number in &lost {
            self.drop_registration((id, *number));
        }
        for (address, ue) in &mut self.ues {
            let reporter = ue.flows.is_some_and(|(reporter, _)| reporter == id);
            if reporter && !rights.may_report(*address) {
                ue.flows = None;
            }
        }
        self.counts.refused_not_allowed += lost.len() as u64;
        let refused = |registration| ToSender::Refused { registration, reason: Reason::NotAllowed };
        lost.into_iter().map(refused).collect()
    }

    /// Takes a session's message. Answers what is to be said to it, if anything.
    pub fn handle(&mut self, id: SessionId, message: ToDaemon, now: Time) -> Option<ToSender> {
        match message {
            ToDaemon::Hello { .. } => Some(ToSender::welcome(B::KIND)),
            ToDaemon::Register { registration, ue, period } => {
                Some(match self.register(id, registration, ue, period, now) {
                    Ok(period) => ToSender::Registered { registration, period },
                    Err(reason) => ToSender::Refused { registration, reason },
                })
            }
            ToDaemon::Withdraw { registration } => {
                self.drop_registration((id, registration));
                None
            }
            ToDaemon::Flows { ue, flows } => {
                let reason = self.report_flows(id, ue, flows).err()?;
                Some(ToSender::Refused { registration: 0, reason })
            }
        }
    }

    fn register(
        &mut self,
        id: SessionId,
        number: u32,
        address: IpAddr,
        period: Span,
        now: Time,
    ) -> Result<Span, Reason> {
        let Some(session) = self.sessions.get(&id) else { return Err(Reason::NotAllowed) };
        if !session.rights.may_ask(address) {
            self.counts.refused_not_allowed += 1;
            return Err(Reason::NotAllowed);
        }
        let period = period.max(session.rights.shortest_period);
        let before = session.numbers.get(&address).copied();
        for number in before.into_iter().chain([number]) {
            self.drop_registration((id, number));
        }
        let Some(session) = self.sessions.get_mut(&id) else { return Err(Reason::NotAllowed) };
        let Some(peer) = self.turns.peer(session.peer) else { return Err(Reason::NotAllowed) };
        if peer.registrations >= self.limits.registrations_per_peer
            || self.registrations.len() >= self.limits.registrations
        {
            self.counts.refused_too_many += 1;
            return Err(Reason::TooMany);
        }
        peer.registrations += 1;
        session.numbers.insert(address, number);
        let (peer, sequence) = (session.peer, session.next_sequence);
        self.counts.registered += 1;
        let ue = self.ues.entry(address).or_insert_with(Ue::unknown);
        ue.watchers.push((id, number));
        let due = if ue.known.is_some() { now } else { Time::MAX };
        let registration =
            Registration { ue: address, peer, period, sequence, last_sent: None, due };
        self.registrations.insert((id, number), registration);
        if due < Time::MAX {
            self.turns.push(peer, due, (id, number));
        }
        Ok(period)
    }

    fn report_flows(&mut self, id: SessionId, address: IpAddr, flows: u16) -> Result<(), Reason> {
        let allowed =
            self.sessions.get(&id).is_some_and(|session| session.rights.may_report(address));
        if !allowed {
            self.counts.refused_not_allowed += 1;
            return Err(Reason::NotAllowed);
        }
        if flows == 0 {
            if let Some(ue) = self.ues.get_mut(&address) {
                ue.flows = None;
            }
            self.forget_if_idle(address);
            return Ok(());
        }
        if self.is_full_for(address) {
            self.counts.refused_too_many += 1;
            return Err(Reason::TooMany);
        }
        self.ues.entry(address).or_insert_with(Ue::unknown).flows = Some((id, flows));
        Ok(())
    }

    /// Takes a reading of a UE in. Answers why it was clipped, if it was. A UE that one source
    /// reported and now another does is a new one: nothing of the old link holds for the new.
    pub fn observe(
        &mut self,
        source: SourceId,
        address: IpAddr,
        reading: &Reading<B>,
        now: Time,
    ) -> Option<Clip> {
        if self.is_full_for(address) {
            self.counts.refused_ues += 1;
            return None;
        }
        self.counts.readings += 1;
        let ue = self.ues.entry(address).or_insert_with(Ue::unknown);
        if ue.known.as_ref().is_none_or(|(owner, _)| *owner != source) {
            ue.known = Some((source, UeEstimator::new(self.estimator)));
        }
        let (_, estimator) = ue.known.as_mut()?;
        let clip = estimator.observe(reading, now);
        match clip {
            Some(Clip::Ceiling) => self.counts.clipped_ceiling += 1,
            Some(Clip::Jump) => self.counts.clipped_jump += 1,
            None => {}
        }
        for key in &ue.watchers {
            let Some(registration) = self.registrations.get_mut(key) else { continue };
            let earliest =
                registration.last_sent.map(|last| last + shortest_gap(registration.period));
            let soonest = earliest.unwrap_or(now).max(now);
            if soonest < registration.due {
                registration.due = soonest;
                self.turns.push(registration.peer, soonest, *key);
            }
        }
        clip
    }

    /// Whether what `source` says is taken in and checked, but told to nobody.
    pub fn withhold(&mut self, source: SourceId, withhold: bool) {
        if withhold {
            self.withheld.insert(source);
        } else {
            self.withheld.remove(&source);
        }
    }

    /// What `source` said of any UE counts no longer.
    pub fn forget_source(&mut self, source: SourceId) {
        for ue in self.ues.values_mut() {
            ue.known.take_if(|(owner, _)| *owner == source);
        }
        self.ues.retain(|_, ue| ue.matters());
    }

    /// What `source` said of this UE counts no longer: its address now is somebody else's.
    pub fn forget_ue(&mut self, source: SourceId, address: IpAddr) {
        if let Some(ue) = self.ues.get_mut(&address) {
            ue.known.take_if(|(owner, _)| *owner == source);
        }
        self.forget_if_idle(address);
    }

    /// When [`Registry::poll`] has something next; None if nothing will be until something comes in.
    pub fn next_due(&mut self) -> Option<Time> {
        let registrations = &self.registrations;
        self.turns.next(|key, due| registrations.get(&key).is_some_and(|it| it.due == due))
    }

    /// The next datagram that is due at `now`; call until None. Peers take turns.
    pub fn poll(&mut self, now: Time) -> Option<Due> {
        loop {
            let registrations = &self.registrations;
            let holds = |key, due| registrations.get(&key).is_some_and(|it| it.due == due);
            let Turn { peer, key, since } = self.turns.take(now, holds)?;
            let (id, number) = key;
            let registration = self.registrations.get_mut(&key)?;
            let ue = self.ues.get(&registration.ue);
            let sent = ue.and_then(|ue| {
                let (source, estimator) = ue.known.as_ref()?;
                let estimate = estimator.estimate(self.network)?;
                let told = fresh(&estimate, &self.limits, now) && !self.withheld.contains(source);
                told.then_some((estimate, ue.flows))
            });
            let Some((estimate, flows)) = sent else {
                registration.due = Time::MAX;
                self.counts.stale += 1;
                continue;
            };
            let feedback = FeedbackDatagram {
                registration: number,
                sequence: registration.sequence,
                ue: registration.ue,
                bandwidth: estimate.bandwidth,
                min_rtt: estimate.min_rtt,
                fairness: flows.and_then(|(_, flows)| Coefficient::of_flows(flows.into())),
                age: now.since(estimate.at),
                basis: B::KIND,
                quality: estimate.quality,
            };
            registration.sequence += 1;
            registration.last_sent = Some(now);
            registration.due = now + longest_gap(registration.period);
            self.turns.push(peer, registration.due, key);
            self.turns.pay(peer, now);
            self.counts.sent += 1;
            return Some(Due { session: id, datagram: feedback.encode(), late: now.since(since) });
        }
    }

    /// What is known of every UE, by address.
    pub fn ues(&self, now: Time) -> impl Iterator<Item = UeView> {
        self.ues.iter().map(move |(address, ue)| {
            let estimate = ue.estimate(self.network);
            let estimate = estimate.filter(|estimate| fresh(estimate, &self.limits, now));
            UeView {
                ue: *address,
                bandwidth_bps: estimate.map(|estimate| estimate.bandwidth.as_bps()),
                min_rtt: estimate.map(|estimate| estimate.min_rtt),
                age: estimate.map(|estimate| now.since(estimate.at)),
                evidence: estimate.map(|estimate| estimate.evidence),
                backlog: ue
                    .known
                    .as_ref()
                    .and_then(|(_, estimator)| estimator.backlog())
                    .map(ByteSize::as_bytes),
                flows: ue.flows.map(|(_, flows)| flows),
                source: ue.known.as_ref().map(|(source, _)| source.0),
                sessions: ue.watchers.iter().map(|(session, _)| session.0).collect(),
            }
        })
    }

    /// How many registrations a session has.
    pub fn registrations_of(&self, id: SessionId) -> usize {
        self.sessions.get(&id).map_or(0, |session| session.numbers.len())
    }

    /// Forgets UEs that nobody asks about and of which nothing fresh is known. Call now and then.
    pub fn tidy(&mut self, now: Time) {
        for ue in self.ues.values_mut() {
            let stale = ue
                .estimate(self.network)
                .is_none_or(|estimate| !fresh(&estimate, &self.limits, now));
            if stale && ue.watchers.is_empty() {
                ue.known = None;
            }
        }
        self.ues.retain(|_, ue| ue.matters());
    }

    fn numbers_of(&self, id: SessionId) -> impl Iterator<Item = u32> {
        self.registrations.range((id, 0)..=(id, u32::MAX)).map(|((_, number), _)| *number)
    }

    fn drop_registration(&mut self, key: (SessionId, u32)) {
        let Some(registration) = self.registrations.remove(&key) else { return };
        if let Some(session) = self.sessions.get_mut(&key.0) {
            session.numbers.remove(&registration.ue);
            session.next_sequence = session.next_sequence.max(registration.sequence);
        }
        if let Some(peer) = self.turns.peer(registration.peer) {
            peer.registrations -= 1;
        }
        if let Some(ue) = self.ues.get_mut(&registration.ue) {
            ue.watchers.retain(|watcher| *watcher != key);
        }
        self.forget_if_idle(registration.ue);
    }

    fn is_full_for(&self, address: IpAddr) -> bool {
        self.ues.len() >= self.limits.ues && !self.ues.contains_key(&address)
    }

    fn forget_if_idle(&mut self, address: IpAddr) {
        if self.ues.get(&address).is_some_and(|ue| !ue.matters()) {
            self.ues.remove(&address);
        }
    }
}

impl<B: Basis> Ue<B> {
    fn unknown() -> Self {
        Ue { known: None, flows: None, watchers: Vec::new() }
    }

    fn estimate(&self, network: Option<Span>) -> Option<Estimate<B>> {
        self.known.as_ref()?.1.estimate(network)
    }

    fn matters(&self) -> bool {
        self.known.is_some() || self.flows.is_some() || !self.watchers.is_empty()
    }
}

/// How soon a datagram may follow the one before.
fn shortest_gap(period: Span) -> Span {
    period * 3 / 4
}

/// How long a datagram with nothing new waits for a measurement: a quarter of the period longer than
/// one of the same period takes, or else the repeat would race it, and what lost would be late.
fn longest_gap(period: Span) -> Span {
    period * 5 / 4
}

fn fresh<B: Basis>(estimate: &Estimate<B>, limits: &Limits, now: Time) -> bool {
    now.since(estimate.at) <= limits.stale.max(estimate.window * 3)
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
