//! Steering by BPF: the program's policy, its place at every interface, and the workers' places in
//! it.

use std::os::fd::BorrowedFd;

use midspan_steer::{
    AccountsSource, HeldSource, LISTENERS_PER_SLOT, Options, Rules, Slot, Steering, Tally,
};
use midspan_sys::netlink::{Interface, Netlink};

use super::beside::Beside;
use super::local_delivery::{LocalDelivery, Loopback};
use super::{InterceptionError, proof};
use crate::config::Config;

/// BPF steering. Dropping this ends it; packets of flows still open then go astray, so they must have
/// ended.
#[derive(Debug)]
pub(crate) struct Steered {
    steering: Steering,
    interfaces: Vec<String>,
    /// Where held SYNs come back.
    injector: Option<u32>,
    /// This host's rules are asked before a connection is split.
    consults: bool,
    // Both go after the steering: without it nothing is marked, and they are idle.
    delivery: Option<LocalDelivery>,
    beside: Option<Beside>,
    loopback: Option<Loopback>,
}

impl Steered {
    /// Loads the program for so many workers. Nothing is steered yet.
    pub(crate) fn load(config: &Config, workers: usize) -> Result<Steered, midspan_steer::Error> {
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
            injector: None,
            consults: false,
            delivery: None,
            beside: None,
            loopback: None,
        })
    }

    /// A worker's place, with its listeners for IPv4 and IPv6.
    pub(crate) fn slot(
        &self,
        worker: usize,
        listeners: [Option<BorrowedFd<'_>>; LISTENERS_PER_SLOT as usize],
    ) -> Result<Slot, InterceptionError> {
        Ok(self.steering.slot(worker, listeners)?)
    }

    /// Looks at this host's rules.
    pub(crate) fn look_at_rules(&mut self, config: &Config) -> Result<(), InterceptionError> {
        let beside = Beside::look(config);
        self.go_by(beside.rules())?;
        self.beside = Some(beside);
        self.set_loopback(self.has_rules())
    }

    fn go_by(&mut self, rules: Rules) -> Result<(), InterceptionError> {
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
    pub(crate) fn consults(&self) -> bool {
        self.consults
    }

    /// Has held SYNs come back by this interface.
    pub(crate) fn set_injector(&mut self, interface: u32) -> Result<(), InterceptionError> {
        self.steering.set_injector(interface)?;
        self.injector = Some(interface);
        Ok(())
    }

    /// What tells of SYNs that are held.
    pub(crate) fn held(&self) -> Result<HeldSource, InterceptionError> {
        Ok(self.steering.held()?)
    }

    /// Begins to steer, in the calling thread's network namespace, once it is proven that what is
    /// steered arrives. The workers must be running.
    pub(crate) fn begin(&mut self, config: &Config) -> Result<(), InterceptionError> {
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
        Ok(self.steering.take_over(&config.steering_policy())?)
    }

    /// Proves that what is steered arrives, and steers nothing else.
    pub(crate) fn prove(&mut self, config: &Config) -> Result<(), InterceptionError> {
        self.deliver(config)?;
        if !self.has_rules() {
            return proof::prove(&mut self.steering, config);
        }
        let by_loopback = proof::prove(&mut self.steering, config);
        // What rules have against that they may not have against other links.
        by_loopback.or_else(|error| {
            tracing::info!("by the loopback link: {error}");
            self.set_loopback(false)?;
            proof::prove(&mut self.steering, config)
        })
    }

    /// Whether this host has rules of others'.
    fn has_rules(&self) -> bool {
        self.beside.as_ref().is_some_and(Beside::has_rules)
    }

    fn set_loopback(&mut self, by_loopback: bool) -> Result<(), InterceptionError> {
        self.loopback = by_loopback.then(Loopback::prepare);
        Ok(self.steering.set_loopback(by_loopback)?)
    }

    /// Changes what is split, for new connections.
    pub(crate) fn set_policy(&mut self, config: &Config) -> Result<(), midspan_steer::Error> {
        self.steering.set_policy(&config.steering_policy())
    }

    fn deliver(&mut self, config: &Config) -> Result<(), InterceptionError> {
        self.delivery = Some(LocalDelivery::install(&config.clients, config.mark)?);
        Ok(())
    }

    /// Becomes readable when other rules of this host change.
    pub(crate) fn rules_changed(&self) -> Option<BorrowedFd<'_>> {
        self.beside.as_ref()?.changed()
    }

    /// Goes by the rules that there are now.
    pub(crate) fn follow_rules(&mut self) -> Result<(), InterceptionError> {
        let Some(beside) = &mut self.beside else { return Ok(()) };
        let had_rules = beside.has_rules();
        if beside.follow() {
            let rules = beside.rules();
            self.go_by(rules)?;
        }
        self.go_by_loopback(had_rules)
    }

    /// Takes in interfaces that have come, and forgets those that have gone.
    pub(crate) fn follow_interfaces(&mut self) -> Result<(), InterceptionError> {
        let here = interfaces()?;
        self.attach(&here)
    }

    /// Whether it goes on with what another relay of this namespace has left, or still uses.
    pub(crate) fn is_adopted(&self) -> bool {
        self.steering.is_adopted()
    }

    /// Leaves everything to another relay, which has this mark.
    pub(crate) fn leave(mut self, mark: u32) {
        self.steering.leave();
        if let Some(loopback) = self.loopback.take() {
            loopback.leave();
        }
        if let Some(delivery) = self.delivery.take() {
            delivery.leave(mark);
        }
    }

    /// What tells of ended connections.
    pub(crate) fn accounts(&self) -> Result<AccountsSource, InterceptionError> {
        Ok(self.steering.accounts()?)
    }

    pub(crate) fn tally(&self) -> Result<Tally, InterceptionError> {
        Ok(self.steering.tally()?)
    }

    fn attach(&mut self, here: &[Interface]) -> Result<(), InterceptionError> {
        let mut steered = Vec::new();
        for interface in here {
            let wanted = match self.interfaces.is_empty() {
                true => !interface.is_loopback,
                false => self.interfaces.contains(&interface.name),
            };
            if wanted || self.injector == Some(interface.index) {
                self.steering.attach(interface.index, &interface.name, true)?;
                steered.push(interface.index);
            }
        }
        self.steering.retain(&steered);
        self.attach_exits(here)
    }

    /// Sees what leaves by these interfaces, while this host's rules are asked.
    fn attach_exits(&mut self, here: &[Interface]) -> Result<(), InterceptionError> {
        let mut exits = Vec::new();
        for interface in here {
            if self.consults && !interface.is_loopback && self.injector != Some(interface.index) {
                self.steering.attach_exit(interface.index, &interface.name)?;
                exits.push(interface.index);
            }
        }
        self.steering.retain_exits(&exits);
        Ok(())
    }
}

fn interfaces() -> Result<Vec<Interface>, InterceptionError> {
    Netlink::open().and_then(|mut netlink| netlink.interfaces()).map_err(InterceptionError::Routing)
}
