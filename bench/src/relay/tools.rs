//! Load by public tools, as they are without further settings: iperf3, wrk, h2load; and what answers
//! them, nginx and iperf3.

use std::fs;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use midspan_sys::process::{self, die_with_parent};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::place::Place;
use super::world::{self, World};

const WEB: &str = include_str!("../../peers/web.conf");
/// How long a server may take to be there, and a tool longer than it was told.
const PATIENCE: Duration = Duration::from_secs(10);

/// What answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    /// `iperf3 --server`.
    Iperf,
    /// nginx, which answers with a few bytes.
    Web,
    /// The same by HTTP/2 without TLS.
    Web2,
}

/// A service, until it is dropped.
pub(super) struct Server {
    child: Child,
    _directory: TempDir,
}

impl Server {
    pub(super) fn start(world: &World, place: Place, service: Service) -> Result<Server> {
        let directory = tempfile::tempdir()?;
        let at = world::service();
        let mut command = match service {
            Service::Iperf => {
                let mut command = process::command("iperf3");
                command.arg("--server").arg("--port").arg(at.port().to_string());
                command
            }
            Service::Web | Service::Web2 => {
                let path = directory.path().join("web.conf");
                // By default nginx closes a connection after a thousand, on each of which h2load gives up.
                let (protocol, requests) = match service {
                    Service::Web2 => ("http2", "1000000000"),
                    _ => ("", "1000"),
                };
                let text = WEB
                    .replace("@LISTEN@", &at.to_string())
                    .replace("@PROTOCOL@", protocol)
                    .replace("@REQUESTS@", requests)
                    .replace("@WORKERS@", &place.ends()?.len().to_string())
                    .replace("@DIRECTORY@", &directory.path().display().to_string());
                fs::write(&path, text)?;
                let mut command = process::command("nginx");
                command.arg("-p").arg(directory.path()).arg("-c").arg(&path);
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        die_with_parent(process::in_session_of_its_own(world.server.apply(&mut command)));
        let child = place.of_ends(|| command.spawn())?;
        let mut server = Server {
            child: child.with_context(|| format!("cannot start {service:?}"))?,
            _directory: directory,
        };
        let deadline = Instant::now() + PATIENCE;
        while !world::is_listening(&world.server, at.port())? {
            if let Some(status) = server.child.try_wait()? {
                bail!("the server of {service:?} ended: {status}");
            }
            if Instant::now() >= deadline {
                bail!("the server of {service:?} was not ready in time");
            }
            sleep(Duration::from_millis(5));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // nginx's master ends its workers on SIGTERM only.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(2);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a tool measured.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    /// Bytes, or requests, a second.
    pub(super) rate: f64,
    /// All of them, the first ones too.
    pub(super) all: f64,
    /// Time to the answer at its median and at its slowest hundredth, in microseconds, where the tool says.
    pub(super) latency: Option<[f64; 2]>,
}

/// Downloads by `flows` connections of one iperf3.
pub(super) fn iperf(
    world: &World,
    place: Place,
    to: SocketAddr,
    flows: usize,
    time: Duration,
) -> Result<Measured> {
    let (host, port) = (to.ip().to_string(), to.port().to_string());
    let (flows, seconds) = (flows.to_string(), seconds(time).to_string());
    let arguments = [
        "--client",
        &host,
        "--port",
        &port,
        "--reverse",
        "--json",
        "--parallel",
        &flows,
        "--time",
        &seconds,
    ];
    let said: Value = serde_json::from_str(&run(world, place, "iperf3", &arguments, time)?)?;
    if let Some(error) = said["error"].as_str() {
        bail!("iperf3: {error}");
    }
    let sum = &said["end"]["sum_received"];
    let value = |name: &str| sum[name].as_f64().with_context(|| format!("iperf3 says no {name}"));
    Ok(Measured { rate: value("bits_per_second")? / 8.0, all: value("bytes")?, latency: None })
}

/// Requests by wrk on so many connections; each on a connection of its own unless they are `kept`.
pub(super) fn wrk(
    world: &World,
    place: Place,
    to: SocketAddr,
    connections: usize,
    kept: bool,
    time: Duration,
) -> Result<Measured> {
    let (url, length) = (format!("http://{to}/"), format!("{}s", seconds(time)));
    let count = connections.to_string();
    let mut arguments = vec!["--connections", &count, "--duration", &length, "--latency"];
    if !kept {
        arguments.extend(["--header", "Connection: close"]);
    }
    arguments.push(&url);
    wrk_said(&run(world, place, "wrk", &arguments, time)?)
}

/// Requests by h2load, ten at a time on each connection.
pub(super) fn h2load(
    world: &World,
    place: Place,
    to: SocketAddr,
    connections: usize,
    time: Duration,
) -> Result<Measured> {
    let (url, length) = (format!("http://{to}/"), seconds(time).to_string());
    let count = connections.to_string();
    let arguments =
        ["--clients", &count, "--max-concurrent-streams", "10", "--duration", &length, &url];
    h2load_said(&run(world, place, "h2load", &arguments, time)?)
}

/// Whole seconds, as the tools take them.
fn seconds(time: Duration) -> u64 {
    time.as_secs().max(1)
}

fn run(
    world: &World,
    place: Place,
    tool: &str,
    arguments: &[&str],
    time: Duration,
) -> Result<String> {
    let mut command: Command = process::command("timeout");
    command
        .arg((seconds(time) + PATIENCE.as_secs()).to_string())
        .arg(tool)
        .args(arguments)
        .stdin(Stdio::null());
    die_with_parent(process::in_session_of_its_own(world.client.apply(&mut command)));
    let output =
        place.of_ends(|| command.output())?.with_context(|| format!("cannot run {tool}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned() + &said;
        bail!("{tool} ended with {}: {}", output.status, error.trim().replace('\n', " | "));
    }
    Ok(said)
}

fn wrk_said(said: &str) -> Result<Measured> {
    // Lines are there only if something went wrong.
    for wrong in ["Socket errors:", "Non-2xx"] {
        if let Some(line) = line_with(said, wrong) {
            bail!("wrk: {}", line.trim());
        }
    }
    let number = |line: Option<&str>, place: usize| {
        let word = line.and_then(|line| line.split_whitespace().nth(place));
        word.and_then(|word| word.parse::<f64>().ok()).context("wrk says something else")
    };
    let latency = |share: &str| {
        // Shares of another kind stand in other lines, not at their beginning.
        let mut lines = said.lines().map(str::split_whitespace);
        let line = lines.find_map(|mut words| (words.next() == Some(share)).then_some(words));
        let word = line.and_then(|mut words| words.next());
        word.and_then(microseconds).context("wrk says no latency")
    };
    Ok(Measured {
        rate: number(line_with(said, "Requests/sec:"), 1)?,
        all: number(line_with(said, "requests in"), 0)?,
        latency: Some([latency("50%")?, latency("99%")?]),
    })
}

fn h2load_said(said: &str) -> Result<Measured> {
    let finished = line_with(said, "finished in").context("h2load did not finish")?;
    let rate = finished.split(", ").find_map(|part| part.strip_suffix(" req/s"));
    let counts = line_with(said, "requests:").context("h2load counts no requests")?;
    let count = |name: &str| {
        let part = counts.split([',', ':']).find_map(|part| part.trim().strip_suffix(name));
        part.and_then(|number| number.trim().parse::<f64>().ok())
            .with_context(|| format!("h2load says no {name}"))
    };
    if count(" failed")? > 0.0 || count(" errored")? > 0.0 {
        bail!("h2load: {}", counts.trim());
    }
    Ok(Measured {
        rate: rate.and_then(|rate| rate.parse().ok()).context("h2load says no rate")?,
        all: count(" succeeded")?,
        latency: None,
    })
}

fn line_with<'a>(said: &'a str, word: &str) -> Option<&'a str> {
    said.lines().find(|line| line.contains(word))
}

/// As wrk writes them: 12.34us, 1.23ms, 1.23s.
fn microseconds(text: &str) -> Option<f64> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    let (unit, factor) = units.iter().find(|(unit, _)| text.ends_with(unit))?;
    Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_says_is_read() {
        let said = "Running 2s test @ http://10.82.0.2:5001/\n  2 threads and 64 connections\n  \
            Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency     1.60ms  2.63ms  41.00ms   96.99%\n    \
            Req/Sec    31.31k     4.05k   40.10k    72.50%\n  Latency Distribution\n     \
            50%    1.50ms\n     75%    2.00ms\n     90%    2.50ms\n     99%  812.00us\n  123456 requests in 2.10s, 20.00MB read\n\
            Requests/sec:  58788.57\nTransfer/sec:      9.52MB\n";
        let measured = wrk_said(said).unwrap();
        assert_eq!((measured.rate, measured.all), (58_788.57, 123_456.0));
        assert_eq!(measured.latency, Some([1_500.0, 812.0]));
        let wrong = said.replace(
            "Requests/sec",
            "  Socket errors: connect 0, read 3, write 0, timeout 0\nRequests/sec",
        );
        assert!(wrk_said(&wrong).unwrap_err().to_string().contains("read 3"));
        assert!(wrk_said("").is_err());
    }

    #[test]
    fn what_h2load_says_is_read() {
        let said = "finished in 2.01s, 41234.50 req/s, 1.50MB/s\n\
            requests: 82469 total, 83109 started, 82469 done, 82469 succeeded, 0 failed, 0 errored, 0 timeout\n";
        let measured = h2load_said(said).unwrap();
        assert_eq!((measured.rate, measured.all), (41_234.5, 82_469.0));
        assert!(h2load_said(&said.replace("0 failed", "2 failed")).is_err());
        assert!(h2load_said("").is_err());
    }
}
