//! Midspan's own relay, as its users start it: `midspan relay --config FILE`.

use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use midspan_relay::Config;
use midspan_scenario::CellSpec;
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
    let (access, wide) = (spec.path.access.base_rtt(), spec.path.wide.base_rtt());
    let (relay, host) = (&spec.relay.divided(access, wide), &spec.hosts.mec);
    let mut config = Config::new(client_prefixes(spec.cells.as_ref()));
    // Namespaces of a run end with it, and nobody takes over.
    config.pin = false;
    config.client_leg = relay.client_leg.clone();
    config.server_leg = relay.server_leg.clone();
    // What is set for the host by hand holds for the relay.
    if host.initcwnd.is_some() {
        config.client_leg.initial_window_beside.get_or_insert(relay.first_windows(host).beside);
    }
    config.client_leg.rto_min = config.client_leg.rto_min.or(host.rto_min);
    // What the kernel chooses on a host is part of the host here; what the relay chooses is left to it.
    let chosen = &mut config.server_leg.congestion_control;
    chosen.get_or_insert_with(|| host.congestion_control.clone());
    if let Some(buffer) = relay.buffer {
        config.buffer = buffer;
    }
    if let Some(ahead) = relay.read_ahead {
        config.read_ahead = ahead;
    }
    config.reordering_hold = relay.reordering_hold();
    config
}

#[cfg(test)]
mod tests {
    use super::*;
    use midspan_scenario::Scenario;

    #[test]
    fn a_scenario_that_names_nothing_runs_the_relay_as_it_is() {
        let of = |relay: &str| {
            let text = format!(
                r#"
                name = "as-it-is"
                title = "The relay as it is"
                variants = ["midspan"]
                [path.access]
                [path.wide]
                [hosts]
                mec = {{ congestion_control = "reno" }}
                {relay}
                [workload]
                kind = "bulk"
                direction = "download"
                time = "1 s"
                "#
            );
            let scenario = Scenario::parse(&text, "test.toml").unwrap();
            configuration(&scenario.cells()[0].spec)
        };
        let mut expected = Config::new(client_prefixes(None));
        expected.pin = false;
        expected.server_leg.congestion_control = Some("reno".to_owned());
        assert_eq!(of(""), expected);
        let shared = of("[relay]\nshared = \"1 MB\"");
        assert!(
            shared.server_leg.receive_buffer.is_some() && shared.client_leg.send_buffer.is_some()
        );
        shared.check().unwrap();
        let named = of("[relay]\nclient_leg = { congestion_control = \"cubic\" }");
        assert_eq!(named.client_leg.congestion_control.as_deref(), Some("cubic"));
    }
}
