//! A small network: certificates, daemons, agents, all on the loopback.
#![allow(dead_code, unreachable_pub)]

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use midspan_assist::agent::{Agent, Memory};
use midspan_assist::config::{AgentConfig, DaemonAddress, DaemonConfig, FlowsFrom};
use midspan_assist::daemon::Daemon;
use midspan_assist::now;
use midspan_assist::source::{Embedded, UeName};
use midspan_assist::tls::{DevSet, Identity, Issued};
use midspan_assist_proto::{Basis, BasisKind, Causal, LinkReading, Reading};
use midspan_units::{Rate, Span};
use serde_json::Value;

pub const PERIOD: Span = Span::from_millis(50);
pub const NAME: &str = "netassist.example";

pub fn ue(last: u8) -> IpAddr {
    IpAddr::from([10, 45, 0, last])
}

pub struct Network {
    pub folder: tempfile::TempDir,
    pub authority: DevSet,
}

impl Network {
    pub fn new() -> Network {
        let folder = tempfile::tempdir().unwrap();
        let mut network = Network { folder, authority: DevSet::create().unwrap() };
        network.put("authority.pem", network.authority.authority());
        let daemon = network.authority.issue_now(&[NAME]).unwrap();
        network.put_identity("daemon", &daemon);
        let server = network.authority.issue_now(&["server.example"]).unwrap();
        network.put_identity("server", &server);
        network.policy("server.example", "10.45.0.0/24");
        network
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn put(&self, name: &str, text: &str) {
        // In one step, so that nobody reads half of it.
        let new = self.path(&format!("{name}.new"));
        fs::write(&new, text).unwrap();
        fs::rename(new, self.path(name)).unwrap();
    }

    pub fn put_identity(&self, name: &str, issued: &Issued) {
        self.put(&format!("{name}.key"), &issued.key);
        self.put(&format!("{name}.pem"), &issued.certificate);
    }

    pub fn policy(&self, peer: &str, prefix: &str) {
        self.put(
            "policy.toml",
            &format!("[[peer]]\nname = \"{peer}\"\nmay_ask = [\"{prefix}\"]\n"),
        );
    }

    pub fn identity(&self, name: &str) -> Identity {
        Identity {
            certificate: self.path(&format!("{name}.pem")),
            key: self.path(&format!("{name}.key")),
            authority: self.path("authority.pem"),
            revocation_lists: Vec::new(),
        }
    }

    pub fn daemon_config(&self) -> DaemonConfig {
        let text = format!(
            "listen = \"127.0.0.1:0\"\npolicy = {policy:?}\n[identity]\ncertificate = {certificate:?}\n\
             key = {key:?}\nauthority = {authority:?}\n[[source]]\nname = \"cell\"\nkind = \"embedded\"\n",
            policy = self.path("policy.toml"),
            certificate = self.path("daemon.pem"),
            key = self.path("daemon.key"),
            authority = self.path("authority.pem"),
        );
        self.put("daemon.toml", &text);
        DaemonConfig::load(&self.path("daemon.toml")).unwrap()
    }

    pub fn daemon(&self) -> (Daemon<Causal>, Embedded<Causal>) {
        start(self.daemon_config())
    }

    pub fn agent_config(&self, daemons: &[SocketAddr], ues: &[IpAddr]) -> AgentConfig {
        let daemon =
            |address: &SocketAddr| DaemonAddress { address: *address, name: Some(NAME.into()) };
        AgentConfig {
            basis: BasisKind::Causal,
            ues: ues.iter().map(|ue| (*ue).into()).collect(),
            always: true,
            period: PERIOD,
            greatest: Rate::from_bps(1_000_000_000),
            distance: Some(Span::from_millis(2)),
            flows: FlowsFrom::Reported,
            pins: PathBuf::new(),
            ..AgentConfig::new(self.identity("server"), daemons.iter().map(daemon).collect())
        }
    }

    pub fn agent(&self, daemons: &[SocketAddr], ues: &[IpAddr]) -> (Agent, Memory) {
        let memory = Memory::default();
        let config = self.agent_config(daemons, ues);
        (Agent::start(config, Box::new(memory.clone())).unwrap(), memory)
    }
}

pub fn start(config: DaemonConfig) -> (Daemon<Causal>, Embedded<Causal>) {
    let daemon = Daemon::start(config).unwrap();
    let cell = daemon.embedded("cell").unwrap();
    (daemon, cell)
}

/// Says that a UE's link can carry so much now.
pub fn report(cell: &Embedded<Causal>, ue: IpAddr, bits: u64) {
    let link = LinkReading { capacity: Some(Rate::from_bps(bits)), ..LinkReading::default() };
    let reading = Reading::passed(now(), PERIOD, link, link);
    assert!(cell.report(vec![(UeName::Address(ue), reading)]));
}

/// Waits until it holds, doing `meanwhile` every 20 ms.
pub fn until_doing(what: &str, mut meanwhile: impl FnMut(), mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        meanwhile();
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn until(what: &str, holds: impl FnMut() -> bool) {
    until_doing(what, || {}, holds);
}

/// Whether a sender believes what is in the sink now.
pub fn is_fresh(memory: &Memory, ue: IpAddr) -> bool {
    memory.get(ue).is_some_and(|(entry, timeout)| now().since(entry.measured) < timeout)
}

pub fn bandwidth(memory: &Memory, ue: IpAddr) -> Option<u64> {
    memory.get(ue).map(|(entry, _)| entry.bandwidth.as_bps())
}

/// As JSON, which is what users see.
pub fn state<B: Basis>(daemon: &Daemon<B>) -> Value {
    serde_json::to_value(daemon.status().unwrap()).unwrap()
}

pub fn count(state: &Value, path: &str) -> u64 {
    state.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}
