//! A scenario from its file to its report: what `midspan lab run` does.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
pub use midspan_batch::capture::Captures;
pub use midspan_batch::qlog::Qlogs;
pub use midspan_batch::read_traces;
use midspan_path::{ElementSpec, Traces};
use midspan_scenario::record::{Backend, Outcome, Record, Variant};
use midspan_scenario::{CellSpec, Scenario, Split, Workload, external_control};
use midspan_units::Span;

use crate::controls;
use crate::machine;
use crate::results::{Results, Sweep};
use crate::run::Runner;
use crate::simulation::{Externals, Simulation};
use crate::sweep::{self, PlannedRun, Selection};

/// What to run, and where to leave the results.
#[derive(Debug)]
pub struct Experiment<'a> {
    /// The scenario, or its short version.
    pub scenario: &'a Scenario,
    /// The text of its file, kept with the results.
    pub text: &'a str,
    /// What runs it.
    pub backend: Backend,
    /// The traces that its paths name; see [`read_traces`].
    pub traces: &'a Traces,
    /// The part of it that is asked for.
    pub selection: Selection,
    /// Results go into a folder of this one, named by the time.
    pub base: &'a Path,
    /// What to keep of packets, if anything, of the runs that are made.
    pub captures: Option<Captures>,
    /// What to keep of what simulated senders do, if anything, of the runs that are made.
    pub qlogs: Option<Qlogs>,
    /// Whether to begin anew even where a sweep was cut.
    pub fresh: bool,
    /// The command that asked for it, kept with the results.
    pub command: String,
    /// The program whose `relay` command is Midspan's relay.
    pub midspan: PathBuf,
}

impl Experiment<'_> {
    /// Runs what is missing. Every record is on disk before the next run starts, so that a sweep
    /// that is cut goes on where it stopped. See [`unfit`] first.
    ///
    /// # Errors
    /// When the selection holds nothing, results cannot be written, or a congestion control of ours that
    /// the scenario names cannot be loaded. A run that fails is no error here, but a record that
    /// says so.
    pub fn execute(mut self) -> Result<Results> {
        let without_haproxy = match self.backend {
            Backend::Live => machine::version("haproxy", "-v").is_none().then_some("not installed"),
            Backend::Sim => Some("not simulated"),
        };
        let has_cells = self.scenario.cells().iter().any(|cell| cell.spec.cells.is_some());
        let without_haproxy = without_haproxy.or(has_cells.then_some("not run behind cells"));
        if let Some(why) = without_haproxy {
            self.selection.unavailable.push(Variant::Haproxy);
            if self.scenario.variants.contains(&Variant::Haproxy) {
                eprintln!("haproxy is {why}: its runs are left out");
            }
        }
        if sweep::plan(self.scenario, &self.selection, &[]).is_empty() {
            bail!("the selection leaves nothing to run");
        }
        let mut results = Sweep {
            scenario: self.scenario,
            text: self.text,
            backend: self.backend,
            selection: &self.selection,
        }
        .folder(self.base, self.fresh, &self.command)?;
        let done = results.records().to_vec();
        let runs = sweep::plan(self.scenario, &self.selection, &done);
        let progress = Progress::new(runs.len(), done.len());
        match self.backend {
            Backend::Live => self.run_live(&runs, &progress, &mut results)?,
            Backend::Sim => self.simulate(&runs, &progress, &mut results)?,
        }
        progress.finish();
        Ok(results)
    }

    /// One run after the other: they share the machine's time.
    fn run_live(
        self,
        runs: &[PlannedRun<'_>],
        progress: &Progress,
        results: &mut Results,
    ) -> Result<()> {
        let controls = controls::hold(self.scenario)?;
        let runner = Runner {
            scenario: self.scenario,
            traces: self.traces,
            midspan: self.midspan,
            backend: midspan_emu::Backend::available(),
            feedback: controls.feedback.as_ref(),
        };
        for run in runs {
            progress.begin(run);
            let (record, missing) = runner.run_recorded(run, self.captures.as_ref());
            progress.end(run, &record);
            missing.iter().for_each(|what| progress.tell(run, what));
            results.add(record)?;
        }
        Ok(())
    }

    /// As many runs at a time as there are cores.
    fn simulate(
        &self,
        runs: &[PlannedRun<'_>],
        progress: &Progress,
        results: &mut Results,
    ) -> Result<()> {
        let simulation = Simulation {
            scenario: self.scenario,
            traces: self.traces,
            externals: &Externals::default(),
            captures: self.captures.as_ref(),
            qlogs: self.qlogs.as_ref(),
            within: None,
        };
        simulation.run_all(runs, |run, record| {
            progress.begin(run);
            progress.end(run, &record);
            results.add(record)
        })
    }
}

/// Why `backend` cannot run `scenario`, in one line, if so.
pub fn unfit(scenario: &Scenario, backend: Backend) -> Option<String> {
    if let Some(name) = scenario.cells().iter().find_map(|cell| external(&cell.spec)) {
        let what = format!("the element `{name}` is external");
        return Some(format!("{what}: only the Python package runs the scenario"));
    }
    if let Some(name) = scenario.controls().iter().find_map(|name| external_control(name)) {
        let what = format!("the congestion control `{name}` is external");
        return Some(format!("{what}: only the Python package runs the scenario"));
    }
    let is_live = backend == Backend::Live;
    let what = scenario.cells().iter().find_map(|cell| not_live(&cell.spec)).filter(|_| is_live)?;
    Some(format!("{what} only simulated: `--backend sim`"))
}

/// An element of a cell's path that is the caller's own, of which there are none here.
fn external(spec: &CellSpec) -> Option<&str> {
    let links = [&spec.path.access, &spec.path.wide];
    let elements = links.into_iter().flat_map(|link| link.up.iter().chain(&link.down));
    elements.into_iter().find_map(|element| match element {
        ElementSpec::External(external) => Some(&*external.name),
        _ => None,
    })
}

/// What of a cell of a sweep cannot be run live: of mobile networks those with relays at base stations; without one
/// there are no players, and curl has one connection for each page and one request on it.
fn not_live(spec: &CellSpec) -> Option<&'static str> {
    if let Some(cells) = &spec.cells {
        let others = cells.others.iter().map(|others| &others.workload);
        let greets = |workload: &Workload| matches!(workload, Workload::Bulk(bulk) if bulk.greeting.as_bytes() > 0);
        return match cells.split {
            Split::Enb | Split::Both => Some("relays at base stations are"),
            Split::Gateway if others.chain([&spec.workload]).any(greets) => {
                Some("greetings in cells are")
            }
            Split::Gateway => None,
        };
    }
    let page = match &spec.workload {
        Workload::Page(page) => page,
        Workload::Video(_) => return Some("videos are"),
        Workload::Bulk(_) | Workload::Transfer(_) => return None,
    };
    let servers: u32 = page.objects.iter().map(|objects| objects.servers).sum();
    match page {
        _ if servers > 0 => Some("pages of more servers than one are"),
        _ if page.connections > 1 => Some("pages over more connections than one are"),
        _ if page.pipelining > 1 => Some("pipelining is"),
        _ if page.lookup > Span::ZERO => Some("look-ups are"),
        _ => None,
    }
}

/// A bar where somebody watches, a line for each run elsewhere.
struct Progress {
    bar: ProgressBar,
    watched: bool,
}

impl Progress {
    fn new(runs: usize, done: usize) -> Progress {
        let watched = std::io::stderr().is_terminal();
        let style = ProgressStyle::with_template(
            "{elapsed_precise} {bar:24} {pos}/{len} runs, {eta} left  {msg}",
        )
        .expect("the template is right");
        let bar = if watched {
            ProgressBar::new((runs + done) as u64).with_style(style).with_position(done as u64)
        } else {
            ProgressBar::hidden()
        };
        bar.enable_steady_tick(Duration::from_millis(200));
        bar.reset_eta();
        Progress { bar, watched }
    }

    fn begin(&self, run: &PlannedRun<'_>) {
        self.bar.set_message(name(run));
    }

    fn end(&self, run: &PlannedRun<'_>, record: &Record) {
        self.bar.inc(1);
        let doubt = match &record.outcome {
            Outcome::Measured(_) => None,
            Outcome::Untrusted { reason, .. } => Some(format!("untrusted: {reason}")),
            Outcome::Failed { reason } => Some(format!("failed: {reason}")),
        };
        match doubt {
            Some(doubt) => self.tell(run, &doubt),
            None if self.watched => {}
            None => self.tell(run, "measured"),
        }
    }

    /// A line about a run.
    fn tell(&self, run: &PlannedRun<'_>, what: &str) {
        let line = format!("{}: {what}", name(run));
        match self.watched {
            true => self.bar.println(line),
            false => eprintln!("{line}"),
        }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn name(run: &PlannedRun<'_>) -> String {
    let labels: Vec<String> =
        run.cell.labels.iter().map(|(axis, label)| format!("{axis} {label}")).collect();
    let cell = if labels.is_empty() { String::new() } else { format!("{}, ", labels.join(", ")) };
    format!("{cell}{}, repetition {}", run.variant, run.repetition + 1)
}
