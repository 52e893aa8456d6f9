//! Midspan's own congestion controls that the configuration names: the relay brings them with it.

use midspan_ccload::{Algorithm, Controls, Held, Options, PREFIX};

use crate::config::Config;

/// Has those that the legs name registered for as long as the answer lives. One that cannot be is as if it
/// was not tried: whether the leg's sockets can have it is found out by asking for it. Nor are those
/// tried that take feedback where there is no map that it could come by.
pub(crate) fn hold(config: &Config) -> Vec<Held> {
    let controls = Controls::default();
    let ours = |name: &str| Algorithm::named(name.strip_prefix(PREFIX)?).ok();
    [&config.client_leg, &config.server_leg]
        .into_iter()
        .filter_map(|leg| leg.congestion_control.as_deref().and_then(ours))
        .filter(|control| !control.takes_feedback() || controls.feedback().exists())
        .filter_map(|control| {
            let held = controls.hold(control, &Options::default());
            held.inspect_err(|error| tracing::warn!(%error, "congestion control")).ok()
        })
        .collect()
}
