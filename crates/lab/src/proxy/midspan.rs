//! Midspan's own relay, as its users start it: `midspan relay --config FILE`.

use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use midspan_relay::{Config, LegConfig, ReadAheadKind};
use midspan_scenario::{CellSpec, Host, Leg, ReadAhead};
use midspan_sys::netns::Netns;

use super::Proxy;
use crate::topology::client_prefixes;

pub(super) fn start(mec: &Netns, spec: &CellSpec, midspan: &Path) -> Result<Proxy> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("relay.toml");
    fs::write(&path, toml::to_string(&configuration(spec))?)
        .context("cannot write the relay's configuration")?;
    // It tells a service manager when it is ready; here the lab is that.
    let notify = directory.path().join("notify");
    let manager = UnixDatagram::bind(&notify).context("cannot listen for the relay")?;
    manager.set_nonblocking(true)?;
    let mut command = Command::new(midspan);
    command.arg("relay").arg("--config").arg(&path).env("NOTIFY_SOCKET", &notify);
    let mut said = [0; 256];
    Proxy::spawn(command, mec, directory, move || match manager.recv(&mut said) {
        Ok(bytes) => Ok(said[..bytes].split(|byte| *byte == b'\n').any(|line| line == b"READY=1")),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    })
}

fn configuration(spec: &CellSpec) -> Config {
    let (relay, host) = (&spec.relay, &spec.hosts.mec);
    let mut config = Config::new(client_prefixes());
    // Namespaces of a run end with it, and nobody takes over.
    config.pin = false;
    config.client_leg = leg(&relay.client_leg, host);
    config.server_leg = leg(&relay.server_leg, host);
    if let Some(buffer) = relay.buffer {
        config.buffer = buffer;
    }
    if let Some(ahead) = relay.read_ahead {
        config.read_ahead = match ahead {
            ReadAhead::Fixed => ReadAheadKind::Fixed,
            ReadAhead::Auto => ReadAheadKind::Auto,
        };
    }
    config
}

/// What the leg leaves open is the host's choice.
fn leg(leg: &Leg, host: &Host) -> LegConfig {
    let congestion_control = leg.congestion_control.as_ref().unwrap_or(&host.congestion_control);
    LegConfig {
        congestion_control: Some(congestion_control.clone()),
        receive_buffer: leg.receive_buffer,
        send_buffer: leg.send_buffer,
        notsent_lowat: leg.notsent_lowat,
        ..LegConfig::default()
    }
}
