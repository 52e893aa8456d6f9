//! NetAssist's processes, their certificates and settings.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use midspan_lab::topology::{self, Topology};
use midspan_scenario::{CellSpec, Scenario};
use midspan_sys::netns::Netns;
use midspan_sys::process::die_with_parent;
use serde_json::Value;

use super::midspan;

pub(crate) const DAEMON: &str = "netassist.example";
pub(crate) const SERVER: &str = "server.example";

/// A folder with an authority, certificates, a policy and a feed.
pub(crate) struct Files(tempfile::TempDir);

impl Files {
    pub(crate) fn new() -> Files {
        let files = Files(tempfile::tempdir().unwrap());
        let output = certs(&files.path("certs"));
        assert!(output.status.success(), "{output:?}");
        let policy = format!("[[peer]]\nname = \"{SERVER}\"\nmay_ask = [\"10.45.0.0/16\"]\n");
        fs::write(files.path("policy.toml"), policy).unwrap();
        fs::write(files.path("feed"), "").unwrap();
        files
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// `[identity]` of the host, by the authority in this folder.
    pub(crate) fn identity(&self, host: &str) -> String {
        identity(&self.path("certs"), host)
    }

    /// Settings of a daemon; `keys` come first.
    pub(crate) fn daemon(&self, keys: &str, identity: &str) -> PathBuf {
        let text = format!(
            "policy = {:?}\ncontrol = {:?}\n{keys}\n{identity}\n[[source]]\nname = \"cell\"\n\
             kind = \"feed\"\nfile = {:?}\nperiod = \"50 ms\"\n",
            self.path("policy.toml"),
            self.path("daemon.sock"),
            self.path("feed"),
        );
        let path = self.path("daemon.toml");
        fs::write(&path, text).unwrap();
        path
    }

    /// Settings of an agent of the UE 10.45.1.2; `keys` come first.
    pub(crate) fn agent(&self, keys: &str, daemon: &str) -> PathBuf {
        let text = format!(
            "ues = [\"10.45.1.2/32\"]\nalways = true\ncontrol = {:?}\n{keys}\n{}\n[[daemon]]\n\
             address = \"{daemon}\"\nname = \"{DAEMON}\"\n",
            self.path("agent.sock"),
            self.identity("server"),
        );
        let path = self.path("agent.toml");
        fs::write(&path, text).unwrap();
        path
    }

    /// What the program behind a control socket knows; none if it does not answer.
    pub(crate) fn state(&self, socket: &str) -> Option<Value> {
        let output = assist(&["top", "--json", self.path(socket).to_str().unwrap()]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }
}

pub(crate) fn identity(certs: &Path, host: &str) -> String {
    format!(
        "[identity]\ncertificate = {:?}\nkey = {:?}\nauthority = {:?}",
        certs.join(format!("{host}.pem")),
        certs.join(format!("{host}.key")),
        certs.join("authority.pem"),
    )
}

/// Makes an authority and two certificates.
pub(crate) fn certs(folder: &Path) -> Output {
    let hosts = [format!("daemon={DAEMON}"), format!("server={SERVER}")];
    let folder = folder.to_str().unwrap();
    assist(&["certs", "--folder", folder, "--host", &hosts[0], "--host", &hosts[1]])
}

pub(crate) fn assist(arguments: &[&str]) -> Output {
    midspan().arg("assist").args(arguments).output().unwrap()
}

/// A program that is killed with this.
pub(crate) struct Running(Child);

impl Running {
    /// `midspan assist COMMAND --config FILE`, in a namespace if one is given.
    pub(crate) fn start(command: &str, config: &Path, netns: Option<&Netns>) -> Running {
        let mut program: Command = midspan();
        program.args(["assist", command, "--config"]).arg(config).stderr(Stdio::null());
        if let Some(netns) = netns {
            netns.apply(&mut program);
        }
        Running(die_with_parent(&mut program).spawn().unwrap())
    }

    /// Any of the program's commands.
    pub(crate) fn of(command: &mut Command) -> Running {
        Running(die_with_parent(command).spawn().unwrap())
    }

    /// Ends it without a farewell.
    pub(crate) fn kill(mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A base station that tells of the UE's link, each 50 ms, in a file that grows.
pub(crate) struct Station {
    /// In bit/s; zero says nothing.
    capacity: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Station {
    /// `ue` as the base station names it, in JSON.
    pub(crate) fn start(feed: &Path, ue: &'static str) -> Station {
        let (capacity, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (told, stopped) = (capacity.clone(), stop.clone());
        let mut file = fs::OpenOptions::new().append(true).open(feed).unwrap();
        let work = move || {
            while !stopped.load(Ordering::Relaxed) {
                let bits = told.load(Ordering::Relaxed);
                if bits > 0 {
                    let line = format!(
                        "{{\"ue\":{ue},\"window_ms\":50,\"downlink\":{{\"capacity_bps\":{bits}}}}}\n"
                    );
                    file.write_all(line.as_bytes()).unwrap();
                }
                thread::sleep(Duration::from_millis(50));
            }
        };
        Station { capacity, stop, thread: Some(thread::spawn(work)) }
    }

    pub(crate) fn tell(&self, bits: u64) {
        self.capacity.store(bits, Ordering::Relaxed);
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A path of 20 Mbit/s, 10 ms and 150 KB, whose server has this congestion control.
pub(crate) fn path(control: &str) -> CellSpec {
    let text = format!(
        r#"
        name = "assisted"
        title = "A path for tests"
        variants = ["none"]
        [path.access]
        up = [{{ delay = "4 ms" }}]
        down = [
            {{ rate = {{ rate = "20 Mbit/s", queue = {{ bytes = "150 KB" }} }} }},
            {{ delay = "4 ms" }},
        ]
        [path.wide]
        up = [{{ delay = "1 ms" }}]
        down = [{{ delay = "1 ms" }}]
        [hosts.server]
        congestion_control = "{control}"
        [workload]
        kind = "bulk"
        direction = "download"
        time = "1 s"
        "#
    );
    Scenario::parse(&text, "assisted").unwrap().cells()[0].spec.clone()
}

/// A connection over which a server sends.
pub(crate) struct Download([TcpStream; 2]);

impl Drop for Download {
    fn drop(&mut self) {
        for end in &self.0 {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

/// Lets the server send to the UE as fast as it may, until the answer is dropped.
pub(crate) fn download(topology: &Topology) -> Download {
    let at = (topology::SERVER.v4, 5201);
    let listener = topology.server.run(|| TcpListener::bind(at)).unwrap().unwrap();
    let ue = topology.ue.run(|| TcpStream::connect(at)).unwrap().unwrap();
    let (server, _) = listener.accept().unwrap();
    let (mut sends, mut reads) = (server.try_clone().unwrap(), ue.try_clone().unwrap());
    let chunk = [7; 1 << 14];
    thread::spawn(move || while sends.write_all(&chunk).is_ok() {});
    thread::spawn(move || while reads.read(&mut [0; 1 << 14]).is_ok_and(|n| n > 0) {});
    Download([server, ue])
}

/// Waits for something that other processes do, as long as a busy machine may take.
#[track_caller]
pub(crate) fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !happened() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
