//! The relay whose client leg is NATCP's, `midspan cc load` and the agent, as processes and by the names that they have by
//! themselves: in whatever order they start, and whichever starts again, the leg goes by what the agent hears; a name that is taken is told with whose it is. Takes root
//! in the initial user namespace, and a machine that has none of them loaded.

mod common;

use std::net::IpAddr;
use std::process::Stdio;
use std::time::Instant;

use common::assist::{Files, Running, Station, download, path, wait_for};
use common::midspan;
use midspan_ccload::{Algorithm, Controls, Options};
use midspan_emu::Backend;
use midspan_lab::topology::{MEC_WIDE, Topology, UE};
use midspan_path::Traces;
use midspan_scenario::record::Variant;
use midspan_sys::netns::Netns;
use midspan_sys::sockdiag::tcp_sockets;
use serde_json::Value;

/// Far below what the link carries, so that who goes by it can be told from who does not.
const LITTLE: u64 = 4_000_000;

/// What starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Relay,
    Load,
    Agent,
}

/// The machine's own controls, of which none is left when this is dropped.
struct Own(Controls);

impl Own {
    /// None, and a word about it, where they cannot be had or somebody has them.
    fn free() -> Option<Own> {
        let controls = Controls::default();
        if controls.status().iter().any(|status| status.registered) || controls.feedback().exists()
        {
            common::skip("congestion controls are loaded on this machine: midspan cc unload --all");
            return None;
        }
        match controls.hold(Algorithm::named("natcp").unwrap(), &Options::default()) {
            Ok(_) => Some(Own(controls)),
            Err(error) => {
                common::skip(&error.to_string());
                None
            }
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.0.unload_all().unwrap();
    }
}

/// A UE and a server, and between them a box with the relay, the agent and the daemon.
struct World {
    files: Files,
    topology: Topology,
    station: Station,
    /// In bit/s.
    told: u64,
    _daemon: Running,
    relay: Option<Running>,
    agent: Option<Running>,
}

impl World {
    fn new() -> World {
        let spec = path("cubic");
        let (variant, backend) = (Variant::Midspan, Backend::available());
        let topology = Topology::build(&spec, variant, &Traces::new(), 7, backend).unwrap();
        let files = Files::new();
        let station = Station::start(&files.path("feed"), "\"10.45.1.2\"");
        let config = files.daemon("", &files.identity("daemon"));
        let daemon = Running::start("serve", &config, Some(&topology.mec));
        World { files, topology, station, told: 0, _daemon: daemon, relay: None, agent: None }
    }

    fn start(&mut self, program: Program) {
        let mec: &Netns = &self.topology.mec;
        match program {
            Program::Relay => {
                drop(self.relay.take());
                let socket = self.files.path("relay.sock");
                let mut command = midspan();
                command
                    .args(["relay", "--client", "10.45.0.0/16"])
                    .args(["--set", "client_leg.congestion_control=ms_natcp", "--set"])
                    .arg(format!("admin.socket={}", socket.display()))
                    .stderr(Stdio::null());
                self.relay = Some(Running::of(mec.apply(&mut command)));
                wait_for("the relay runs", || self.asked("status").is_some());
            }
            Program::Load => {
                let output = midspan().args(["cc", "load", "natcp"]).output().unwrap();
                // Refused where a relay has brought its own, which is told.
                let said = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success() || said.contains("held by process"), "{output:?}");
            }
            Program::Agent => {
                drop(self.agent.take());
                let config = self.files.agent("", &format!("{}:49460", MEC_WIDE.v4));
                self.agent = Some(Running::start("agent", &config, Some(mec)));
            }
        }
    }

    /// What the relay says; none if it does not answer.
    fn asked(&self, what: &str) -> Option<Value> {
        let socket = self.files.path("relay.sock");
        let output =
            midspan().args(["relay", what, "--json", "--socket"]).arg(socket).output().unwrap();
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// A download's client leg goes by what the base station says from now on, and the relay says that feedback holds.
    fn is_assisted(&mut self, after: &str) {
        self.told = if self.told == LITTLE { 2 * LITTLE } else { LITTLE };
        self.station.tell(self.told);
        let begin = Instant::now();
        let _download = download(&self.topology);
        wait_for(&format!("feedback after {after}"), || {
            let sockets = self.topology.mec.run(tcp_sockets).unwrap().unwrap();
            let leg = sockets.into_iter().find(|socket| socket.remote.ip() == IpAddr::V4(UE.v4));
            leg.is_some_and(|leg| {
                assert_eq!(leg.congestion_control, "ms_natcp", "{after}");
                // Of packets of 1,500 bytes, 1,448 are payload.
                let told = self.told / 8 * 1448 / 1500;
                leg.info.pacing_rate.abs_diff(told) <= told / 50
            })
        });
        println!("{after}: {:?} after the base station has said it", begin.elapsed());
        let said = self.asked("flows").unwrap();
        assert_eq!(said["flows"]["flows"][0]["assisted"]["holds"], true, "{after}: {said}");
    }
}

#[test]
fn whoever_comes_first_the_leg_goes_by_what_the_agent_hears() {
    use Program::*;
    if !common::can_run() {
        return;
    }
    let Some(own) = Own::free() else { return };
    for order in [
        [Relay, Load, Agent],
        [Relay, Agent, Load],
        [Load, Relay, Agent],
        [Load, Agent, Relay],
        [Agent, Relay, Load],
        [Agent, Load, Relay],
    ] {
        let mut world = World::new();
        for program in order {
            world.start(program);
        }
        world.is_assisted(&format!("{order:?}"));
        for again in [Agent, Load, Relay, Agent] {
            world.start(again);
            world.is_assisted(&format!("{order:?} and {again:?} again"));
        }
        drop(world);
        own.0.unload_all().unwrap();
    }
}
