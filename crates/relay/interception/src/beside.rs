//! The relay beside others' rules: firewall and NAT of this host.

use std::os::fd::BorrowedFd;

use midspan_config::{Config, ForwardRules, Marks};
use midspan_steer::Rules;
use midspan_sys::changes::Changes;
use midspan_sys::ruleset::{self, Chain};

use crate::error::InterceptionError;
use crate::nftables::legs::Legs;

/// Keeps the two legs of split connections apart for connection tracking as long as this host has rules that might go
/// by it. Where there are none this costs nothing.
#[derive(Debug)]
pub(crate) struct Beside {
    marks: Marks,
    forward_rules: ForwardRules,
    changes: Option<Changes>,
    legs: Option<Legs>,
    /// It cannot be done, and was said.
    failed: bool,
    /// The first table that was warned of.
    ignored: Option<String>,
    rules: Rules,
    /// There are some.
    has_rules: bool,
}

impl Beside {
    /// Looks at the rules of the calling thread's network namespace.
    pub(crate) fn look(config: &Config) -> Beside {
        let changes = Changes::of_rules()
            .inspect_err(|error| tracing::debug!(%error, "changes of rules are not seen at once"))
            .ok();
        let mut beside = Beside {
            marks: Marks::of(config),
            forward_rules: config.forward_rules,
            changes,
            legs: None,
            failed: false,
            ignored: None,
            rules: Rules::default(),
            has_rules: false,
        };
        beside.consider();
        beside
    }

    /// Becomes readable when rules change.
    pub(crate) fn changed(&self) -> Option<BorrowedFd<'_>> {
        self.changes.as_ref().map(Changes::fd)
    }

    /// Goes by the rules that there are now; whether they are others.
    pub(crate) fn follow(&mut self) -> bool {
        let changed = self.changes.as_mut().is_some_and(Changes::take);
        let before = self.rules;
        self.consider();
        changed || self.rules != before
    }

    /// Whether there are rules, whatever they do.
    pub(crate) fn has_rules(&self) -> bool {
        self.has_rules
    }

    /// What the rules may do.
    pub(crate) fn rules(&self) -> Rules {
        self.rules
    }

    fn consider(&mut self) {
        let chains = others_chains();
        let decides = deciding(&chains);
        self.has_rules = !chains.is_empty();
        self.rules = Rules {
            translate: chains.iter().any(|chain| chain.translates),
            forward: decides.is_some() && self.forward_rules == ForwardRules::Follow,
        };
        let ignored = decides.filter(|_| !self.rules.forward).map(|chain| chain.table.clone());
        if let Some(table) = &ignored
            && self.ignored.is_none()
        {
            tracing::warn!(
                "table `{table}` has rules for what this host forwards, which split connections do not meet \
                 (`forward_rules`): name what clients must not reach in `policy.pass_servers` or `policy.pass_ports`"
            );
        }
        self.ignored = ignored;
        match (!chains.is_empty(), &self.legs) {
            (true, None) if !self.failed => match Legs::install(self.marks) {
                Ok(legs) => {
                    tracing::info!(
                        "this host has rules: connection tracking is told the legs apart"
                    );
                    self.legs = Some(legs);
                }
                Err(error) => {
                    self.failed = true;
                    tracing::error!(
                        "{error}: connection tracking takes both legs of a split connection for one, \
                         and NAT and `ct state` rules of this host will break connections"
                    );
                }
            },
            (false, Some(_)) => self.legs = None,
            (false, None) => self.failed = false,
            _ => {}
        }
    }
}

/// Refuses where this host has rules for what it forwards that nftables cannot ask, and they count.
pub(crate) fn forbid_forward_rules(config: &Config) -> Result<(), InterceptionError> {
    let chains = others_chains();
    match deciding(&chains) {
        Some(chain) if config.forward_rules == ForwardRules::Follow => {
            Err(InterceptionError::ForwardRules(chain.table.clone()))
        }
        _ => Ok(()),
    }
}

/// The first chain that may decide whether a connection is forwarded, or where to.
fn deciding(chains: &[Chain]) -> Option<&Chain> {
    chains.iter().find(|chain| chain.forwards || chain.redirects)
}

/// Chains of rules but those of relays.
fn others_chains() -> Vec<Chain> {
    let is_ours = |chain: &Chain| chain.table == "midspan" || chain.table.starts_with("midspan_");
    match ruleset::chains() {
        Ok(mut chains) => {
            chains.retain(|chain| !is_ours(chain));
            chains
        }
        Err(error) => {
            tracing::debug!(%error, "rules cannot be listed");
            Vec::new()
        }
    }
}
