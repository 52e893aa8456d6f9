//! Who is compared: Midspan, HAProxy and nginx, each as shipped and as tuned by someone who wants it
//! to win, connected to and transparent.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use midspan_sys::process::{self, die_with_parent};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::place::Place;
use super::world::{self, World};

/// What stands in the middle.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Contender {
    /// No relay: the box forwards.
    Direct,
    /// A [plain](super::plain) relay, connected to.
    Plain,
    /// The same, which intercepts (TPROXY) and connects as the client.
    PlainTransparent,
    /// A plain relay that splices, connected to.
    PlainSplicing,
    /// The same, which intercepts (TPROXY) and connects as the client.
    PlainSplicingTransparent,
    /// Midspan, connected to.
    Midspan,
    /// Midspan, which intercepts.
    MidspanTransparent,
    /// Another build of Midspan, connected to.
    Baseline,
    /// Another build of Midspan, which intercepts.
    BaselineTransparent,
    /// HAProxy with nothing set that need not be.
    Haproxy,
    /// HAProxy with splicing, large buffers and pipes, a thread and a listener per core.
    HaproxyTuned,
    /// The same, but splicing always, and not only what it takes for a fast flow.
    HaproxySplicing,
    /// nginx with nothing set that need not be.
    Nginx,
    /// nginx with large buffers, a process and a listener per core.
    NginxTuned,
    /// HAProxy as shipped, which intercepts (TPROXY) and connects as the client.
    HaproxyTransparent,
    /// HAProxy tuned, which intercepts (TPROXY) and connects as the client.
    HaproxyTunedTransparent,
    /// nginx as shipped, connected to, which connects as the client.
    NginxTransparent,
    /// nginx tuned, connected to, which connects as the client.
    NginxTunedTransparent,
}

/// Whose program it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Direct,
    Plain,
    Midspan,
    Baseline,
    Haproxy,
    Nginx,
}

/// What a contender is.
struct Kind {
    name: &'static str,
    program: Program,
    /// Whether the server sees the client's address.
    transparent: bool,
    /// With placeholders.
    configuration: &'static str,
}

const PLAIN: &str = "@LISTEN@\n@TO@\n@TRANSPARENT@\n\n";
const PLAIN_SPLICING: &str = "@LISTEN@\n@TO@\n@TRANSPARENT@\nsplicing\n";
const EXPLICIT: &str = "[[forward]]\nlisten = \"@LISTEN@\"\nto = \"@TO@\"\n";
const TRANSPARENT: &str = "clients = [\"@CLIENTS@\"]\ninterception = \"bpf\"\npin = false\n";
const HAPROXY: &str = include_str!("../../peers/haproxy.cfg");
const HAPROXY_TUNED: &str = include_str!("../../peers/haproxy-tuned.cfg");
const HAPROXY_SPLICING: &str = include_str!("../../peers/haproxy-splicing.cfg");
const NGINX: &str = include_str!("../../peers/nginx.conf");
const NGINX_TUNED: &str = include_str!("../../peers/nginx-tuned.conf");

impl Contender {
    fn kind(self) -> Kind {
        let (name, program, transparent, configuration) = match self {
            Contender::Direct => ("direct, without a relay", Program::Direct, true, ""),
            Contender::Plain => ("a plain relay", Program::Plain, false, PLAIN),
            Contender::PlainTransparent => {
                ("a plain relay, transparent", Program::Plain, true, PLAIN)
            }
            Contender::PlainSplicing => {
                ("a plain relay, splicing", Program::Plain, false, PLAIN_SPLICING)
            }
            Contender::PlainSplicingTransparent => {
                ("a plain relay, splicing, transparent", Program::Plain, true, PLAIN_SPLICING)
            }
            Contender::Midspan => ("Midspan, explicit", Program::Midspan, false, EXPLICIT),
            Contender::MidspanTransparent => {
                ("Midspan, transparent", Program::Midspan, true, TRANSPARENT)
            }
            Contender::Baseline => ("baseline, explicit", Program::Baseline, false, EXPLICIT),
            Contender::BaselineTransparent => {
                ("baseline, transparent", Program::Baseline, true, TRANSPARENT)
            }
            Contender::Haproxy => ("HAProxy, as shipped", Program::Haproxy, false, HAPROXY),
            Contender::HaproxyTuned => ("HAProxy, tuned", Program::Haproxy, false, HAPROXY_TUNED),
            Contender::HaproxySplicing => {
                ("HAProxy, splicing", Program::Haproxy, false, HAPROXY_SPLICING)
            }
            Contender::Nginx => ("nginx, as shipped", Program::Nginx, false, NGINX),
            Contender::NginxTuned => ("nginx, tuned", Program::Nginx, false, NGINX_TUNED),
            Contender::HaproxyTransparent => {
                ("HAProxy, transparent", Program::Haproxy, true, HAPROXY)
            }
            Contender::HaproxyTunedTransparent => {
                ("HAProxy, tuned, transparent", Program::Haproxy, true, HAPROXY_TUNED)
            }
            Contender::NginxTransparent => ("nginx, transparent", Program::Nginx, true, NGINX),
            Contender::NginxTunedTransparent => {
                ("nginx, tuned, transparent", Program::Nginx, true, NGINX_TUNED)
            }
        };
        Kind { name, program, transparent, configuration }
    }

    /// All of them, in the order of the tables.
    pub(super) fn all() -> &'static [Contender] {
        <Contender as clap::ValueEnum>::value_variants()
    }

    pub(super) fn name(self) -> &'static str {
        self.kind().name
    }

    pub(super) fn is_midspan(self) -> bool {
        self.kind().program == Program::Midspan
    }

    pub(super) fn is_baseline(self) -> bool {
        self.kind().program == Program::Baseline
    }

    /// Whom the client connects to. nginx cannot listen for what is made to others: its clients connect to it.
    pub(super) fn target(self) -> std::net::SocketAddr {
        let Kind { transparent, program, .. } = self.kind();
        match transparent && program != Program::Nginx {
            true => world::service(),
            false => world::at_proxy(),
        }
    }

    /// Whether its program is installed.
    pub(super) fn is_here(self) -> bool {
        let works = |program: &str| {
            let mut command = process::command(program);
            command.arg("-v").stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        match self.kind().program {
            Program::Direct | Program::Plain | Program::Midspan | Program::Baseline => true,
            Program::Haproxy => works("haproxy"),
            Program::Nginx => works("nginx"),
        }
    }

    /// Whether the kernel must be told which packets are for its sockets: Midspan does it by itself.
    fn is_transparent_peer(self) -> bool {
        let Kind { transparent, program, .. } = self.kind();
        transparent && matches!(program, Program::Plain | Program::Haproxy | Program::Nginx)
    }

    fn configuration(self, directory: &Path, processors: &[usize]) -> String {
        let Kind { program, transparent, configuration, .. } = self.kind();
        let cores = processors.len();
        // nginx takes the first from the right for its first worker.
        let most = processors.iter().max().map_or(0, |most| most + 1);
        let mask: String =
            (0..most).rev().map(|one| if processors.contains(&one) { '1' } else { '0' }).collect();
        let as_client = match program {
            _ if !transparent => "",
            Program::Haproxy => "source 0.0.0.0 usesrc clientip",
            _ => "proxy_bind $remote_addr transparent;",
        };
        configuration
            .replace("@LISTEN@", &world::at_proxy().to_string())
            .replace("@TO@", &world::service().to_string())
            .replace("@CLIENTS@", world::CLIENTS)
            .replace("@TRANSPARENT@", if transparent { "transparent" } else { "" })
            .replace("@AS_CLIENT@", as_client)
            .replace("@CORES@", &cores.to_string())
            .replace("@PROCESSORS@", &mask)
            .replace("@DIRECTORY@", &directory.display().to_string())
    }
}

/// A contender at work. Dropping this ends it.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    directory: TempDir,
}

/// How long one may take to be ready.
const PATIENCE: Duration = Duration::from_secs(10);

impl Running {
    /// Starts it on the box, and waits until it takes connections. `midspan` is Midspan's program, and `more` goes behind what
    /// else it is set up with.
    pub(super) fn start(
        contender: Contender,
        world: &World,
        place: Place,
        midspan: &Path,
        more: &str,
    ) -> Result<Option<Running>> {
        if contender == Contender::Direct {
            return Ok(None);
        }
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("configuration");
        let configuration = contender.configuration(directory.path(), &place.relays()?);
        fs::write(&path, configuration + more)?;
        let ready = directory.path().join("ready");
        let manager = UnixDatagram::bind(&ready)?;
        manager.set_nonblocking(true)?;
        if contender.is_transparent_peer() {
            world.deliver_to_transparent_sockets().context("transparent sockets")?;
        }
        let mut command = match contender.kind().program {
            Program::Haproxy => {
                let mut command = process::command("haproxy");
                command.arg("-db").arg("-f").arg(&path);
                command
            }
            Program::Nginx => {
                let mut command = process::command("nginx");
                command.arg("-p").arg(directory.path()).arg("-c").arg(&path);
                command
            }
            Program::Plain => {
                let mut command = Command::new(std::env::current_exe()?);
                command.arg("plain").arg("--config").arg(&path);
                command
            }
            Program::Direct | Program::Midspan | Program::Baseline => {
                let mut command = Command::new(midspan);
                command.arg("relay").arg("--config").arg(&path).env("NOTIFY_SOCKET", &ready);
                command
            }
        };
        let said = fs::File::create(directory.path().join("said"))?;
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        die_with_parent(process::in_session_of_its_own(world.proxy.apply(&mut command)));
        let child = place.of_relay(|| command.spawn())?;
        let child = child.with_context(|| format!("cannot start {}", contender.name()))?;
        let mut running = Running { child, directory };
        let deadline = Instant::now() + PATIENCE;
        let mut word = [0; 256];
        loop {
            let is_ready = match contender.is_midspan() || contender.is_baseline() {
                true => {
                    manager.recv(&mut word).is_ok_and(|read| word[..read].starts_with(b"READY=1"))
                }
                false => world::is_listening(&world.proxy, world::at_proxy().port())?,
            };
            if is_ready {
                return Ok(Some(running));
            }
            if let Some(status) = running.child.try_wait()? {
                bail!("{} ended ({status}): {}", contender.name(), running.said());
            }
            if Instant::now() >= deadline {
                bail!("{} was not ready in time: {}", contender.name(), running.said());
            }
            sleep(Duration::from_millis(5));
        }
    }

    /// The number of its process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time that it has used so far, all its processes together.
    pub(super) fn busy(&self) -> Duration {
        let processes = self.processes();
        let ticks = processes.iter().filter_map(|stat| {
            let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
            // utime and stime, in hundredths of a second.
            Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
        });
        Duration::from_millis(10 * ticks.sum::<u64>())
    }

    /// Memory of its own that is resident now, in bytes, all its processes together: what is mapped
    /// from files is left out.
    pub(super) fn memory(&self) -> u64 {
        let own = |stat: &String| {
            let id = stat.split(' ').next()?;
            let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
            let kib = |name: &str| {
                let line = status.lines().find(|line| line.starts_with(name))?;
                line.split_whitespace().nth(1)?.parse::<u64>().ok()
            };
            Some((kib("RssAnon:")? + kib("RssShmem:")?) * 1024)
        };
        self.processes().iter().filter_map(own).sum()
    }

    /// `/proc/PID/stat` of the process and its children.
    fn processes(&self) -> Vec<String> {
        let own = self.child.id().to_string();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let stats = all.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
        stats
            .filter(|stat| {
                let parent =
                    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
                stat.split(' ').next() == Some(&own) || parent == Some(&own)
            })
            .collect()
    }

    fn said(&self) -> String {
        let path: PathBuf = self.directory.path().join("said");
        fs::read_to_string(path).unwrap_or_default().replace('\n', " | ")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // nginx's master ends its workers on SIGTERM only.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(2);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            // Midspan drains on the first and ends on the second.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
