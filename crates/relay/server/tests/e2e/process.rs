//! The relay as a process of its own: this test program, started again.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use midspan_relay::{Start, Treatment};
use midspan_sys::netns::Netns;
use midspan_sys::process::die_with_parent;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};
use serde_json::Value;

use crate::world::PATIENCE;

const CONFIG: &str = "MIDSPAN_TEST_RELAY";
const REPLACES: &str = "MIDSPAN_TEST_RELAY_REPLACES";
const DESCRIPTORS: &str = "MIDSPAN_TEST_RELAY_DESCRIPTORS";

/// As systemd says it: microseconds.
const WATCHDOG: &str = "WATCHDOG_USEC";

/// Not a test: what a [`RelayProcess`] runs. Alone it does nothing.
#[test]
fn relay_process() {
    let Ok(path) = std::env::var(CONFIG) else { return };
    if let Ok(most) = std::env::var(DESCRIPTORS) {
        let most = most.parse().ok();
        setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).unwrap();
    }
    let config = midspan_relay::load(path.as_ref()).unwrap();
    let start = match std::env::var(REPLACES) {
        Ok(_) => Start::Replacing,
        Err(_) => Start::Alone,
    };
    let done = midspan_relay::run(config, start, |monitor| {
        let path = std::path::PathBuf::from(&path);
        monitor.on_reload(move || midspan_relay::load(&path).map_err(|error| error.to_string()));
        thread::spawn(move || {
            for _ in std::io::stdin().lines() {
                let mut counts: HashMap<&str, u64> = monitor.snapshot().entries().collect();
                if let Some(verdicts) = monitor.verdicts() {
                    counts.extend(
                        verdicts.entries().map(|(verdict, count)| (verdict.label(), count)),
                    );
                }
                let treatments = Treatment::ALL.map(|of| (of.label(), monitor.treatment(of)));
                let mut all = serde_json::to_value(&counts).unwrap();
                for (label, sums) in treatments {
                    let Value::Object(sums) = serde_json::to_value(sums).unwrap() else {
                        unreachable!()
                    };
                    for (name, value) in sums {
                        all[format!("{label}_{name}")] = value;
                    }
                }
                println!("{all}");
            }
        });
    });
    println!("{}", serde_json::to_string(&done.unwrap()).unwrap());
}

pub(crate) type Counts = HashMap<String, u64>;

pub(crate) struct RelayProcess {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    directory: tempfile::TempDir,
    notified: Option<UnixDatagram>,
}

/// What every test configures unless it says otherwise.
pub(crate) const CLIENTS: &str = "clients = [\"10.0.0.0/8\", \"fd00::/8\"]\n";

/// Has clients told that they are connected before their server was asked, where a test is about what follows from that.
pub(crate) const EARLY: &str = "handshake = \"early\"\n";

/// Has nftables steer, where a test is about that.
pub(crate) const NFTABLES: &str = "interception = \"nftables\"\n";

impl RelayProcess {
    /// Starts a relay and waits until it says that it is ready.
    pub(crate) fn start(netns: &Netns, settings: &str) -> RelayProcess {
        RelayProcess::start_as(netns, settings, &[])
    }

    /// The same, in the place of the one that runs.
    pub(crate) fn replace(netns: &Netns, settings: &str) -> RelayProcess {
        RelayProcess::start_as(netns, settings, &[(REPLACES, "1".into())])
    }

    /// The same, with no more than so many descriptors.
    pub(crate) fn start_limited(netns: &Netns, settings: &str, descriptors: u32) -> RelayProcess {
        RelayProcess::start_as(netns, settings, &[(DESCRIPTORS, descriptors.to_string())])
    }

    /// The same, watched by somebody like systemd, who goes on to listen.
    pub(crate) fn start_watched(netns: &Netns, settings: &str) -> RelayProcess {
        RelayProcess::start_as(netns, settings, &[(WATCHDOG, "400000".into())])
    }

    fn start_as(netns: &Netns, settings: &str, environment: &[(&str, String)]) -> RelayProcess {
        let directory = tempfile::tempdir().unwrap();
        let (config, ready) = (directory.path().join("relay.toml"), directory.path().join("ready"));
        fs::write(&config, whole(settings)).unwrap();
        let notified = UnixDatagram::bind(&ready).unwrap();
        // On an emulated machine the kernel takes long to verify programs.
        notified.set_read_timeout(Some(6 * PATIENCE)).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "process::relay_process", "--nocapture"])
            .env(CONFIG, &config)
            .env("NOTIFY_SOCKET", &ready)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let mut child = die_with_parent(netns.apply(&mut command)).spawn().unwrap();
        let mut said = [0; 64];
        let length = notified.recv(&mut said).expect("the relay is not ready in time");
        assert!(said[..length].starts_with(b"READY=1"));
        RelayProcess {
            ask: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child,
            directory,
            // Who does not listen must not be in the way.
            notified: environment.iter().any(|(name, _)| *name == WATCHDOG).then_some(notified),
        }
    }

    /// What it told systemd next.
    pub(crate) fn told(&self) -> String {
        let mut said = [0; 256];
        let notified = self.notified.as_ref().expect("a relay that is watched");
        let length = notified.recv(&mut said).expect("it tells nothing");
        String::from_utf8(said[..length].to_vec()).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes other settings into its configuration file, for it to read when it is told to.
    pub(crate) fn rewrite(&self, settings: &str) {
        fs::write(self.directory.path().join("relay.toml"), whole(settings)).unwrap();
    }

    pub(crate) fn counts(&mut self) -> Counts {
        self.ask.write_all(b"\n").unwrap();
        self.next_counts()
    }

    fn next_counts(&mut self) -> Counts {
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the relay has ended");
            if line.starts_with('{') {
                return serde_json::from_str(&line).unwrap();
            }
        }
    }

    /// Waits until the relay's counts are as wanted.
    pub(crate) fn until(&mut self, wanted: impl Fn(&Counts) -> bool) -> Counts {
        let start = Instant::now();
        loop {
            let counts = self.counts();
            if wanted(&counts) {
                return counts;
            }
            assert!(start.elapsed() < PATIENCE, "still {counts:#?}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Signals it; one that is stopped has stopped then, with all its threads.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        while signal == Signal::STOP && !self.has_stopped() {
            thread::yield_now();
        }
    }

    fn has_stopped(&self) -> bool {
        let mut tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        tasks.all(|task| {
            let stat = fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            stat.rsplit(')').next().is_some_and(|fields| fields.trim_start().starts_with('T'))
        })
    }

    /// Waits for the end, and gives the last counts if the relay ended by itself.
    pub(crate) fn wait(mut self) -> (ExitStatus, Option<Counts>) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(start.elapsed() < PATIENCE, "the relay does not end");
            thread::sleep(Duration::from_millis(5));
        };
        let counts = status.success().then(|| self.next_counts());
        (status, counts)
    }

    /// Descriptors open now.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap().count()
    }

    /// Processor time used so far.
    pub(crate) fn busy(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        // utime and stime, in hundredths of a second.
        let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        Duration::from_millis(10 * ticks)
    }

    /// How often its threads have gone to sleep so far, and were woken but for the last time.
    pub(crate) fn wakeups(&self) -> u64 {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let slept = |task: std::io::Result<fs::DirEntry>| {
            let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
            let line = status.lines().find(|line| line.starts_with("voluntary_ctxt")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
        };
        tasks.map(slept).sum()
    }

    /// Resident memory now, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let statm = fs::read_to_string(format!("/proc/{}/statm", self.pid())).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }
}

/// A test's settings with what all have.
fn whole(settings: &str) -> String {
    // What is pinned outlives a test.
    let pin = if settings.contains("pin =") { "" } else { "pin = false\n" };
    let clients = if settings.starts_with("clients =") { "" } else { CLIENTS };
    format!("{clients}{pin}{settings}")
}

impl Drop for RelayProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
