//! Steering by BPF: the program's policy, its place at every interface, and the workers' places in
//! it.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use midspan_config::Config;
use midspan_steer::{
    AccountsSource, Chances, HeldSource, LISTENERS_PER_SLOT, OpenFlows, Options, Rules, Steering,
    Tally, WorkerSlot,
};
use midspan_sys::netlink::{Interface, Netlink};
use midspan_threads::Privileges;

use crate::beside::Beside;
use crate::error::InterceptionError;
use crate::interface_changes::InterfaceChanges;
use crate::local_delivery::{LocalDelivery, Loopback};
use crate::policy::steering_policy;
use crate::proof::{self, Probes, Proof};
use crate::reinjector::Reinjector;

/// How long what is steered may take to be seen to arrive while the relay runs, and how long it waits to look again if it does
/// not: at first, and at most.
const PATIENCE: Duration = Duration::from_secs(2);
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// BPF steering. Dropping this ends it; packets of flows still open then go astray, so they must have
/// ended.
#[derive(Debug)]
pub struct Steered {
    steering: Steering,
    interfaces: Vec<String>,
    /// Where held SYNs come back.
    reinjector: Option<u32>,
    /// This host's rules are asked before a connection is split.
    consults: bool,
    changes: InterfaceChanges,
    // Both go after the steering: without it nothing is marked, and they are idle.
    delivery: Option<LocalDelivery>,
    beside: Option<Beside>,
    loopback: Option<Loopback>,
    /// What is delivered comes in by the loopback link; ICMP errors of this host's own do in any case.
    by_loopback: bool,
    proof: Option<Proof>,
    /// Where the proof's connections come from.
    probes: Arc<Probes>,
    /// When to prove again what was found not to arrive, and how long after that.
    doubt: Option<(Instant, Duration)>,
    /// When it was last tried while the relay runs, and whether rules have changed since.
    proven: Option<Instant>,
    changed: bool,
}

impl Steered {
    /// Loads the program for so many workers. Nothing is steered yet.
    ///
    /// # Errors
    /// When the program cannot be loaded here.
    pub fn load(config: &Config, workers: usize) -> Result<Steered, midspan_steer::Error> {
        let options = Options { workers, mark: config.mark, pin: config.pin };
        let steering = Steering::load(options).or_else(|error| match error {
            midspan_steer::Error::Pin { .. } => {
                tracing::info!("{error}: this relay cannot be replaced while it runs");
                Steering::load(Options { pin: false, ..options })
            }
            error => Err(error),
        })?;
        Ok(Steered {
            steering,
            interfaces: config.interfaces.clone(),
            reinjector: None,
            consults: false,
            changes: InterfaceChanges::watch(),
            delivery: None,
            beside: None,
            loopback: None,
            by_loopback: false,
            proof: None,
            probes: Arc::default(),
            doubt: None,
            proven: None,
            changed: false,
        })
    }

    /// A worker's place, with its listeners for IPv4 and IPv6.
    ///
    /// # Errors
    /// When the program's maps do not take it.
    pub fn slot(
        &self,
        worker: usize,
        listeners: [Option<BorrowedFd<'_>>; LISTENERS_PER_SLOT as usize],
    ) -> Result<WorkerSlot, InterceptionError> {
        Ok(self.steering.slot(worker, listeners)?)
    }

    /// Has a proof's connections come from there.
    pub fn set_probes(&mut self, probes: Arc<Probes>) {
        self.probes = probes;
    }

    /// Looks at this host's rules.
    ///
    /// # Errors
    /// When what comes out of interfaces cannot be looked at, or the program does not take it.
    pub fn look_at_rules(&mut self, config: &Config) -> Result<(), InterceptionError> {
        let beside = Beside::look(config);
        self.go_by(beside.rules())?;
        self.beside = Some(beside);
        self.loopback = Some(Loopback::prepare());
        self.set_loopback(self.has_rules())
    }

    fn go_by(&mut self, rules: Rules) -> Result<(), InterceptionError> {
        // What comes out of interfaces is looked at while rules are asked.
        if self.consults != rules.forward {
            self.changes.expect();
        }
        self.consults = rules.forward;
        // What comes out must be seen before the first SYN is shown to the rules.
        if self.consults {
            self.attach_exits(&interfaces()?)?;
        }
        Ok(self.steering.set_rules(rules)?)
    }

    /// Has what is delivered come in by the loopback link if there are rules now, and were not before.
    fn go_by_loopback(&mut self, had_rules: bool) -> Result<(), InterceptionError> {
        match self.has_rules() {
            has if has == had_rules => Ok(()),
            has => self.set_loopback(has),
        }
    }

    /// Whether this host's rules are asked before a connection is split, for which SYNs are held.
    pub fn consults(&self) -> bool {
        self.consults
    }

    /// Has held SYNs come back by its link.
    ///
    /// # Errors
    /// When the program's maps do not take it.
    pub fn set_reinjector(&mut self, reinjector: &Reinjector) -> Result<(), InterceptionError> {
        self.steering.set_reinjector(reinjector.interface)?;
        self.reinjector = Some(reinjector.interface);
        Ok(())
    }

    /// What tells of SYNs that are held.
    ///
    /// # Errors
    /// When the program's maps cannot be had.
    pub fn held(&self) -> Result<HeldSource, InterceptionError> {
        Ok(self.steering.held()?)
    }

    /// Begins to steer, in the calling thread's network namespace, once it is proven that what is
    /// steered arrives. The workers must be running.
    ///
    /// # Errors
    /// When it is not proven, an interface is missing, or the program cannot be attached.
    pub fn begin(&mut self, config: &Config) -> Result<(), InterceptionError> {
        if config.prove {
            self.prove(config)?;
        } else {
            self.deliver(config)?;
        }
        let here = interfaces()?;
        let is_here = |name: &&String| here.iter().any(|interface| interface.name == **name);
        if let Some(missing) = self.interfaces.iter().find(|name| !is_here(name)) {
            return Err(InterceptionError::NoInterface(missing.clone()));
        }
        self.attach(&here)?;
        Ok(self.steering.take_over(&steering_policy(config))?)
    }

    /// Proves that what is steered arrives, and steers nothing else.
    ///
    /// # Errors
    /// What is in the way.
    pub fn prove(&mut self, config: &Config) -> Result<(), InterceptionError> {
        self.deliver(config)?;
        self.proof = Some(Proof::prepare(self.probes.clone())?);
        self.try_to_prove(config, proof::PATIENCE)
    }

    /// Has what proves leave itself these privileges.
    ///
    /// # Errors
    /// When one of its threads has ended.
    pub fn lower(&self, privileges: Privileges) -> Result<(), InterceptionError> {
        self.proof.as_ref().map_or(Ok(()), |proof| proof.lower(privileges))
    }

    fn try_to_prove(
        &mut self,
        config: &Config,
        patience: Duration,
    ) -> Result<(), InterceptionError> {
        let Some(proof) = self.proof.take() else { return Ok(()) };
        let (first, has_rules) = (self.by_loopback, self.has_rules());
        let mut prove = |by_loopback| {
            self.set_loopback(by_loopback)?;
            proof.run(&mut self.steering, config, patience)
        };
        let (way, proven) = match has_rules {
            true => choose_way(first, prove),
            false => (first, prove(first)),
        };
        self.proof = Some(proof);
        self.set_loopback(way)?;
        proven
    }

    /// Proves that what is steered still arrives, now that rules of this host have changed, or if it was found not to and
    /// it is time to look again. As long as it does not new connections pass.
    ///
    /// # Errors
    /// When it could not be tried.
    pub fn prove_again(&mut self, config: &Config, changed: bool) -> Result<(), InterceptionError> {
        let [first, most] = WAITS;
        let now = Instant::now();
        self.changed |= changed;
        // Others may change rules because of the proof's own links.
        let due = match self.changed {
            true => self.proven.is_none_or(|at| now >= at + first),
            false => self.doubt.is_some_and(|(due, _)| now >= due),
        };
        if !due {
            return Ok(());
        }
        let changed = std::mem::take(&mut self.changed);
        let proven = self.try_to_prove(config, PATIENCE);
        let now = Instant::now();
        self.proven = Some(now);
        let before = self.doubt.take();
        if let Err(InterceptionError::Unproven(why)) = &proven {
            if before.is_none() {
                tracing::error!("new connections pass, as rules of this host have changed: {why}");
            }
            let again = before.filter(|_| !changed).map_or(first, |(_, wait)| most.min(2 * wait));
            self.doubt = Some((now + again, again));
            return Ok(self.steering.suspend(true)?);
        }
        if before.is_some() {
            self.steering.suspend(false)?;
            tracing::info!("what is steered arrives again: connections are split");
        }
        proven
    }

    /// Whether this host has rules of others'.
    fn has_rules(&self) -> bool {
        self.beside.as_ref().is_some_and(Beside::has_rules)
    }

    fn set_loopback(&mut self, by_loopback: bool) -> Result<(), InterceptionError> {
        self.by_loopback = by_loopback;
        Ok(self.steering.set_loopback(by_loopback)?)
    }

    /// Changes what is split, for new connections.
    ///
    /// # Errors
    /// When the program's maps do not take all of it: what they took stays.
    pub fn set_policy(&mut self, config: &Config) -> Result<(), midspan_steer::Error> {
        self.steering.set_policy(&steering_policy(config))
    }

    fn deliver(&mut self, config: &Config) -> Result<(), InterceptionError> {
        self.delivery = Some(LocalDelivery::install(&config.clients, config.mark)?);
        Ok(())
    }

    /// Becomes readable when other rules of this host change.
    pub fn rules_changed(&self) -> Option<BorrowedFd<'_>> {
        self.beside.as_ref()?.changed()
    }

    /// Goes by the rules that there are now; whether they are others.
    ///
    /// # Errors
    /// When what comes out of interfaces cannot be looked at, or the program does not take it.
    pub fn follow_rules(&mut self) -> Result<bool, InterceptionError> {
        let Some(beside) = &mut self.beside else { return Ok(false) };
        let had_rules = beside.has_rules();
        let changed = beside.follow();
        if changed {
            let rules = beside.rules();
            self.go_by(rules)?;
        }
        self.go_by_loopback(had_rules)?;
        Ok(changed)
    }

    /// Becomes readable when interfaces change.
    pub fn interfaces_changed(&self) -> Option<BorrowedFd<'_>> {
        self.changes.fd()
    }

    /// Takes in interfaces that have come, and forgets those that have gone; or says, once, that it cannot.
    pub fn follow_interfaces(&mut self) {
        if self.changes.take() {
            let followed = interfaces().and_then(|here| self.attach(&here));
            self.changes.followed(followed);
        }
    }

    /// Whether it goes on with what another relay of this namespace has left, or still uses.
    pub fn is_adopted(&self) -> bool {
        self.steering.is_adopted()
    }

    /// Leaves everything to another relay, which has this mark.
    pub fn leave(mut self, mark: u32) {
        self.steering.leave();
        if let Some(loopback) = self.loopback.take() {
            loopback.leave();
        }
        if let Some(delivery) = self.delivery.take() {
            delivery.leave(mark);
        }
    }

    /// What shows open connections.
    ///
    /// # Errors
    /// When the program's maps cannot be had.
    pub fn open_flows(&self) -> Result<OpenFlows, InterceptionError> {
        Ok(self.steering.open_flows()?)
    }

    /// What says how often to split, by place.
    ///
    /// # Errors
    /// When the program's maps cannot be had.
    pub fn chances(&self) -> Result<Chances, InterceptionError> {
        Ok(self.steering.chances()?)
    }

    /// What tells of ended connections.
    ///
    /// # Errors
    /// When the program's maps cannot be had.
    pub fn accounts(&self) -> Result<AccountsSource, InterceptionError> {
        Ok(self.steering.accounts()?)
    }

    /// What counts verdicts.
    ///
    /// # Errors
    /// When the program's maps cannot be had.
    pub fn tally(&self) -> Result<Tally, InterceptionError> {
        Ok(self.steering.tally()?)
    }

    fn attach(&mut self, here: &[Interface]) -> Result<(), InterceptionError> {
        let mut steered = Vec::new();
        for interface in here {
            let wanted = match self.interfaces.is_empty() {
                true => !interface.is_loopback,
                false => self.interfaces.contains(&interface.name),
            };
            // The reinjector's link goes with this process, and what is pinned there would be left.
            let is_injector = self.reinjector == Some(interface.index);
            if wanted || is_injector {
                let attached = self.steering.attach(interface.index, &interface.name, !is_injector);
                if is_there_still(attached, interface.index)? {
                    steered.push(interface.index);
                }
            }
        }
        self.steering.retain(&steered);
        self.attach_exits(here)
    }

    /// Sees what leaves by these interfaces: errors about the relay's own segments, and what this host's rules let through
    /// while they are asked.
    fn attach_exits(&mut self, here: &[Interface]) -> Result<(), InterceptionError> {
        let mut exits = Vec::new();
        for interface in here {
            if !interface.is_loopback && self.reinjector != Some(interface.index) {
                let attached = self.steering.attach_exit(interface.index, &interface.name);
                if is_there_still(attached, interface.index)? {
                    exits.push(interface.index);
                }
            }
        }
        self.steering.retain_exits(&exits);
        Ok(())
    }
}

/// A relay that has not come to replace another one leaves that what both use.
impl Drop for Steered {
    fn drop(&mut self) {
        if let (Some(mark), Some(delivery)) = (self.steering.others_mark(), self.delivery.take()) {
            delivery.leave(mark);
        }
    }
}

/// Whether an interface was attached to; not if it has gone since it was listed, as a relay's reinjector does with it.
fn is_there_still(
    attached: Result<(), midspan_steer::Error>,
    index: u32,
) -> Result<bool, InterceptionError> {
    match attached {
        Err(error) if interfaces()?.iter().any(|interface| interface.index == index) => {
            Err(error.into())
        }
        attached => Ok(attached.is_ok()),
    }
}

fn interfaces() -> Result<Vec<Interface>, InterceptionError> {
    Netlink::open().and_then(|mut netlink| netlink.interfaces()).map_err(InterceptionError::Routing)
}

/// The way for what is delivered to come in, and what `prove` makes of it: `first`, unless rules have something against it and
/// nothing against the other. A proof sees rules for all links alone. So where both may be proven it is `first`, for
/// which a busy machine may have been too late just once.
fn choose_way(
    first: bool,
    mut prove: impl FnMut(bool) -> Result<(), InterceptionError>,
) -> (bool, Result<(), InterceptionError>) {
    let why = match prove(first) {
        Err(InterceptionError::Unproven(why)) => why,
        proven => return (first, proven),
    };
    tracing::info!(by_loopback = first, "{why}");
    if let Err(error) = prove(!first) {
        return (first, Err(error));
    }
    match prove(first) {
        Err(InterceptionError::Unproven(_)) => (!first, Ok(())),
        proven => (first, proven),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is chosen if proofs end so, in order; and how many there were.
    fn chosen(ends: &[bool]) -> (bool, bool, usize) {
        let mut tried = Vec::new();
        let (way, proven) = choose_way(true, |by_loopback| {
            tried.push(by_loopback);
            match ends[tried.len() - 1] {
                true => Ok(()),
                false => Err(InterceptionError::Unproven("late".into())),
            }
        });
        assert_eq!(tried, [true, false, true][..tried.len()]);
        (way, proven.is_ok(), tried.len())
    }

    #[test]
    fn the_first_way_is_taken_if_it_can_be() {
        assert_eq!(chosen(&[true]), (true, true, 1));
    }

    #[test]
    fn the_other_way_is_taken_if_rules_have_something_against_the_first() {
        assert_eq!(chosen(&[false, true, false]), (false, true, 3));
    }

    /// Rules for other links than the proof's may have something against the other way.
    #[test]
    fn who_was_late_once_does_not_lose_the_first_way() {
        assert_eq!(chosen(&[false, true, true]), (true, true, 3));
    }

    #[test]
    fn what_arrives_by_neither_way_is_not_proven() {
        assert_eq!(chosen(&[false, false]), (true, false, 2));
    }
}
