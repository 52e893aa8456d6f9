//! A configuration that takes effect while the relay runs: for new connections, and all of it or
//! nothing.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use midspan_config::{Config, Handshake};
use midspan_forward as forward;
use midspan_sockets as sockets;
use midspan_telemetry::Reload;

use crate::command::{Command, Commands, Reply};
use crate::hook::Hook;
use crate::settings::{Settings, WatchedSettings};

type Load = dyn Fn() -> Result<Config, String> + Send + Sync;

/// Reads the configuration again, and keeps how that went.
#[derive(Debug)]
pub(crate) struct Reloader {
    pub(crate) load: Hook<Load>,
    /// The congestion control of the client's leg where the configuration names none; none if that is the
    /// kernel's choice.
    for_clients: Option<&'static str>,
    /// The handshake where the configuration names none.
    handshake: Handshake,
    last: Mutex<Option<Reload>>,
}

impl Reloader {
    /// One that completes what it reads by these choices.
    pub(crate) fn new(for_clients: Option<&'static str>, handshake: Handshake) -> Reloader {
        Reloader { load: Hook::default(), for_clients, handshake, last: Mutex::default() }
    }

    /// How the configuration was read again last, if it was.
    pub(crate) fn last(&self) -> Option<Reload> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps how the configuration was read again just now.
    pub(crate) fn record(&self, succeeded: bool) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.and_then(|last| last.success);
        *last = Some(Reload { succeeded, success: succeeded.then(SystemTime::now).or(before) });
    }

    fn read(&self) -> Result<Config, String> {
        let load = self.load.get().ok_or("there is no configuration to read again")?;
        let mut config = load()?;
        config.complete(self.for_clients);
        config.settle_handshake(self.handshake);
        Ok(config)
    }
}

/// Reads the configuration and asks for names in a thread of its own, as that may take long, and has the
/// supervisor apply what came of it.
pub(crate) fn begin(
    reloader: &Arc<Reloader>,
    settings: &WatchedSettings,
    commands: &Arc<Commands>,
    reply: Option<Reply>,
) {
    let (reloader, old, commands) = (reloader.clone(), settings.get(), commands.clone());
    let thread = std::thread::Builder::new().name("relay-reload".into()).spawn(move || {
        let prepared = prepare(&reloader, &old.config);
        commands.give(Command::Apply(prepared, reply));
    });
    if let Err(error) = thread {
        tracing::error!(%error, "the configuration could not be read again");
    }
}

fn prepare(reloader: &Reloader, old: &Config) -> Result<Box<Settings>, String> {
    let config = reloader.read()?;
    config.check().map_err(|error| error.to_string())?;
    for (leg, settings, old, mptcp) in [
        ("client_leg", &config.client_leg, &old.client_leg, config.mptcp),
        ("server_leg", &config.server_leg, &old.server_leg, false),
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
