//! What the relay's threads may do once it is set up.

use midspan_config::{Config, InterceptionKind};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};

/// The capabilities that are kept; docs/reference/relay.md says what each is for. Each thread gives up the
/// others for itself: those of a process belong to its threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privileges {
    /// Whatever there is: the process is not the relay's own.
    All,
    /// Those of these that there are.
    Only(CapabilitySet),
}

impl Privileges {
    /// What a relay with this configuration needs while it runs.
    pub fn needed(config: &Config) -> Privileges {
        // Buffers beyond net.core.rmem_max and congestion controls that are not for everybody take it
        // too, so that explicit mode keeps it where it is given.
        let mut needed = CapabilitySet::NET_ADMIN;
        if config.interception != InterceptionKind::None && !config.clients.is_empty() {
            needed |= CapabilitySet::NET_BIND_SERVICE;
            if config.interception != InterceptionKind::Nftables {
                needed |= CapabilitySet::BPF;
            }
        }
        Privileges::Only(needed)
    }

    /// Has the calling thread, and those that it starts, give up the rest for good.
    pub fn lower(self) {
        let Privileges::Only(needed) = self else { return };
        let lower = || {
            let kept = capabilities(None)?.permitted & needed;
            let none = CapabilitySet::empty();
            set_capabilities(
                None,
                CapabilitySets { effective: kept, permitted: kept, inheritable: none },
            )?;
            set_no_new_privs(true)
        };
        if let Err(error) = lower() {
            tracing::warn!(%error, "privileges that are not needed any more could not be given up");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_depends_on_what_is_done() {
        let needed = |text: &str| Privileges::needed(&text.parse().unwrap());
        let always = CapabilitySet::NET_ADMIN;
        let all = always | CapabilitySet::NET_BIND_SERVICE | CapabilitySet::BPF;
        assert_eq!(needed("clients = [\"10.0.0.0/8\"]"), Privileges::Only(all));
        let forward = "[[forward]]\nlisten = \"0.0.0.0:80\"\nto = \"a:1\"";
        assert_eq!(needed(forward), Privileges::Only(always));
    }
}
