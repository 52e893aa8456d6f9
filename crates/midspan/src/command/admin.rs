//! What a running relay, or what it has written, is asked and told, from the command line.

use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use midspan_observe::admin::{Answer, Counters, Flows, Order, Request, Status};
use midspan_relay::AdminConfig;

use super::columns::aligned;
use super::units::{age, bytes, rate};
use super::{BadInput, decisions, gain};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show how the running relay is
    Status(Asking),
    /// Show what the running relay has counted
    Counters(Asking),
    /// List open flows, those that move most first
    Flows {
        #[command(flatten)]
        asking: Asking,
        /// Which come first; rates are over each flow's life
        #[arg(long, value_enum, default_value_t = By::Rate)]
        by: By,
        /// How many to list, at most 1000
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        most: u16,
    },
    /// Show how often connections are split where, by what the running relay has learned
    Decisions {
        #[command(flatten)]
        asking: Asking,
        /// How many rows, those of which most is known first
        #[arg(long, value_name = "N", default_value_t = 20)]
        most: usize,
        /// Only those that are not simply split: harmed, pinned, or not known yet
        #[arg(long)]
        unusual: bool,
    },
    /// Say how much faster splitting is, by the flow logs of a relay with a holdout
    Gain(gain::Arguments),
    /// Have the relay take no new connections, and end with its last flow or after drain_timeout
    Drain(Asking),
    /// Have the relay read its configuration again, and open its flow log anew
    Reload(Asking),
    /// Set how much the relay logs, as MIDSPAN_LOG does
    Log {
        #[command(flatten)]
        asking: Asking,
        /// Such as info, or midspan_relay=debug
        level: String,
    },
}

/// Where a relay is asked.
#[derive(Debug, Clone, Args)]
pub(crate) struct Socket {
    /// The relay's admin socket
    #[arg(long = "socket", value_name = "PATH", default_value = AdminConfig::SOCKET)]
    pub(crate) path: PathBuf,
}

/// Where a relay is asked, and how its answer is printed.
#[derive(Debug, Clone, Args)]
pub(crate) struct Asking {
    #[command(flatten)]
    socket: Socket,
    /// Print the answer as the relay gave it: a line of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    Rate,
    Bytes,
    Age,
}

impl From<By> for Order {
    fn from(by: By) -> Order {
        match by {
            By::Rate => Order::Rate,
            By::Bytes => Order::Bytes,
            By::Age => Order::Age,
        }
    }
}

/// Asks, and prints the answer.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let mut rows = decisions::Rows::default();
    let (asking, request) = match command {
        Command::Status(asking) => (asking, Request::Status),
        Command::Counters(asking) => (asking, Request::Counters),
        Command::Flows { asking, by, most } => {
            (asking, Request::Flows { order: by.into(), most: most.into() })
        }
        Command::Decisions { asking, most, unusual } => {
            rows = decisions::Rows { most, unusual };
            (asking, Request::Decisions)
        }
        Command::Gain(arguments) => return gain::run(&arguments),
        Command::Drain(asking) => (asking, Request::Drain),
        Command::Reload(asking) => (asking, Request::Reload),
        Command::Log { asking, level } => (asking, Request::Log { level }),
    };
    let answer = Connection::open(&asking.socket.path, PATIENCE)?.ask(&request);
    let answer = answer.map_err(|error| match request {
        // What it refuses then is in the file, or in the argument.
        Request::Reload | Request::Log { .. } if error.is::<Refused>() => BadInput::because(error),
        _ => error,
    })?;
    if asking.json {
        println!("{}", serde_json::to_string(&answer)?);
    } else {
        print!("{}", text(&answer, rows));
    }
    Ok(ExitCode::SUCCESS)
}

/// The relay has answered that it does not, and why.
#[derive(Debug)]
pub(crate) struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// A connection to a relay's admin socket.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    /// Connects; the relay may take so long to answer.
    pub(crate) fn open(socket: &Path, patience: Duration) -> Result<Connection> {
        let stream = UnixStream::connect(socket).with_context(|| {
            format!(
                "no relay answers at {} (is it running, with an [admin] table? --socket names another)",
                socket.display()
            )
        })?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Connection { stream: BufReader::new(stream) })
    }

    /// Asks. A refusal is an error.
    pub(crate) fn ask(&mut self, request: &Request) -> Result<Answer> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).context("the relay is gone")?;
        let mut answer = String::new();
        self.stream.read_line(&mut answer).context("the relay does not answer")?;
        match serde_json::from_str(&answer) {
            Ok(Answer::Error(said)) => Err(Refused(said).into()),
            Ok(answer) => Ok(answer),
            Err(_) if answer.is_empty() => bail!("the relay is gone"),
            Err(error) => {
                bail!("the relay's answer is not understood, is it of another version? ({error})")
            }
        }
    }
}

fn text(answer: &Answer, rows: decisions::Rows) -> String {
    match answer {
        Answer::Status(status) => status_text(status),
        Answer::Counters(counters) => counters_text(counters),
        Answer::Flows(flows) => flows_text(flows),
        Answer::Decisions(decisions) => decisions::text(decisions, rows),
        Answer::Done(said) | Answer::Error(said) => format!("{said}\n"),
    }
}

fn status_text(status: &Status) -> String {
    let oldest = status.heartbeat_age_s.iter().copied().fold(0.0, f64::max);
    format!(
        "midspan {} (process {}), {}, for {}\nsteered by  {}\nworkers     {}, last heard of at most {} ago\n\
         flows       {} of {}\nbuffered    {}\n",
        status.version,
        status.pid,
        status.phase,
        age(status.uptime_s),
        status.steered_by,
        status.heartbeat_age_s.len(),
        age(oldest),
        status.flows,
        status.flow_limit,
        bytes(status.buffered as f64),
    )
}

fn counters_text(counters: &Counters) -> String {
    let table = |title: &str, counts: &std::collections::BTreeMap<String, u64>| {
        let width = counts.keys().map(String::len).max().unwrap_or(0);
        let rows = counts.iter().map(|(name, count)| format!("{name:width$}  {count}\n"));
        format!("{title}\n{}", rows.collect::<String>())
    };
    let verdicts = counters.verdicts.as_ref().map(|verdicts| table("\nVerdicts", verdicts));
    table("Counters", &counters.counters) + &verdicts.unwrap_or_default()
}

fn flows_text(flows: &Flows) -> String {
    let rows: Vec<_> = flows.flows.iter().map(row).collect();
    format!("{}{} of {} open flows\n", table(&rows), rows.len(), flows.open)
}

/// A table of flows, with their headings.
pub(crate) fn table(flows: &[[String; HEADINGS.len()]]) -> String {
    let rows: Vec<_> =
        std::iter::once(HEADINGS.map(str::to_owned)).chain(flows.iter().cloned()).collect();
    aligned(&rows, |at| at < 2)
}

/// What [`row`] has.
pub(crate) const HEADINGS: [&str; 10] = [
    "client",
    "server",
    "age",
    "up/s",
    "down/s",
    "moved",
    "RTT client",
    "RTT server",
    "resent client",
    "resent server",
];

/// A round-trip time.
pub(crate) fn millis(millis: f64) -> String {
    if millis < 10.0 { format!("{millis:.2} ms") } else { format!("{millis:.1} ms") }
}

/// A flow's cells.
pub(crate) fn row(flow: &midspan_observe::admin::Flow) -> [String; HEADINGS.len()] {
    let rtt = |leg: &Option<midspan_observe::LegStats>| {
        let rtt = leg.map(|leg| leg.rtt_us).filter(|&rtt| rtt > 0);
        rtt.map_or_else(|| "-".into(), |rtt| millis(f64::from(rtt) / 1e3))
    };
    let again = |leg: &Option<midspan_observe::LegStats>| {
        let share = leg.and_then(|leg| leg.retransmitted_ppm());
        share.map_or_else(|| "-".into(), |ppm| format!("{:.2} %", ppm as f64 / 1e4))
    };
    [
        flow.client.to_string(),
        flow.server.to_string(),
        age(flow.age_s),
        rate(flow.rate_up),
        rate(flow.rate_down),
        bytes((flow.bytes_up + flow.bytes_down) as f64),
        rtt(&flow.client_leg),
        rtt(&flow.server_leg),
        again(&flow.client_leg),
        again(&flow.server_leg),
    ]
}
