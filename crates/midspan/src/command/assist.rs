//! `midspan assist`: NetAssist, its agents, and what belongs to them.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use midspan_assist::config::{AgentConfig, DaemonConfig, load_policy};
use midspan_assist::control::{self, Request};
use midspan_assist::daemon::Error;
use midspan_assist::tls::DevSet;
use midspan_assist::{agent, daemon};
use midspan_units::Span;
use serde_json::Value;

use super::{BadInput, log_to_stderr};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Tell senders what the radio network knows, until stopped
    Serve(ConfigArguments),
    /// Keep this host registered and its congestion controls informed, until stopped
    Agent(ConfigArguments),
    /// Make an authority and certificates for development
    Certs(CertsArguments),
    /// Show what a running daemon or agent knows
    Top(TopArguments),
    /// Say which address a base station's RNTI is
    Map(MapArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ConfigArguments {
    /// Configuration file (TOML; docs/reference/assist.md has every key)
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and the files it names, print it in full, and end
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CertsArguments {
    /// Folder to make them in; nothing that is there is overwritten
    #[arg(long, value_name = "FOLDER", default_value = "certs")]
    folder: PathBuf,
    /// A host and the DNS names or IP addresses in its certificate, such as
    /// daemon=netassist.example,192.0.2.1; may be given several times
    #[arg(long = "host", value_name = "NAME=NAMES", value_parser = host, required = true)]
    hosts: Vec<(String, Vec<String>)>,
}

#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// The daemon's or agent's control socket
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    /// Show it once, and not every second until stopped
    #[arg(long)]
    once: bool,
    /// Show it once, as JSON
    #[arg(long)]
    json: bool,
    /// Print what there is to measure once, as OpenMetrics text
    #[arg(long, conflicts_with = "json")]
    metrics: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MapArguments {
    /// The daemon's control socket
    #[arg(value_name = "SOCKET")]
    socket: PathBuf,
    /// The source's name
    source: String,
    /// As the base station calls the UE, such as 70 or 0x4601
    #[arg(value_parser = rnti)]
    rnti: u32,
    /// Its address; none takes back what was said
    address: Option<IpAddr>,
}

/// Does what was asked for.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Serve(arguments) => {
            let config = DaemonConfig::load(&arguments.config).map_err(BadInput::because)?;
            if arguments.check {
                load_policy(&config.policy).map_err(BadInput::because)?;
                config.identity.load().map_err(BadInput::because)?;
                print!("{}", toml::to_string(&config)?);
                return Ok(ExitCode::SUCCESS);
            }
            log_to_stderr()?;
            daemon::run(config).map_err(blame)?;
        }
        Command::Agent(arguments) => {
            let config = AgentConfig::load(&arguments.config).map_err(BadInput::because)?;
            if arguments.check {
                config.identity.load().map_err(BadInput::because)?;
                print!("{}", toml::to_string(&config)?);
                return Ok(ExitCode::SUCCESS);
            }
            log_to_stderr()?;
            agent::run(config).map_err(blame)?;
        }
        Command::Certs(arguments) => certs(&arguments)?,
        Command::Top(arguments) => top(&arguments)?,
        Command::Map(arguments) => map(arguments)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn blame(error: Error) -> anyhow::Error {
    if error.is_input() { BadInput::because(error) } else { error.into() }
}

fn certs(arguments: &CertsArguments) -> Result<()> {
    let hosts: Vec<(&str, Vec<&str>)> = arguments
        .hosts
        .iter()
        .map(|(host, names)| (host.as_str(), names.iter().map(String::as_str).collect()))
        .collect();
    let written = DevSet::create()?
        .write(&arguments.folder, &hosts)
        .map_err(|error| BadInput::because(format!("certificates: {error}")))?;
    for path in written {
        println!("{}", path.display());
    }
    Ok(())
}

fn map(arguments: MapArguments) -> Result<()> {
    let MapArguments { socket, source, rnti, address } = arguments;
    let request = match address {
        Some(ue) => Request::Map { source, rnti, ue },
        None => Request::Unmap { source, rnti },
    };
    ask(&socket, &request).map(drop)
}

fn top(arguments: &TopArguments) -> Result<()> {
    loop {
        let state = ask(&arguments.socket, &Request::State)?;
        if arguments.json {
            println!("{}", serde_json::to_string_pretty(&state)?);
            return Ok(());
        }
        let is_daemon = state.get("sources").is_some();
        if arguments.metrics {
            print!("{}", if is_daemon { daemon_metrics(&state) } else { agent_metrics(&state) });
            return Ok(());
        }
        let text = if is_daemon { daemon_text(&state) } else { agent_text(&state) };
        if arguments.once {
            print!("{text}");
            return Ok(());
        }
        // From the top left, over what was there.
        print!("\x1b[H\x1b[2J{text}");
        std::io::Write::flush(&mut std::io::stdout())?;
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn ask(socket: &Path, request: &Request) -> Result<Value> {
    control::ask(socket, request).map_err(|error| anyhow!("{}: {error}", socket.display()))
}

fn daemon_text(state: &Value) -> String {
    let mut text = String::new();
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let _ = writeln!(
        text,
        "{} ({}): {} sent, {} refused, late by {} us (median), {} us (99 %)\n",
        string(&state["listen"]),
        string(&state["basis"]),
        number(&state["counts"]["sent"]),
        state["refused"].as_object().map_or(0, |refused| refused.values().map(number).sum::<u64>())
            + number(&state["counts"]["refused_not_allowed"])
            + number(&state["counts"]["refused_too_many"]),
        number(&state["late_us"][0]),
        number(&state["late_us"][1]),
    );
    let _ = writeln!(
        text,
        "{:20} {:14} {:>10} {:>10} {:>9} {:>10}  last fault",
        "source", "worth", "readings", "unmapped", "clipped", "age"
    );
    for source in list(&state["sources"]) {
        let _ = writeln!(
            text,
            "{:20} {:14} {:>10} {:>10} {:>9} {:>10}  {}",
            string(&source["name"]),
            string(&source["verdict"]).replace('_', " "),
            number(&source["readings"]),
            number(&source["unmapped"]),
            number(&source["implausible"]),
            time(&source["age"]),
            string(&source["last_fault"]),
        );
    }
    let _ = writeln!(
        text,
        "\n{:20} {:>14} {:>10} {:>10} {:>10} {:>6}  known from, who asks",
        "UE", "capacity", "minRTT", "queue", "age", "flows"
    );
    for ue in list(&state["ues"]) {
        let sessions = list(&ue["sessions"]).iter().map(|id| who(state, id)).collect::<Vec<_>>();
        let _ = writeln!(
            text,
            "{:20} {:>14} {:>10} {:>10} {:>10} {:>6}  {}, {}",
            string(&ue["ue"]),
            mbps(&ue["bandwidth_bps"]),
            time(&ue["min_rtt"]),
            ue["backlog"].as_u64().map_or("-".into(), |bytes| format!("{bytes} B")),
            time(&ue["age"]),
            ue["flows"].as_u64().map_or("-".into(), |flows| flows.to_string()),
            string(&ue["evidence"]),
            sessions.join(" "),
        );
    }
    text
}

fn agent_text(state: &Value) -> String {
    let mut text = String::new();
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let _ = writeln!(
        text,
        "{:28} {:>6} {:>10} {:>9} {:>9}  last fault",
        "daemon", "up", "datagrams", "refused", "RTT"
    );
    for daemon in list(&state["daemons"]) {
        let tally = daemon["tally"].as_object();
        let refused = tally
            .into_iter()
            .flatten()
            .filter(|(name, _)| !matches!(name.as_str(), "accepted" | "missing"));
        let _ = writeln!(
            text,
            "{:28} {:>6} {:>10} {:>9} {:>6} us  {}",
            string(&daemon["daemon"]),
            if daemon["connected"] == true { "yes" } else { "no" },
            number(&daemon["tally"]["accepted"]),
            refused.filter_map(|(_, count)| count.as_u64()).sum::<u64>(),
            number(&daemon["rtt_us"]),
            string(&daemon["last_fault"]),
        );
    }
    let _ = writeln!(
        text,
        "\n{:20} {:>14} {:>12} {:>6} {:>12} {:>6} {:>9}",
        "UE", "capacity", "minRTT", "flows", "age", "legs", "fallback"
    );
    let legs_to = |ue: &Value| list(&state["legs"]).iter().find(|legs| legs["ue"] == *ue);
    for ue in list(&state["ues"]) {
        let _ = writeln!(
            text,
            "{:20} {:>14} {:>12} {:>6} {:>12} {:>6} {:>9}{}",
            string(&ue["ue"]),
            mbps(&ue["bandwidth_bps"]),
            time(&ue["min_rtt"]),
            ue["flows"].to_string(),
            time(&ue["age"]),
            legs_to(&ue["ue"]).map_or(0, |legs| number(&legs["legs"])),
            legs_to(&ue["ue"]).map_or("-".into(), fallback),
            if ue["timed_out"] == true { "  timed out" } else { "" },
        );
    }
    let untold = |ue: &Value| list(&state["ues"]).iter().all(|told| told["ue"] != *ue);
    for legs in list(&state["legs"]).iter().filter(|legs| untold(&legs["ue"])) {
        let _ = writeln!(
            text,
            "{:20} {:>14} {:>12} {:>6} {:>12} {:>6} {:>9}  never told",
            string(&legs["ue"]),
            "-",
            "-",
            "-",
            "-",
            number(&legs["legs"]),
            fallback(legs),
        );
    }
    let _ = writeln!(
        text,
        "\nlegs that go by feedback: {} of the time without, {} times for a second",
        fallback(state),
        number(&state["alarms"]),
    );
    text
}

/// What share of the time that they were watched legs had no feedback.
fn fallback(of: &Value) -> String {
    let (watched, without) = (seconds(&of["watched"]), seconds(&of["fallback"]));
    if watched > 0.0 { format!("{:.1} %", 100.0 * without / watched) } else { "-".into() }
}

/// OpenMetrics text, family by family.
#[derive(Default)]
struct Metrics(String);

impl Metrics {
    fn family<T: std::fmt::Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, T)>,
    ) {
        let _ = writeln!(self.0, "# TYPE {name} {kind}\n# HELP {name} {help}");
        let total = if kind == "counter" { "_total" } else { "" };
        for (labels, value) in samples {
            let _ = writeln!(self.0, "{name}{total}{labels} {value}");
        }
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, kind, help, [(String::new(), value)]);
    }

    fn end(mut self) -> String {
        self.0.push_str("# EOF\n");
        self.0
    }
}

fn label(name: &str, value: &Value) -> String {
    format!("{{{name}={:?}}}", string(value))
}

fn seconds(value: &Value) -> f64 {
    let span = value.as_str().and_then(|text| text.parse::<Span>().ok());
    span.map_or(0.0, |span| span.as_millis_f64() / 1e3)
}

fn agent_metrics(state: &Value) -> String {
    let mut metrics = Metrics::default();
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let ages = list(&state["ues"]).iter().map(|ue| seconds(&ue["age"]));
    metrics.one(
        "midspan_assist_feedback_age_seconds",
        "gauge",
        "age of the oldest measurement that the legs of a UE go by",
        ages.fold(0.0, f64::max),
    );
    let legs = list(&state["legs"]);
    metrics.one(
        "midspan_assist_legs",
        "gauge",
        "legs that go by feedback",
        legs.iter().map(|legs| number(&legs["legs"])).sum::<u64>(),
    );
    let silent = legs.iter().filter(|legs| seconds(&legs["silent"]) >= 1.0);
    metrics.one(
        "midspan_assist_legs_silent",
        "gauge",
        "legs that go by feedback and have had none for a second",
        silent.map(|legs| number(&legs["legs"])).sum::<u64>(),
    );
    metrics.one(
        "midspan_assist_legs_watched_seconds",
        "counter",
        "time that UEs had legs that go by feedback",
        seconds(&state["watched"]),
    );
    metrics.one(
        "midspan_assist_legs_fallback_seconds",
        "counter",
        "time of that in which no feedback held",
        seconds(&state["fallback"]),
    );
    metrics.one(
        "midspan_assist_alarms",
        "counter",
        "times that a UE's legs had no feedback for a second",
        number(&state["alarms"]),
    );
    let daemons = list(&state["daemons"]).iter();
    metrics.family(
        "midspan_assist_connected",
        "gauge",
        "whether there is a connection to the daemon",
        daemons.map(|daemon| {
            (label("daemon", &daemon["daemon"]), u8::from(daemon["connected"] == true))
        }),
    );
    metrics.one(
        "midspan_assist_write_errors",
        "counter",
        "entries that could not be left for the congestion controls",
        number(&state["write_errors"]),
    );
    metrics.end()
}

fn daemon_metrics(state: &Value) -> String {
    let mut metrics = Metrics::default();
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let sources = || list(&state["sources"]).iter();
    let name = |source: &Value| label("source", &source["name"]);
    metrics.family(
        "midspan_assist_source_age_seconds",
        "gauge",
        "age of a source's newest reading",
        sources().map(|source| (name(source), seconds(&source["age"]))),
    );
    metrics.family(
        "midspan_assist_source_readings",
        "counter",
        "readings of a source",
        sources().map(|source| (name(source), number(&source["readings"]))),
    );
    metrics.family(
        "midspan_assist_source_believed",
        "gauge",
        "whether a source is believed",
        sources().map(|source| (name(source), u8::from(source["verdict"] == "believed"))),
    );
    metrics.one(
        "midspan_assist_feedback_sent",
        "counter",
        "datagrams of feedback",
        number(&state["counts"]["sent"]),
    );
    metrics.one(
        "midspan_assist_feedback_stale",
        "counter",
        "times that a registration found its UE's measurement too old",
        number(&state["counts"]["stale"]),
    );
    metrics.one(
        "midspan_assist_late_seconds",
        "gauge",
        "99th percentile of how late feedback goes out, in the last minute",
        number(&state["late_us"][1]) as f64 / 1e6,
    );
    metrics.one(
        "midspan_assist_sessions",
        "gauge",
        "connections of senders and UEs",
        list(&state["sessions"]).len(),
    );
    metrics.end()
}

fn who(state: &Value, id: &Value) -> String {
    let session = list(&state["sessions"]).iter().find(|session| session["id"] == *id);
    let name = session.and_then(|session| session["names"][0].as_str());
    name.map_or_else(|| id.to_string(), str::to_owned)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or("-")
}

/// A time to a tenth of a millisecond.
fn time(value: &Value) -> String {
    let span = value.as_str().and_then(|text| text.parse::<Span>().ok());
    span.map_or("-".into(), |span| format!("{:.1} ms", span.as_millis_f64()))
}

fn mbps(bits: &Value) -> String {
    bits.as_u64().map_or("-".into(), |bits| format!("{:.2} Mbit/s", bits as f64 / 1e6))
}

fn host(text: &str) -> Result<(String, Vec<String>), String> {
    let wanted = "must be NAME=NAMES, such as daemon=netassist.example,192.0.2.1";
    let (name, names) = text.split_once('=').ok_or(wanted)?;
    let file_name =
        !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "-_.".contains(c));
    let names: Vec<String> = names.split(',').map(str::to_owned).collect();
    if !file_name || names.iter().any(String::is_empty) {
        return Err(wanted.into());
    }
    Ok((name.to_owned(), names))
}

fn rnti(text: &str) -> Result<u32, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "must be a number such as 70 or 0x4601".into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_an_agent_knows_stands_in_columns() {
        let state = json!({
            "daemons": [{
                "daemon": "127.0.0.1:49460",
                "connected": true,
                "tally": { "accepted": 55, "missing": 1, "replayed": 2 },
                "rtt_us": 155,
            }],
            "ues": [{
                "ue": "10.45.0.2",
                "bandwidth_bps": 12_000_000,
                "min_rtt": "11.155782 ms",
                "flows": 1.0,
                "age": "1.542205283 s",
                "timed_out": true,
            }],
            "legs": [
                { "ue": "10.45.0.2", "legs": 3, "watched": "10 s", "fallback": "1 s", "silent": "1.2 s" },
                { "ue": "10.45.0.3", "legs": 1, "watched": "2 s", "fallback": "2 s", "silent": "0 s" },
            ],
            "watched": "12 s",
            "fallback": "3 s",
            "alarms": 2,
        });
        let expected = "\
daemon                           up  datagrams   refused       RTT  last fault
127.0.0.1:49460                 yes         55         2    155 us  -

UE                         capacity       minRTT  flows          age   legs  fallback
10.45.0.2              12.00 Mbit/s      11.2 ms    1.0    1542.2 ms      3    10.0 %  timed out
10.45.0.3                         -            -      -            -      1   100.0 %  never told

legs that go by feedback: 25.0 % of the time without, 2 times for a second
";
        assert_eq!(agent_text(&state), expected);
        let metrics = agent_metrics(&state);
        let has = |line: &str| assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
        has("# TYPE midspan_assist_legs_silent gauge");
        has("midspan_assist_legs_silent 3");
        has("midspan_assist_legs_fallback_seconds_total 3");
        has("midspan_assist_alarms_total 2");
        has("midspan_assist_connected{daemon=\"127.0.0.1:49460\"} 1");
        has("# EOF");
    }
}
