//! What the links do meanwhile, as CSV.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use midspan_emu::Report;
use midspan_path::{Counters, Times};

use crate::topology::Topology;

/// How often there is a line for each link and direction.
const EVERY: Duration = Duration::from_millis(100);

const HEAD: &str =
    "time_s,link,direction,queue_bytes,packets_in,packets_out,bytes_out,drops,delay_ms";

/// A log that is being written.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    /// Its closing ends the thread.
    alive: Sender<()>,
    thread: JoinHandle<io::Result<()>>,
}

impl Log {
    /// Begins a file, which must be writable.
    pub(crate) fn start(path: &Path, topology: Arc<Topology>) -> Result<Log> {
        let mut file = File::create(path)
            .with_context(|| format!("cannot write the log {}", path.display()))?;
        let (alive, until) = channel();
        let thread = thread::Builder::new().name("log".into()).spawn(move || {
            writeln!(file, "{HEAD}")?;
            let begun = Instant::now();
            let mut lines = Lines::default();
            loop {
                let waited = until.recv_timeout(EVERY);
                let reports = topology.reports();
                let now = begun.elapsed();
                let links = std::iter::once(&reports.access).chain(&reports.wide);
                let text: String = links.map(|report| lines.of(now, report)).collect();
                file.write_all(text.as_bytes())?;
                if waited != Err(RecvTimeoutError::Timeout) {
                    return Ok(());
                }
            }
        })?;
        Ok(Log { path: path.to_owned(), alive, thread })
    }

    /// Writes a last line and ends. What went wrong, if something did.
    pub(crate) fn finish(self) -> Option<String> {
        drop(self.alive);
        let error = self.thread.join().expect("it does not panic").err()?;
        Some(format!("the log {} is not complete: {error}", self.path.display()))
    }
}

/// What the lines before told, by link and direction.
#[derive(Default)]
struct Lines(Vec<(String, Counters, Times)>);

impl Lines {
    fn of(&mut self, now: Duration, report: &Report) -> String {
        let up = (&report.up, &report.up_delays, report.up_waiting);
        let down = (&report.down, &report.down_delays, report.down_waiting);
        let mut text = String::new();
        for (direction, (counters, delays, waiting)) in [("up", up), ("down", down)] {
            let name = format!("{},{direction}", report.name);
            let known = self.0.iter().position(|(known, ..)| *known == name);
            let (before, delays_before) = match known.map(|index| self.0.swap_remove(index)) {
                Some((_, counters, delays)) => (counters, delays),
                None => (Counters::default(), Times::new()),
            };
            let passed = delays.since(&delays_before);
            let delay = match passed.count() {
                0 => String::new(),
                _ => format!("{:.3}", passed.mean().as_millis_f64()),
            };
            text += &format!(
                "{:.3},{name},{waiting},{},{},{},{},{delay}\n",
                now.as_secs_f64(),
                counters.packets_in - before.packets_in,
                counters.packets_out - before.packets_out,
                counters.bytes_out - before.bytes_out,
                counters.packets_dropped() - before.packets_dropped(),
            );
            self.0.push((name, counters.clone(), delays.clone()));
        }
        text
    }
}
