//! A configuration that takes effect while the relay runs: for new connections, and all of it or
//! nothing.

use std::sync::Arc;

use midspan_sockets as sockets;

use crate::command::{Command, Reply};
use crate::forward;
use crate::settings::Settings;
use crate::shared::Shared;

/// Reads the configuration and asks for names in a thread of its own, as that may take long, and has the
/// supervisor apply what came of it.
pub(crate) fn begin(shared: &Arc<Shared>, reply: Option<Reply>) {
    let own = shared.clone();
    let thread = std::thread::Builder::new().name("relay-reload".into()).spawn(move || {
        let prepared = prepare(&own);
        own.commands.give(Command::Apply(prepared, reply));
    });
    if let Err(error) = thread {
        tracing::error!(%error, "the configuration could not be read again");
    }
}

fn prepare(shared: &Shared) -> Result<Box<Settings>, String> {
    let config = shared.load_config()?;
    config.check().map_err(|error| error.to_string())?;
    let old = shared.settings();
    for (leg, settings, old, mptcp) in [
        ("client_leg", &config.client_leg, &old.config.client_leg, config.mptcp),
        ("server_leg", &config.server_leg, &old.config.server_leg, false),
    ] {
        // What is in force the listeners have, also where the kernel gives it to no other any more: before Linux 6.4
        // a congestion control is gone with the relay that brought it, if another has taken over since.
        if settings != old {
            sockets::probe(settings, mptcp).map_err(|error| format!("{leg}: {error}"))?;
        }
    }
    let forwards = forward::resolve(&config).map_err(|error| error.to_string())?;
    Ok(Box::new(Settings { config, forwards }))
}
