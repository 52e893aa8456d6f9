//! Who is compared: Midspan, HAProxy and nginx, each as shipped and as tuned by someone who wants it
//! to win.

use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use midspan_sys::netns::Netns;
use midspan_sys::process::{self, die_with_parent};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::world::{self, World};

/// What stands in the middle.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Contender {
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
}

impl Contender {
    pub(super) const ALL: [Contender; 9] = [
        Contender::Midspan,
        Contender::MidspanTransparent,
        Contender::Baseline,
        Contender::BaselineTransparent,
        Contender::Haproxy,
        Contender::HaproxyTuned,
        Contender::HaproxySplicing,
        Contender::Nginx,
        Contender::NginxTuned,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Contender::Midspan => "Midspan, explicit",
            Contender::MidspanTransparent => "Midspan, transparent",
            Contender::Baseline => "baseline, explicit",
            Contender::BaselineTransparent => "baseline, transparent",
            Contender::Haproxy => "HAProxy, as shipped",
            Contender::HaproxyTuned => "HAProxy, tuned",
            Contender::HaproxySplicing => "HAProxy, splicing",
            Contender::Nginx => "nginx, as shipped",
            Contender::NginxTuned => "nginx, tuned",
        }
    }

    pub(super) fn is_midspan(self) -> bool {
        matches!(self, Contender::Midspan | Contender::MidspanTransparent)
    }

    pub(super) fn is_baseline(self) -> bool {
        matches!(self, Contender::Baseline | Contender::BaselineTransparent)
    }

    /// Whether it takes connections that are made to the server.
    fn is_transparent(self) -> bool {
        matches!(self, Contender::MidspanTransparent | Contender::BaselineTransparent)
    }

    /// Whom the client connects to.
    pub(super) fn target(self) -> std::net::SocketAddr {
        if self.is_transparent() { world::service() } else { world::at_proxy() }
    }

    /// Whether its program is installed.
    pub(super) fn is_here(self) -> bool {
        let works = |program: &str| {
            let mut command = process::command(program);
            command.arg("-v").stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        match self {
            _ if self.is_midspan() || self.is_baseline() => true,
            Contender::Nginx | Contender::NginxTuned => works("nginx"),
            _ => works("haproxy"),
        }
    }

    fn configuration(self, directory: &Path) -> String {
        let (listen, to) = (world::at_proxy(), world::service());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match self {
            Contender::Midspan | Contender::Baseline => {
                format!("[[forward]]\nlisten = \"{listen}\"\nto = \"{to}\"\n")
            }
            Contender::MidspanTransparent | Contender::BaselineTransparent => {
                format!("clients = [\"{}\"]\ninterception = \"bpf\"\npin = false\n", world::CLIENTS)
            }
            peer => {
                let text = match peer {
                    Contender::Haproxy => include_str!("../../peers/haproxy.cfg"),
                    Contender::HaproxyTuned => include_str!("../../peers/haproxy-tuned.cfg"),
                    Contender::HaproxySplicing => include_str!("../../peers/haproxy-splicing.cfg"),
                    Contender::Nginx => include_str!("../../peers/nginx.conf"),
                    _ => include_str!("../../peers/nginx-tuned.conf"),
                };
                text.replace("@LISTEN@", &listen.to_string())
                    .replace("@TO@", &to.to_string())
                    .replace("@CORES@", &cores.to_string())
                    .replace("@DIRECTORY@", &directory.display().to_string())
            }
        }
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
    /// Starts it on the box, and waits until it takes connections. `midspan` is Midspan's program.
    pub(super) fn start(contender: Contender, world: &World, midspan: &Path) -> Result<Running> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("configuration");
        fs::write(&path, contender.configuration(directory.path()))?;
        let ready = directory.path().join("ready");
        let manager = UnixDatagram::bind(&ready)?;
        manager.set_nonblocking(true)?;
        let mut command = match contender {
            Contender::Haproxy => {
                let mut command = process::command("haproxy");
                command.arg("-db").arg("-f").arg(&path);
                command
            }
            // It has no setting for what nginx and Midspan do by themselves.
            Contender::HaproxyTuned | Contender::HaproxySplicing => {
                let mut command = process::command("nice");
                command.args(["-n", "-10", "haproxy", "-db", "-f"]).arg(&path);
                command
            }
            Contender::Nginx | Contender::NginxTuned => {
                let mut command = process::command("nginx");
                command.arg("-p").arg(directory.path()).arg("-c").arg(&path);
                command
            }
            _ => {
                let mut command = Command::new(midspan);
                command.arg("relay").arg("--config").arg(&path).env("NOTIFY_SOCKET", &ready);
                command
            }
        };
        let said = fs::File::create(directory.path().join("said"))?;
        command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(said);
        let child = die_with_parent(world.proxy.apply(&mut command)).spawn();
        let child = child.with_context(|| format!("cannot start {}", contender.name()))?;
        let mut running = Running { child, directory };
        let deadline = Instant::now() + PATIENCE;
        let mut word = [0; 256];
        loop {
            let is_ready = match contender.is_midspan() || contender.is_baseline() {
                true => {
                    manager.recv(&mut word).is_ok_and(|read| word[..read].starts_with(b"READY=1"))
                }
                false => is_listening(&world.proxy)?,
            };
            if is_ready {
                return Ok(running);
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

/// Whether a socket of the box listens where a proxy is connected to.
fn is_listening(netns: &Netns) -> io::Result<bool> {
    let table = netns.run(|| fs::read_to_string("/proc/thread-self/net/tcp"))??;
    let port = format!(":{:04X}", world::at_proxy().port());
    Ok(table.lines().skip(1).any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1).is_some_and(|local| local.ends_with(&port)) && fields.get(3) == Some(&"0A")
    }))
}
