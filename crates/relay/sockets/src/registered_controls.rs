//! Midspan's own congestion controls that the legs have: the relay registers them.

use midspan_ccload::{Algorithm, Controls, Error, Kernel, Options, PREFIX, RegisteredControl};
use midspan_config::Config;

use crate::options::has;

/// What the client's leg has where the configuration names nothing, and the kernel takes it. A relay that takes no
/// connections but those made to itself may stand anywhere, and leaves the choice to the kernel.
use midspan_split::defaults::CLIENT_LEG_CONTROL as FOR_CLIENTS;

/// Congestion controls that are registered for as long as this lives.
#[derive(Debug)]
pub struct RegisteredControls {
    _held: Vec<RegisteredControl>,
    for_clients: Option<&'static str>,
}

impl RegisteredControls {
    /// Registers those that the legs name. One that cannot be had is as if it was not tried: whether the
    /// leg's sockets can have it is found out by asking for it. Nor are those tried that take
    /// feedback where there is no map that it could come by: none is pinned, and an agent cannot find
    /// the one that they would have (before Linux 6.4).
    pub fn register(config: &Config) -> RegisteredControls {
        let controls = Controls::default();
        let found = Kernel::running().is_ok_and(|kernel| kernel.links);
        let fed = found || controls.feedback().exists();
        let ours = |name: &str| Algorithm::named(name.strip_prefix(PREFIX)?).ok();
        let mut held: Vec<RegisteredControl> = [&config.client_leg, &config.server_leg]
            .into_iter()
            .filter_map(|leg| leg.congestion_control.as_deref().and_then(ours))
            .filter(|control| fed || !control.takes_feedback())
            .filter_map(|control| {
                let held = controls.hold(control, &Options::default());
                held.inspect_err(|error| tracing::warn!(%error, "congestion control")).ok()
            })
            .collect();
        let is_open = config.client_leg.congestion_control.is_none() && !config.clients.is_empty();
        let for_clients = ours(FOR_CLIENTS)
            .filter(|_| is_open)
            .and_then(|control| register_for_clients(&controls, control, &mut held));
        RegisteredControls { _held: held, for_clients }
    }

    /// What the client's leg has where the configuration names nothing; none if that is the kernel's choice.
    pub fn for_clients(&self) -> Option<&'static str> {
        self.for_clients
    }
}

/// The client's leg does without where this fails, so nothing of it is an error.
fn register_for_clients(
    controls: &Controls,
    control: Algorithm,
    held: &mut Vec<RegisteredControl>,
) -> Option<&'static str> {
    // One that cannot be held with others is used as long as they hold it, and by our listeners then.
    let shares = Kernel::running().is_ok_and(|kernel| kernel.links);
    if shares || !has(FOR_CLIENTS) {
        match controls.hold(control, &Options::default()) {
            Ok(one) => held.push(one),
            Err(Error::NameTaken { .. }) => {}
            Err(error) => {
                tracing::info!(%error, "the client's leg has the kernel's congestion control");
                return None;
            }
        }
    }
    has(FOR_CLIENTS).then_some(FOR_CLIENTS)
}
