//! `midspan lab shell` and `midspan lab enter`: an emulated path around a program of the user's.

mod chosen;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use midspan_lab::experiment::read_traces;
use midspan_lab::shell::{self, Capture, Host, PathOptions, Plan, Running, Shell};
use midspan_path::Traces;
use midspan_scenario::record::Variant;
use midspan_scenario::{CellSpec, Scenario};
use midspan_sys::userns::User;
use midspan_units::Span;
use toml::Value;

use self::chosen::Chosen;
use super::lab::{NEEDS_PRIVILEGES, this_program, variant};
use super::settings::setting;
use super::{BadInput, acquire_privileges, quantity, read_input};

/// Options of a path are read here and not by clap, so that what is wrong with one is said in one line.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Scenario file whose path it is; its workload is not run
    #[arg(value_name = "SCENARIO")]
    scenario: Option<PathBuf>,
    /// What stands on the scenario's MEC: none or midspan
    #[arg(long, value_name = "NAME", requires = "scenario", value_parser = variant)]
    variant: Option<Variant>,
    /// Choose a point of one of the scenario's axes, by its label or by a value, or set any other of its keys, such as
    /// loss="1 %" or hosts.ue.congestion_control=bbr; may be given several times [default: each axis' first point]
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "scenario", value_parser = setting)]
    settings: Vec<(String, Value)>,
    /// Folder of the recorded traces that the scenario names [default: the scenario file's]
    #[arg(long, value_name = "DIR", requires = "scenario")]
    traces: Option<PathBuf>,
    /// Round trip between the UE and the server, such as 60ms [default: 0 ms]
    #[arg(long, value_name = "TIME", conflicts_with = "scenario")]
    rtt: Option<String>,
    /// Rate of the radio link in each direction, such as 50Mbit/s [default: no limit]
    #[arg(long, value_name = "RATE", conflicts_with = "scenario")]
    rate: Option<String>,
    /// Rate of the radio link towards the server, where it is another than towards the UE
    #[arg(long, value_name = "RATE", conflicts_with = "scenario")]
    rate_up: Option<String>,
    /// Packets that the radio link loses, in each direction, such as 1%
    #[arg(long, value_name = "SHARE", conflicts_with = "scenario")]
    loss: Option<String>,
    /// What the queue before the radio link holds, in each direction, such as 250KB [default: what the rate carries in a
    /// round trip, but at least 15 KB]
    #[arg(long, value_name = "SIZE", conflicts_with = "scenario")]
    queue: Option<String>,
    /// Have the relay at this round trip from the UE, such as 1ms; or none, which is the default
    #[arg(long, value_name = "TIME", conflicts_with = "scenario")]
    relay: Option<String>,
    /// Another seed of what is random on the path
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Command line that runs on the server for as long as the shell does; the program waits until it listens. May be given
    /// several times
    #[arg(long = "server", value_name = "COMMAND")]
    servers: Vec<String>,
    /// Keep the headers of the packets that the UE sends and receives in this pcap file; in a folder, those of each end of both
    /// links
    #[arg(long, value_name = "FILE|DIR")]
    pcap: Option<PathBuf>,
    /// Keep packets whole
    #[arg(long, requires = "pcap")]
    pcap_whole: bool,
    /// Write what waits, passes and is lost on both links into this CSV file, each 100 ms
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// As an ordinary user: be root within the shell, as tcpdump and ip want it
    #[arg(long)]
    root: bool,
    /// Say nothing but what is wrong
    #[arg(long, short)]
    quiet: bool,
    /// Program to run on the UE, and its arguments [default: your shell]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct Enter {
    /// Host to be on
    host: HostName,
    /// Number of the shell, where several run
    #[arg(long, value_name = "NUMBER")]
    shell: Option<u32>,
    /// As an ordinary user: be root within the shell, as tcpdump and ip want it
    #[arg(long)]
    root: bool,
    /// Program to run, and its arguments [default: your shell]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum HostName {
    /// Where the shell's program runs
    Ue,
    /// Where the relay is, if there is one
    Mec,
    /// Beyond the wide area
    Server,
}

#[derive(Debug, Args)]
pub(crate) struct Hold {
    /// Who the program is to be
    #[arg(long, value_name = "UID:GID", value_parser = user)]
    user: Option<User>,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// A path, and what stands on its MEC.
struct Around {
    spec: CellSpec,
    variant: Variant,
    traces: Traces,
    seed: u64,
    scenario: Option<Scenario>,
    title: String,
}

/// Runs a program with a path between it and a server, and ends as it does.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let begun = Instant::now();
    let chosen = match &arguments.scenario {
        Some(file) => of_scenario(arguments, file)?,
        None => of_options(arguments)?,
    };
    let capture = arguments
        .pcap
        .as_ref()
        .map(|path| Capture { path: path.clone(), whole: arguments.pcap_whole });
    let capture_file = arguments.pcap.iter().filter(|path| !path.is_dir());
    let slash = |path: &&PathBuf| !path.as_os_str().as_encoded_bytes().ends_with(b"/");
    arguments.log.iter().chain(capture_file.filter(slash)).try_for_each(|path| writable(path))?;
    let user = User::current();
    let is_mapped = acquire_privileges().context(NEEDS_PRIVILEGES)?;
    let midspan = this_program()?;
    let mut shell = Shell::open(Plan {
        spec: &chosen.spec,
        variant: chosen.variant,
        traces: &chosen.traces,
        seed: chosen.seed,
        scenario: chosen.scenario.as_ref(),
        title: &chosen.title,
        midspan: &midspan,
        user: is_mapped.then_some(user),
        as_root: arguments.root,
        servers: &arguments.servers,
        capture: capture.as_ref(),
        log: arguments.log.as_deref(),
    })?;
    if !arguments.quiet {
        for line in banner(&chosen, &shell) {
            eprintln!("midspan: {line}");
        }
        eprintln!(
            "midspan: ready after {} ms; on a second terminal: midspan lab enter server",
            begun.elapsed().as_millis()
        );
    }
    let status = shell.run(&program(&arguments.command));
    let ending = shell.close();
    match ending.links {
        Ok(_) if arguments.quiet => {}
        Ok(how) => eprintln!("midspan: links were punctual: {how}"),
        Err(why) => eprintln!("midspan: do not trust figures of this shell: {why}"),
    }
    for fault in ending.faults {
        eprintln!("midspan: {fault}");
    }
    Ok(ExitCode::from(status?))
}

/// What there is to know before the program starts.
fn banner(chosen: &Around, shell: &Shell<'_>) -> Vec<String> {
    let [ue, server] = [Host::Ue, Host::Server].map(|host| host.addresses()[0]);
    let mut lines = vec![
        format!(
            "on the UE ({ue}); the server is {server} ($MIDSPAN_SERVER), the internet is not there"
        ),
        format!("path: {}", chosen.title),
    ];
    let near = chosen.spec.path.access.base_rtt();
    lines.push(match shell.relay() {
        None => "no relay".to_owned(),
        Some(state) => {
            let steered = match state.by_bpf {
                true => "BPF",
                false => "nftables (BPF cannot be had here)",
            };
            let relay = &chosen.spec.relay;
            let is_named = relay.client_leg.congestion_control.is_some();
            let wanted = relay.client_control();
            let control = match state.own_control || is_named {
                true => format!("{wanted} towards the UE"),
                false => {
                    format!("the kernel's control towards the UE ({wanted} cannot be had here)")
                }
            };
            format!("relay {near} from the UE, steered by {steered}, {control}")
        }
    });
    if chosen.spec.assist.is_some() {
        lines.push("the scenario's NetAssist is not run here".to_owned());
    }
    for (command, ports) in shell.servers() {
        let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
        lines.push(match ports.is_empty() {
            true => format!("server `{command}` runs, but listens on nothing so far"),
            false => format!("server `{command}` listens on {}", ports.join(", ")),
        });
    }
    lines
}

fn of_options(arguments: &Arguments) -> Result<Around> {
    let down = quantity("--rate", arguments.rate.as_deref())?;
    let relay = arguments.relay.as_deref().filter(|relay| *relay != "none");
    let path = PathOptions {
        rtt: quantity("--rtt", arguments.rtt.as_deref())?.unwrap_or_default(),
        up: quantity("--rate-up", arguments.rate_up.as_deref())?.or(down),
        down,
        loss: quantity("--loss", arguments.loss.as_deref())?.unwrap_or_default(),
        queue: quantity("--queue", arguments.queue.as_deref())?,
        relay: quantity::<Span>("--relay", relay)?,
    };
    if path == PathOptions::default() {
        return Err(BadInput::because(
            "no path; give a scenario file, or options such as `--rtt 60ms --rate 50Mbit/s`",
        ));
    }
    Ok(Around {
        spec: path.spec().map_err(BadInput::because)?,
        variant: if path.relay.is_some() { Variant::Midspan } else { Variant::None },
        traces: Traces::new(),
        seed: arguments.seed.unwrap_or(1),
        scenario: None,
        title: path.describe(),
    })
}

fn of_scenario(arguments: &Arguments, file: &Path) -> Result<Around> {
    let name = file.display().to_string();
    let chosen = Chosen::of(&read_input(file)?, &name, &arguments.settings)?;
    let title = chosen.title();
    let Chosen { scenario, cell } = chosen;
    let refused = |what: &str| Err(BadInput::because(format!("{name}: {what}")));
    if cell.spec.cells.is_some() {
        return refused("a mobile network has many users; a shell has one UE");
    }
    let variant = arguments.variant.unwrap_or(Variant::None);
    if variant == Variant::Haproxy {
        return Err(BadInput::because(
            "--variant haproxy: it would take all connections to one port; give none or midspan",
        ));
    }
    let parent = || file.parent().unwrap_or(Path::new("")).to_owned();
    let directory = arguments.traces.clone().unwrap_or_else(parent);
    let traces = read_traces(&scenario, &directory)
        .map_err(|error| BadInput::because(format!("{name}: {error:#}")))?;
    let seed = arguments.seed.unwrap_or_else(|| scenario.run_seed(&cell, 0));
    Ok(Around { spec: cell.spec, variant, traces, seed, scenario: Some(scenario), title })
}

/// Runs a program on a host of a running shell, and ends as it does.
pub(crate) fn enter(arguments: &Enter) -> Result<ExitCode> {
    let host = match arguments.host {
        HostName::Ue => Host::Ue,
        HostName::Mec => Host::Mec,
        HostName::Server => Host::Server,
    };
    let running = shell::list();
    let one = find(&running, arguments.shell)?;
    shell::enter(one, host, &program(&arguments.command), arguments.root).map(ExitCode::from)
}

fn find(running: &[Running], number: Option<u32>) -> Result<&Running> {
    let names = || {
        let names = running.iter().map(|one| format!("{} ({})", one.pid, one.title));
        names.collect::<Vec<_>>().join("; ")
    };
    match (running, number) {
        ([], _) => {
            Err(BadInput::because("you have no shell that runs; start one by `midspan lab shell`"))
        }
        ([one], None) => Ok(one),
        (_, None) => Err(BadInput::because(format!(
            "several shells run; choose one by `--shell NUMBER`: {}",
            names()
        ))),
        (_, Some(number)) => running.iter().find(|one| one.pid == number).ok_or_else(|| {
            BadInput::because(format!("--shell {number}: no such shell; there is {}", names()))
        }),
    }
}

/// The first process of a program's, within the shell.
pub(crate) fn hold(arguments: &Hold) -> Result<ExitCode> {
    shell::hold(&arguments.command, arguments.user).map(ExitCode::from)
}

fn program(command: &[OsString]) -> Vec<OsString> {
    if command.is_empty() { shell::users_shell() } else { command.to_vec() }
}

/// Whether a file that the user named can be written.
fn writable(path: &Path) -> Result<()> {
    match OpenOptions::new().create(true).append(true).open(path) {
        Ok(_) => Ok(()),
        Err(error) => Err(BadInput::because(format!("cannot write {}: {error}", path.display()))),
    }
}

fn user(text: &str) -> Result<User, String> {
    let numbers = text
        .split_once(':')
        .and_then(|(uid, gid)| Some(User { uid: uid.parse().ok()?, gid: gid.parse().ok()? }));
    numbers.ok_or_else(|| "must be UID:GID".to_owned())
}
