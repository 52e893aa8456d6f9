//! The emulated network of a run around programs of the user's: what `midspan lab shell` does.
//!
//! It is [`crate::topology`] with the same links and, where it is asked for, the same relay. Programs that the user names run
//! on its hosts in place of a workload.

mod capture;
mod held_process;
mod host;
mod listening;
mod log;
mod path_options;
mod running;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use midspan_emu::{Backend, Report};
use midspan_path::Traces;
use midspan_scenario::record::Variant;
use midspan_scenario::{CellSpec, Scenario};
use midspan_sys::netns::Netns;
use midspan_sys::userns::User;
use midspan_sys::{sysctl, terminal};
use midspan_units::Span;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

use self::held_process::{HeldProcess, heeded};
use self::log::Log;
use self::running::Entry;
use crate::capture::Recording;
use crate::controls::{self, HeldControls};
use crate::links::LinkReports;
use crate::proxy::{Proxy, last_lines};
use crate::topology::{Fittings, SERVER, ShortestRtts, Topology};

pub use self::capture::Capture;
pub use self::held_process::hold;
pub use self::host::Host;
pub use self::listening::Port;
pub use self::path_options::PathOptions;
pub use self::running::{Running, enter, list};

/// What a shell is to be.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The path, the hosts and the relay. Its workload is not run.
    pub spec: &'a CellSpec,
    /// What stands on the MEC.
    pub variant: Variant,
    /// The traces that the path names.
    pub traces: &'a Traces,
    /// Where the path's randomness comes from.
    pub seed: u64,
    /// Where the path is from, if from a scenario: its congestion controls of ours are loaded.
    pub scenario: Option<&'a Scenario>,
    /// What the path is, in a few words.
    pub title: &'a str,
    /// This program: the relay is its command, and so is what starts programs.
    pub midspan: &'a Path,
    /// Who the user is on the machine, if this process is root of a user namespace alone.
    pub user: Option<User>,
    /// Whether programs are to be root of the namespaces all the same.
    pub as_root: bool,
    /// Commands, as a POSIX shell reads them, that run on the server for as long as the shell does.
    pub servers: &'a [String],
    /// What packets to keep.
    pub capture: Option<&'a Capture>,
    /// Where to write what links do.
    pub log: Option<&'a Path>,
}

/// A network into which programs can be started.
#[derive(Debug)]
pub struct Shell<'a> {
    plan: Plan<'a>,
    servers: Vec<Server>,
    relay: Option<Proxy>,
    log: Option<Log>,
    recording: Recording,
    topology: Arc<Topology>,
    _controls: Option<HeldControls>,
}

/// A command that runs on the server.
#[derive(Debug)]
struct Server {
    command: String,
    held: HeldProcess,
    /// What it says.
    said: File,
    ports: Vec<Port>,
}

/// How long a server may take until it listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the relay could have, as far as it depends on the machine and the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayState {
    /// Whether BPF steers connections to it, and not nftables.
    pub by_bpf: bool,
    /// Whether the leg towards the UE has the congestion control of ours that it has by default.
    pub own_control: bool,
}

impl<'a> Shell<'a> {
    /// Makes the network, starts the relay and the servers, and waits until they are ready.
    ///
    /// # Errors
    /// What the system does not allow, a file that cannot be written, a server that ends at once.
    pub fn open(plan: Plan<'a>) -> Result<Shell<'a>> {
        let controls = plan.scenario.map(controls::hold).transpose()?;
        let files = plan.capture.map(|capture| capture.files(plan.title)).unwrap_or_default();
        let whole = plan.capture.is_some_and(|capture| capture.whole);
        let (recording, taps) = Recording::start(files, whole)?;
        let backend = Backend::available();
        let Plan { spec, variant, traces, seed, .. } = plan;
        let fittings = Fittings { taps, cable: true };
        let topology = Topology::fitted(spec, variant, traces, seed, backend, fittings)?;
        for netns in hosts(&topology) {
            netns.run(|| open_to_everybody(plan.user.is_some()))?;
        }
        let relay = Proxy::start(variant, &topology.mec, spec, SERVER.v4, plan.midspan)?;
        let topology = Arc::new(topology);
        let mut shell = Shell {
            servers: Vec::new(),
            relay,
            log: None,
            recording,
            topology,
            _controls: controls,
            plan,
        };
        for command in shell.plan.servers {
            let server = shell.serve(command)?;
            shell.servers.push(server);
        }
        shell.topology.restart_statistics();
        let log = |path| Log::start(path, shell.topology.clone());
        shell.log = shell.plan.log.map(log).transpose()?;
        Ok(shell)
    }

    /// Starts a command on the server, and waits until it listens.
    fn serve(&self, text: &str) -> Result<Server> {
        let said = tempfile::tempfile()?;
        let (output, errors) = (said.try_clone()?, said.try_clone()?);
        let program = ["sh", "-c", text].map(OsString::from);
        let before = self.listening()?;
        let held = self.start(Host::Server, &program, |command| {
            // Not in the group that the terminal's signals go to: it is to outlive a Ctrl-C.
            command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        })?;
        let mut server = Server { command: text.to_owned(), held, said, ports: Vec::new() };
        let deadline = Instant::now() + PATIENCE;
        while server.ports.is_empty() && Instant::now() < deadline {
            server.check()?;
            server.ports = self.listening()?.difference(&before).cloned().collect();
            thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    fn listening(&self) -> Result<BTreeSet<Port>> {
        Ok(self.topology.server.run(listening::ports)?)
    }

    fn start(
        &self,
        host: Host,
        program: &[OsString],
        prepare: impl FnOnce(&mut std::process::Command),
    ) -> Result<HeldProcess> {
        let plan = &self.plan;
        let netns = hosts(&self.topology)[host as usize];
        let user = plan.user.filter(|_| !plan.as_root);
        HeldProcess::start(plan.midspan, netns, user, program, |command| {
            command.envs(host.environment(plan.title));
            prepare(command);
        })
    }

    /// What the relay could have; none without one.
    pub fn relay(&self) -> Option<RelayState> {
        let said = self.relay.as_ref()?.everything_said();
        Some(RelayState {
            by_bpf: !said.contains("nftables steers"),
            own_control: !said.contains("the client's leg has the kernel's congestion control"),
        })
    }

    /// The servers' commands, and the ports on which each listens: none if it did not in time.
    pub fn servers(&self) -> impl Iterator<Item = (&str, &[Port])> {
        self.servers.iter().map(|server| (&*server.command, &*server.ports))
    }

    /// Runs a program on the UE until it ends, which is answered as shells number it. What this process is told to end by
    /// (SIGTERM, SIGHUP) is passed on to it. Second terminals find the shell meanwhile.
    ///
    /// # Errors
    /// When what starts it cannot be started.
    pub fn run(&mut self, program: &[OsString]) -> Result<u8> {
        let mut signals = Signals::new(heeded([SIGINT, SIGQUIT, SIGTERM, SIGHUP]))?;
        let told = signals.handle();
        let held = self.start(Host::Ue, program, |_| {})?;
        let pid = held.pid();
        let entry = Entry::write(self.plan.title, pid, self.plan.user, hosts(&self.topology));
        if let Err(error) = &entry {
            eprintln!("midspan: `midspan lab enter` will not find this shell: {error:#}");
        }
        let status = thread::scope(|scope| {
            scope.spawn(move || {
                for signal in signals.forever().filter(|signal| [SIGTERM, SIGHUP].contains(signal))
                {
                    HeldProcess::signal(pid, signal);
                }
            });
            let status = held.wait();
            told.close();
            status
        });
        terminal::take_back();
        status
    }

    /// Ends everything, and says how it was.
    pub fn close(mut self) -> Ending {
        let reports = self.topology.reports();
        let rtts = ShortestRtts::of(self.plan.spec, self.plan.variant);
        let mut faults = Vec::new();
        faults.extend(self.relay.as_mut().and_then(|relay| relay.check().err()).map(in_words));
        let ended = self.servers.iter_mut().filter_map(|server| server.check().err());
        faults.extend(ended.map(in_words));
        faults.extend(self.log.take().and_then(Log::finish));
        let Shell { servers, relay, recording, topology, .. } = self;
        drop((servers, relay));
        // The recording is complete when the links are gone.
        drop(topology);
        faults.extend(recording.finish());
        Ending { links: punctuality(&reports, rtts), faults }
    }
}

/// How a shell was.
#[derive(Debug)]
pub struct Ending {
    /// How late packets left, or, as an error, why figures of this shell are not to be trusted: the lab's own criterion.
    pub links: Result<String, String>,
    /// What else went wrong, in a line each.
    pub faults: Vec<String>,
}

impl Server {
    /// Looks whether it still runs.
    fn check(&mut self) -> Result<()> {
        let Some(status) = self.held.try_wait()? else { return Ok(()) };
        let said = last_lines(&self.said);
        let said = if said.is_empty() { "nothing".to_owned() } else { said };
        bail!("the server `{}` ended with {status}, and said: {said}", self.command)
    }
}

/// Has the calling thread's host let everybody ping and serve on every port: nobody else is on it. `mapped` says that there is
/// one group only.
fn open_to_everybody(mapped: bool) {
    let groups = if mapped { "0 0" } else { "0 2147483647" };
    for (name, value) in
        [("net.ipv4.ping_group_range", groups), ("net.ipv4.ip_unprivileged_port_start", "0")]
    {
        // What a kernel does not have it does not guard by either.
        let _ = sysctl::set(name, value);
    }
}

/// In the order of [`Host::ALL`].
fn hosts(topology: &Topology) -> [&Netns; 3] {
    [&topology.ue, &topology.mec, &topology.server]
}

fn punctuality(reports: &LinkReports, rtts: ShortestRtts) -> Result<String, String> {
    // Without a round trip there is nothing to be late against.
    let bound = |rtt: Span| if rtt == Span::ZERO { Span::MAX } else { rtt };
    let bounds = ShortestRtts { access: bound(rtts.access), wide: bound(rtts.wide) };
    if let Some(reason) = reports.distrust(bounds) {
        return Err(reason);
    }
    let of = |report: &Report, rtt: Span| {
        let (name, late) = (&report.name, report.lateness.p99.as_micros());
        match rtt {
            Span::ZERO => format!("{late} us late or more on {name}"),
            _ => format!("{late} us late or more on {name} ({} us may be)", rtt.as_micros() / 10),
        }
    };
    let access = std::iter::once(of(&reports.access, rtts.access));
    let links: Vec<String> =
        access.chain(reports.wide.iter().map(|wide| of(wide, rtts.wide))).collect();
    Ok(format!("1 % of packets left {}", links.join(", ")))
}

fn in_words(error: anyhow::Error) -> String {
    format!("{error:#}").replace('\n', " ")
}

/// What runs where none is named: the user's shell.
pub fn users_shell() -> Vec<OsString> {
    let named = std::env::var_os("SHELL").filter(|shell| PathBuf::from(shell).is_absolute());
    vec![named.unwrap_or_else(|| "/bin/sh".into())]
}
