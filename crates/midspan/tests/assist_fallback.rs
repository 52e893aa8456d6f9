//! NetAssist from end to end: daemon and agent as processes in namespaces of their own, and NATCP or
//! NACubic in the running kernel. Takes root in the initial user namespace.

mod common;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use common::assist::{DAEMON, Files, Running, Station, certs, download, identity, path, wait_for};
use midspan_assist::agent::FeedbackMap;
use midspan_assist::now;
use midspan_ccload::{Algorithm, Controls, Error, Options};
use midspan_emu::Backend;
use midspan_lab::topology::{MEC_WIDE, Topology, UE};
use midspan_path::Traces;
use midspan_scenario::record::Variant;
use midspan_sys::sockdiag::tcp_sockets;
use midspan_units::{Span, Time};

/// Of the agents: the map's entries hold for so long.
const TIMEOUT: Span = Span::from_millis(400);
/// Far below what the link carries, so that who goes by it can be told from who does not.
const TOLD: u64 = 4_000_000;
/// Some round trips, and the time to look.
const MOMENT: Span = Span::from_millis(400);

/// A control that only this test has, in a folder of its own.
struct Loaded {
    controls: Controls,
    folder: PathBuf,
    name: String,
}

impl Loaded {
    fn new(algorithm: &str) -> Option<Loaded> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let unique = std::process::id() % 10_000 * 10 + NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = PathBuf::from(format!("/sys/fs/bpf/midspan-assist-{unique}"));
        let controls = Controls::new(&folder, format!("t{unique}_"));
        let algorithm = Algorithm::named(algorithm).unwrap();
        let options = Options { unrestricted: true, ..Options::default() };
        let name = controls.name_of(algorithm);
        match controls.load(algorithm, &options) {
            Ok(_) => Some(Loaded { controls, folder, name }),
            Err(error @ (Error::NotPermitted | Error::NoBtf | Error::NoBpffs { .. })) => {
                common::skip(&error.to_string());
                None
            }
            Err(error) => panic!("{error}"),
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.controls.unload_all().unwrap();
    }
}

/// A UE, an edge and a server that sends to the UE as fast as it may: 20 Mbit/s, 10 ms, 150 KB.
struct World {
    files: Files,
    station: Station,
    topology: Topology,
    map: FeedbackMap,
    loaded: Loaded,
}

impl World {
    fn new(algorithm: &str) -> Option<World> {
        if !common::can_run() {
            return None;
        }
        let loaded = Loaded::new(algorithm)?;
        let spec = path(&loaded.name);
        let backend = Backend::available();
        let topology = Topology::build(&spec, Variant::None, &Traces::new(), 7, backend).unwrap();
        let files = Files::new();
        let station = Station::start(&files.path("feed"), "\"10.45.1.2\"");
        let map = FeedbackMap::pinned(&loaded.folder).unwrap();
        Some(World { files, station, topology, map, loaded })
    }

    fn daemon(&self) -> Running {
        let config = self.files.daemon("", &self.files.identity("daemon"));
        Running::start("serve", &config, Some(&self.topology.mec))
    }

    fn agent(&self) -> Running {
        let keys = format!("timeout = \"400 ms\"\npins = {:?}", self.loaded.folder);
        let config = self.files.agent(&keys, &format!("{}:49460", MEC_WIDE.v4));
        Running::start("agent", &config, Some(&self.topology.server))
    }

    /// Bytes per second at which the server's connection is paced, and what the UE has acknowledged.
    fn sender(&self) -> (u64, u64) {
        let sockets = self.topology.server.run(tcp_sockets).unwrap().unwrap();
        let is_it = |remote: std::net::IpAddr| remote == std::net::IpAddr::V4(UE.v4);
        let socket = sockets.into_iter().find(|socket| is_it(socket.remote.ip())).unwrap();
        assert_eq!(socket.congestion_control, self.loaded.name);
        (socket.info.pacing_rate, socket.info.bytes_acked)
    }

    /// Whether the sender goes by `bits` of bandwidth.
    fn goes_by(&self, bits: u64) -> bool {
        let told = payload(bits);
        self.sender().0.abs_diff(told) <= told / 50
    }

    /// When the map's entry holds no longer.
    fn expiry(&self) -> Time {
        self.map.read(UE.v4.into()).unwrap().expect("an entry").updated + TIMEOUT
    }

    /// The sender goes by its base control from one timeout after the last feedback on, and not
    /// before.
    #[track_caller]
    fn falls_back(&self, why: &str) {
        wait_for(why, || {
            let looked = now();
            let (rate, told) = (self.sender().0, payload(TOLD));
            let over = self.expiry();
            let is_over = now() >= over;
            let assisted = rate.abs_diff(told) <= told / 50;
            assert!(!assisted || looked < over + MOMENT, "{why}: still assisted");
            // NACubic's rate is CUBIC's where that is lower, as after a loss.
            assert!(rate <= told + told / 50 || is_over, "{why}: given up too soon");
            !assisted && is_over
        });
        // And stays with it. The base control's own rate may pass what was told, but does not keep to it for a period.
        let looks: Vec<bool> = (0..25)
            .map(|_| {
                thread::sleep(Duration::from_millis(20));
                self.goes_by(TOLD)
            })
            .collect();
        assert!(!looks.windows(3).any(|three| three == [true; 3]), "{why}: assisted by nobody");
    }

    #[track_caller]
    fn comes_back(&self, after: &str) {
        wait_for(after, || self.goes_by(TOLD));
    }

    /// Whether for a second about as much arrives as goes through `bits` of bandwidth.
    fn has_goodput_of(&self, bits: u64) -> bool {
        let (from, before) = (now(), self.sender().1);
        thread::sleep(Duration::from_secs(1));
        let goodput = (self.sender().1 - before) as f64 / now().since(from).as_secs_f64();
        (0.8..1.2).contains(&(goodput / payload(bits) as f64))
    }
}

/// Bytes of payload per second in `bits` of IP's: 1448 in packets of 1500.
fn payload(bits: u64) -> u64 {
    bits / 8 * 1448 / 1500
}

/// A sender goes by what the base station says, and by its base control one timeout after the last
/// word, whoever fell silent.
fn follows_and_falls_back(algorithm: &str) {
    let Some(world) = World::new(algorithm) else { return };
    let daemon = world.daemon();
    let agent = world.agent();
    world.station.tell(TOLD);
    let _traffic = download(&world.topology);
    world.comes_back("feedback");
    // A machine that is emulated may need more than one second for it.
    wait_for("the goodput that was told", || world.has_goodput_of(TOLD));
    world.station.tell(2 * TOLD);
    wait_for("twice the bandwidth", || world.goes_by(2 * TOLD));
    wait_for("twice the goodput", || world.has_goodput_of(2 * TOLD));
    world.station.tell(TOLD);
    world.comes_back("the bandwidth of before");

    world.station.tell(0);
    world.falls_back("the base station says nothing");
    world.station.tell(TOLD);
    world.comes_back("the base station speaks again");

    daemon.kill();
    world.falls_back("the daemon is dead");
    // One whose certificate is from elsewhere is not believed.
    let foreign = world.files.path("foreign");
    assert!(certs(&foreign).status.success());
    let config = world.files.daemon("", &identity(&foreign, "daemon"));
    let impostor = Running::start("serve", &config, Some(&world.topology.mec));
    let fault = || {
        let state = world.files.state("agent.sock")?;
        Some(state["daemons"][0]["last_fault"].as_str()?.to_owned())
    };
    // The base control's own rate may pass what was told.
    let last = world.expiry();
    wait_for("the impostor is refused", || {
        assert_eq!(world.expiry(), last, "an impostor of {DAEMON} is believed");
        fault().is_some_and(|fault| fault.contains("certificate"))
    });
    impostor.kill();
    let _daemon = world.daemon();
    world.comes_back("a new daemon");

    agent.kill();
    world.falls_back("the agent is dead");
    let _agent = world.agent();
    world.comes_back("a new agent");
}

#[test]
fn natcp_follows_feedback_and_falls_back() {
    follows_and_falls_back("natcp");
}

#[test]
fn nacubic_follows_feedback_and_falls_back() {
    follows_and_falls_back("nacubic");
}
