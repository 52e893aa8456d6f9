//! The relay beside others' rules: firewall and NAT of this host.

use std::os::fd::BorrowedFd;

use midspan_sys::ruleset::{self, Chain, Changes};

use super::nftables::Legs;
use crate::config::Marks;

/// Keeps the two legs of split connections apart for connection tracking as long as this host has rules that might go
/// by it. Where there are none this costs nothing.
#[derive(Debug)]
pub(super) struct Beside {
    marks: Marks,
    changes: Option<Changes>,
    legs: Option<Legs>,
    /// It cannot be done, and was said.
    failed: bool,
    /// Some of the rules may change packets' addresses.
    translates: bool,
    /// Some of the rules decide what is forwarded.
    forwards: bool,
}

impl Beside {
    /// Looks at the rules of the calling thread's network namespace.
    pub(super) fn look(marks: Marks) -> Beside {
        let changes = Changes::watch()
            .inspect_err(|error| tracing::debug!(%error, "changes of rules are not seen at once"))
            .ok();
        let mut beside = Beside {
            marks,
            changes,
            legs: None,
            failed: false,
            translates: false,
            forwards: false,
        };
        beside.consider();
        beside
    }

    /// Becomes readable when rules change.
    pub(super) fn changed(&self) -> Option<BorrowedFd<'_>> {
        self.changes.as_ref().map(Changes::fd)
    }

    /// Goes by the rules that there are now.
    pub(super) fn follow(&mut self) {
        if let Some(changes) = &mut self.changes {
            changes.take();
        }
        self.consider();
    }

    /// Whether some of the rules may change packets' addresses (NAT).
    pub(super) fn translates(&self) -> bool {
        self.translates
    }

    fn consider(&mut self) {
        let chains = others_chains();
        self.translates = chains.iter().any(|chain| chain.translates);
        let forwards = chains.iter().find(|chain| chain.forwards);
        if let Some(chain) = forwards
            && !self.forwards
        {
            tracing::warn!(
                "table `{}` has rules for what this host forwards, which split connections do not meet: name what \
                 clients must not reach in `policy.pass_servers` or `policy.pass_ports`",
                chain.table
            );
        }
        self.forwards = forwards.is_some();
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
