//! NetAssist in a live run: a daemon at the MEC that a base station tells of the radio trace, and an
//! agent on the sender's host.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use midspan_assist::agent::{Agent, FeedbackMap};
use midspan_assist::config::{
    AgentConfig, DaemonAddress, DaemonConfig, FlowsFrom, MinRttFrom, PORT,
};
use midspan_assist::daemon::{Daemon, DaemonStatus};
use midspan_assist::now;
use midspan_assist::source::{Embedded, SourceConfig, SourceKind, Sourced, UeName};
use midspan_assist::tls::{DevSet, Identity};
use midspan_assist_proto::estimate::{EstimatorConfig, MinRttConfig};
use midspan_assist_proto::{BasisKind, Causal, Oracle, Recorded};
use midspan_path::Traces;
use midspan_scenario::record::FeedbackRecord;
use midspan_scenario::{
    Assist, CellSpec, Cuts, FeedbackOf, FeedbackRoute, OwnRtt, Radio, ServiceHost, Tell,
};
use midspan_units::Time;
use tempfile::TempDir;

use crate::topology::{MEC_ACCESS, MEC_WIDE, Topology, UE};

/// Everything of NetAssist's that runs. Ends with this value.
pub struct NetAssist {
    // In this order: nobody talks to what has ended.
    agent: Agent,
    _reflector: Option<Reflector>,
    daemon: Box<dyn Running>,
    _folder: TempDir,
}

/// A daemon of either basis, and the base station that it listens to.
trait Running: Send {
    fn status(&self) -> Option<DaemonStatus>;
}

impl NetAssist {
    /// Starts what `spec` asks for, and waits for the first feedback. None if it asks for nothing.
    ///
    /// # Errors
    /// When something cannot start, or no feedback comes.
    pub fn start(
        spec: &CellSpec,
        topology: &Topology,
        traces: &Traces,
        map: Option<&FeedbackMap>,
    ) -> Result<Option<NetAssist>> {
        let Some(assist) = spec.assisted() else { return Ok(None) };
        let map = map.context("there is no congestion control that takes feedback")?;
        let radio = spec.radio(traces, assist.period).context("there is no trace to tell of")?;
        let script = Script { radio, cuts: assist.cuts };
        let folder = tempfile::tempdir().context("no folder for certificates")?;
        let config = daemon_config(spec, assist, folder.path())?;
        let start = topology.access_epoch();
        let daemon = topology.mec.run(|| match assist.feedback {
            FeedbackOf::Oracle => Station::<Oracle>::start(config, script, start),
            FeedbackOf::None | FeedbackOf::Causal => {
                Station::<Causal>::start(config, script, start)
            }
        })??;
        let reflector = match assist.way {
            FeedbackRoute::OutOfBand => None,
            FeedbackRoute::InBand => Some(Reflector::start(topology)?),
        };
        let config = agent_config(spec, assist, folder.path());
        let sink = Box::new(map.try_clone().context("the map for feedback")?);
        let host = match assist.agent {
            ServiceHost::Server => &topology.server,
            ServiceHost::Mec => &topology.mec,
        };
        let agent = host.run(|| Agent::start(config, sink))??;
        let running = NetAssist { agent, _reflector: reflector, daemon, _folder: folder };
        let deadline = Instant::now() + PATIENCE;
        while running.agent.status().written == 0 {
            if Instant::now() >= deadline {
                let why = &running.agent.status().daemons[0].last_fault;
                bail!("no feedback came: {}", why.as_deref().unwrap_or("the daemon says nothing"));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(Some(running))
    }

    /// What became of the feedback so far.
    pub fn record(&self) -> FeedbackRecord {
        let status = self.daemon.status();
        let source = status.as_ref().and_then(|status| status.sources.first());
        let counts = source.map(|source| source.counts).unwrap_or_default();
        let tally = self.agent.status().daemons[0].tally;
        FeedbackRecord {
            readings: counts.readings,
            clipped: counts.implausible,
            ignored: counts.ignored,
            used: tally.accepted,
            missing: tally.missing,
        }
    }
}

/// How long the first feedback may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the base station tells, and when it does not.
struct Script {
    radio: Radio,
    cuts: Option<Cuts>,
}

/// A daemon, and the thread of the base station that tells it of windows as they pass, or come.
struct Station<B: Sourced> {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    daemon: Daemon<B>,
}

impl<B: Sourced + Recorded> Station<B> {
    /// `start` is when the radio link's trace began.
    fn start(config: DaemonConfig, script: Script, start: Time) -> Result<Box<dyn Running>> {
        let daemon = Daemon::<B>::start(config)?;
        let cell = daemon.embedded(CELL).context("no way in for the base station")?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let work = move || report(&cell, &script, start, &stopped);
        let thread = thread::Builder::new().name("base-station".into()).spawn(work)?;
        Ok(Box::new(Station { stop, thread: Some(thread), daemon }))
    }
}

fn report<B: Recorded>(cell: &Embedded<B>, script: &Script, start: Time, stopped: &AtomicBool) {
    let Script { radio, cuts } = script;
    let window = radio.down.window();
    // Windows that are over before it begins are nobody's business.
    let first = now().since(start).as_nanos() / window.as_nanos();
    for index in first.. {
        let at = start + window * (index + B::DELAY);
        thread::sleep(at.since(now()).into());
        if stopped.load(Ordering::Relaxed) {
            return;
        }
        if cuts.is_some_and(|cuts| cuts.hold(at.since(start))) {
            continue;
        }
        let up = radio.up.as_ref().map(|up| up.rate(index));
        let reading = B::reading(at, window, radio.down.rate(index), up);
        // A daemon that does not listen shows in what the agent has.
        cell.report(vec![(UeName::Address(UE.v4.into()), reading)]);
    }
}

impl<B: Sourced> Running for Station<B> {
    fn status(&self) -> Option<DaemonStatus> {
        self.daemon.status()
    }
}

impl<B: Sourced> Drop for Station<B> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const CELL: &str = "cell";
const DAEMON: &str = "netassist.example";
const SENDER: &str = "server.example";

fn daemon_config(spec: &CellSpec, assist: &Assist, folder: &Path) -> Result<DaemonConfig> {
    DevSet::create()?.write(folder, &[("daemon", vec![DAEMON]), ("sender", vec![SENDER])])?;
    let policy = folder.join("policy.toml");
    let text = format!("[[peer]]\nname = \"{SENDER}\"\nmay_ask = [\"{}/32\"]\n", UE.v4);
    fs::write(&policy, text).context("cannot write the policy")?;
    let min_rtt = MinRttConfig {
        network: spec.path.access.base_rtt(),
        uplink_packet: assist.uplink_packet.as_bytes(),
        ..MinRttConfig::default()
    };
    let basis = match assist.feedback {
        FeedbackOf::Oracle => BasisKind::Oracle,
        FeedbackOf::None | FeedbackOf::Causal => BasisKind::Causal,
    };
    Ok(DaemonConfig {
        basis,
        estimator: EstimatorConfig { min_rtt, ..EstimatorConfig::default() },
        sources: vec![SourceConfig::new(CELL, SourceKind::Embedded, assist.period)],
        ..DaemonConfig::new(policy, identity(folder, "daemon"))
    })
}

fn agent_config(spec: &CellSpec, assist: &Assist, folder: &Path) -> AgentConfig {
    let (daemon, distance): (IpAddr, _) = match (assist.way, assist.agent) {
        (FeedbackRoute::OutOfBand, ServiceHost::Server) => (MEC_WIDE.v4.into(), None),
        (FeedbackRoute::OutOfBand, ServiceHost::Mec) => (MEC_ACCESS.v4.into(), None),
        // What is measured on the way by the UE is not the distance to the edge.
        (FeedbackRoute::InBand, ServiceHost::Server) => {
            (UE.v4.into(), Some(spec.path.wide.base_rtt()))
        }
        (FeedbackRoute::InBand, ServiceHost::Mec) => {
            (UE.v4.into(), Some(midspan_units::Span::ZERO))
        }
    };
    let address =
        DaemonAddress { address: SocketAddr::new(daemon, PORT), name: Some(DAEMON.to_owned()) };
    AgentConfig {
        basis: match assist.feedback {
            FeedbackOf::Oracle => BasisKind::Oracle,
            FeedbackOf::None | FeedbackOf::Causal => BasisKind::Causal,
        },
        ues: vec![IpAddr::from(UE.v4).into()],
        always: true,
        period: assist.period,
        // As in the simulator: what is measured here comes each period.
        timeout: Some(assist.period * 7 / 2),
        distance,
        flows: FlowsFrom::Counted,
        standing_queue: assist.standing_queue,
        pace_percent: assist.pace_percent,
        min_rtt: match (assist.tell, assist.rtt) {
            (Tell::Both, _) => MinRttFrom::Network,
            (Tell::Bandwidth, OwnRtt::Least) => MinRttFrom::Sender,
            (Tell::Bandwidth, OwnRtt::Smoothed) => MinRttFrom::SenderSmoothed,
        },
        ..AgentConfig::new(identity(folder, "sender"), vec![address])
    }
}

fn identity(folder: &Path, name: &str) -> Identity {
    let path = |file: String| -> PathBuf { folder.join(file) };
    Identity {
        certificate: path(format!("{name}.pem")),
        key: path(format!("{name}.key")),
        authority: path("authority.pem".to_owned()),
        revocation_lists: Vec::new(),
    }
}

/// At the UE, for feedback in band: passes on what the agent says to the daemon, and what the daemon
/// says to the agent, so that it crosses the radio link both ways.
struct Reflector {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reflector {
    fn start(topology: &Topology) -> Result<Reflector> {
        let open = || -> std::io::Result<[UdpSocket; 2]> {
            let agents = UdpSocket::bind((UE.v4, PORT))?;
            let daemon = UdpSocket::bind((UE.v4, 0))?;
            daemon.connect((MEC_ACCESS.v4, PORT))?;
            Ok([agents, daemon])
        };
        let [agents, daemon] = topology.ue.run(open)?.context("feedback in band at the UE")?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let work = move || reflect(&agents, &daemon, &stopped);
        let thread = thread::Builder::new().name("in-band".into()).spawn(work)?;
        Ok(Reflector { stop, thread: Some(thread) })
    }
}

fn reflect(agents: &UdpSocket, daemon: &UdpSocket, stopped: &AtomicBool) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut packet = [0; 2048];
    let mut agent = None;
    for socket in [agents, daemon] {
        let _ = socket.set_nonblocking(true);
    }
    while !stopped.load(Ordering::Relaxed) {
        let mut ready = [agents, daemon].map(|socket| PollFd::new(socket, PollFlags::IN));
        let look = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let _ = poll(&mut ready, Some(&look));
        // What cannot be passed on is lost, as datagrams may be.
        while let Ok((length, from)) = agents.recv_from(&mut packet) {
            agent = Some(from);
            let _ = daemon.send(&packet[..length]);
        }
        while let Ok(length) = daemon.recv(&mut packet) {
            if let Some(agent) = agent {
                let _ = agents.send_to(&packet[..length], agent);
            }
        }
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
