//! `midspan lab`: experiments over emulated paths.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use midspan_lab::experiment::{Captures, Experiment, Qlogs, read_traces, unfit};
use midspan_lab::export::{csv_files, parquet_files, png_files, svg_files};
use midspan_lab::recorded::{Kept, Recorded};
use midspan_lab::results::Results;
use midspan_lab::sweep::Selection;
use midspan_path::Traces;
use midspan_report::compare::{self, Compared};
use midspan_report::{Report, Terminal, beside};
use midspan_scenario::record::{Backend, Variant};
use midspan_scenario::summary::Summary;
use midspan_scenario::{Scenario, reference};

use super::{BadInput, acquire_privileges, papers, ray, read_input, recorded, serve, shell};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a scenario: table, records and an HTML report
    Run(Run),
    /// Check scenario files without running them
    Check {
        /// Scenario files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
    },
    /// Make table and HTML report anew from a results folder
    Report {
        /// Folder that `lab run` made
        #[arg(value_name = "DIR")]
        results: PathBuf,
    },
    /// Write the records of a results folder as tables with typed columns and their units, or its plots
    Export(Export),
    /// Hold results against reference curves, or simulated ones against live ones, cell by cell
    Compare {
        /// Folders that `lab run` made: with --reference of scenarios under scenarios/reference, with
        /// --with one of any scenario
        #[arg(required = true, value_name = "DIR")]
        results: Vec<PathBuf>,
        /// Reference curves (CSV)
        #[arg(long, value_name = "FILE")]
        reference: Option<PathBuf>,
        /// Folder of the same scenario, such as the live one of a simulated one
        #[arg(long, value_name = "DIR", conflicts_with_all = ["reference", "out"])]
        with: Option<PathBuf>,
        /// Page to write [default: comparison.html in the first folder]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Show a folder of results in a browser, as they come: a list, reports, runs side by side
    Serve(serve::Arguments),
    /// Keep results that docs quote: of live ones the records, of simulated ones their digest
    Record(recorded::Record),
    /// Check that recorded runs are of this program: simulated ones are made again
    Verify(recorded::Verify),
    /// Set recorded runs beside the papers' figures and tables: Markdown with drawings, or one HTML page
    Papers(papers::Arguments),
    /// Run a program, or your shell, with an emulated path between it and a server
    Shell(Box<shell::Arguments>),
    /// Run a program, or your shell, on a host of a shell that runs
    Enter(shell::Enter),
    /// What `lab shell` starts programs by
    #[command(hide = true)]
    Hold(shell::Hold),
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// Folder that `lab run` made
    #[arg(value_name = "DIR")]
    results: PathBuf,
    /// Tables as text, with types and units in datapackage.json
    #[arg(long, required_unless_present_any = ["parquet", "svg", "png"])]
    csv: bool,
    /// Tables as Parquet files, with types and units in them
    #[arg(long)]
    parquet: bool,
    /// The report's plots
    #[arg(long)]
    svg: bool,
    /// The same as pixels; needs rsvg-convert (librsvg)
    #[arg(long)]
    png: bool,
    /// Folder to write into [default: tables and plots in DIR]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Also what a recorded run's command is read as.
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Scenario file
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    /// What runs it
    #[arg(long, value_enum, default_value_t = BackendName::Live)]
    pub(super) backend: BackendName,
    /// Run the short version that the file describes
    #[arg(long)]
    pub(super) short: bool,
    /// Folder for the results; each sweep makes a folder in it [default: results/NAME, -sim added]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Folder of the recorded traces that the scenario names [default: the scenario file's]
    #[arg(long, value_name = "DIR")]
    pub(super) traces: Option<PathBuf>,
    /// Begin anew even where an unfinished sweep could go on
    #[arg(long)]
    fresh: bool,
    /// Run only these variants: none, midspan, haproxy
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = variant)]
    pub(super) variants: Vec<Variant>,
    /// Run only the cells with this label on this axis; may be given several times: for several labels
    /// of an axis, and for several axes
    #[arg(long, value_name = "AXIS=LABEL", value_parser = axis_label)]
    pub(super) only: Vec<(String, String)>,
    /// Keep the headers of each run's packets in a folder of its own in this one: a pcapng file for each end of both
    /// links
    #[arg(long, value_name = "DIR")]
    captures: Option<PathBuf>,
    /// Keep packets whole; live runs only
    #[arg(long, requires = "captures")]
    captures_whole: bool,
    /// Keep what each sender of simulated runs does in a folder of its own in this one: qlog, as JSON text sequences
    #[arg(long, value_name = "DIR")]
    qlog: Option<PathBuf>,
    /// Spread a simulated sweep over the Ray cluster at this address, or over one of this machine's own (local); needs the
    /// Python package
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["captures", "qlog"])]
    ray: Option<String>,
}

impl Run {
    /// The part of the scenario that is asked for.
    pub(super) fn selection(&self) -> Selection {
        Selection {
            variants: self.variants.clone(),
            labels: self.only.clone(),
            ..Selection::default()
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BackendName {
    /// Real kernel TCP over emulated links
    Live,
    /// Virtual time: our own TCP over the same paths, on all cores
    Sim,
}

/// A scenario, and what of it to run where to.
pub(crate) struct Job {
    pub(crate) text: String,
    pub(crate) file: String,
    /// Traces are named from here.
    pub(crate) directory: PathBuf,
    pub(crate) base: PathBuf,
    pub(crate) backend: Backend,
    pub(crate) short: bool,
    pub(crate) fresh: bool,
    pub(crate) selection: Selection,
    /// What to keep of packets, if anything.
    pub(crate) captures: Option<Captures>,
    /// What to keep of what simulated senders do, if anything.
    pub(crate) qlogs: Option<Qlogs>,
    /// The Ray cluster to simulate on, if it is not this machine.
    pub(crate) ray: Option<String>,
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Run(arguments) => run_file(arguments),
        Command::Check { files } => check(&files),
        Command::Report { results } => report(&results),
        Command::Export(arguments) => export(&arguments),
        Command::Compare { results, reference, with, out } => match (reference, with) {
            (Some(reference), _) => compare(&results, &reference, out),
            (None, Some(with)) => hold(&results, &with),
            (None, None) => Err(BadInput::because(
                "nothing to compare with; give `--reference FILE` or `--with DIR`",
            )),
        },
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Record(arguments) => recorded::record(&arguments),
        Command::Verify(arguments) => recorded::verify(&arguments),
        Command::Papers(arguments) => papers::run(&arguments),
        Command::Shell(arguments) => shell::run(&arguments),
        Command::Enter(arguments) => shell::enter(&arguments),
        Command::Hold(arguments) => shell::hold(&arguments),
    }
}

fn run_file(arguments: Run) -> Result<ExitCode> {
    let (backend, place) = match arguments.backend {
        BackendName::Live => (Backend::Live, ""),
        BackendName::Sim => (Backend::Sim, "-sim"),
    };
    let text = read_input(&arguments.file)?;
    let file = arguments.file.display().to_string();
    let name = Scenario::parse(&text, &file).map_err(BadInput::because)?.name;
    let suffix = if arguments.short { "-short" } else { "" };
    let selection = arguments.selection();
    if arguments.ray.is_some() && backend == Backend::Live {
        return Err(BadInput::because(
            "--ray: links of live runs want a machine for themselves; give `--backend sim`",
        ));
    }
    let whole = arguments.captures_whole;
    if whole && backend == Backend::Sim {
        return Err(BadInput::because(
            "--captures-whole: simulated packets have headers alone; leave it out",
        ));
    }
    if arguments.qlog.is_some() && backend == Backend::Live {
        return Err(BadInput::because(
            "--qlog: what the kernel's TCP does is not told; give `--backend sim`",
        ));
    }
    let captures = arguments.captures.map(|folder| Captures { folder, whole });
    let qlogs = arguments.qlog.map(|folder| Qlogs { folder });
    let captured = captures.iter().map(|captures| ("--captures", &captures.folder));
    for (option, folder) in captured.chain(qlogs.iter().map(|qlogs| ("--qlog", &qlogs.folder))) {
        std::fs::create_dir_all(folder).map_err(|error| {
            BadInput::because(format!("{option}: cannot make {}: {error}", folder.display()))
        })?;
    }
    execute(&Job {
        text,
        directory: arguments
            .traces
            .unwrap_or_else(|| arguments.file.parent().unwrap_or(Path::new("")).to_owned()),
        file,
        base: arguments.out.unwrap_or_else(|| format!("results/{name}{suffix}{place}").into()),
        backend,
        short: arguments.short,
        fresh: arguments.fresh,
        selection,
        captures,
        qlogs,
        ray: arguments.ray,
    })
}

impl Job {
    /// The scenario, in the version that is asked for.
    pub(super) fn scenario(&self) -> Result<Scenario> {
        let parsed = Scenario::parse(&self.text, &self.file).map_err(BadInput::because)?;
        selected(&parsed, self.short, &self.file).cloned()
    }

    /// Runs what is asked for of [`Job::scenario`].
    pub(super) fn run(&self, scenario: &Scenario) -> Result<Results> {
        self.selection.check(scenario).map_err(BadInput::because)?;
        if let Some(why) = self.qlogs.as_ref().and_then(|_| Qlogs::unfit(scenario)) {
            return Err(BadInput::because(format!("--qlog: {why}")));
        }
        if let Some(address) = &self.ray {
            return Results::read(&ray::run(address, self)?);
        }
        if let Some(what) = unfit(scenario, self.backend) {
            return Err(BadInput::because(format!("{}: {what}", self.file)));
        }
        let traces = read_traces(scenario, &self.directory)
            .map_err(|error| BadInput::because(format!("{}: {error:#}", self.file)))?;
        if self.backend == Backend::Live {
            acquire_privileges().context(NEEDS_PRIVILEGES)?;
        }
        let experiment = Experiment {
            scenario,
            text: &self.text,
            backend: self.backend,
            traces: &traces,
            selection: self.selection.clone(),
            base: &self.base,
            fresh: self.fresh,
            captures: self.captures.clone(),
            qlogs: self.qlogs.clone(),
            command: this_command()?,
            midspan: this_program()?,
        };
        experiment.execute()
    }
}

/// What is missing where [`acquire_privileges`] fails.
pub(super) const NEEDS_PRIVILEGES: &str =
    "needs root, or a user namespace, which this system forbids; see `midspan doctor`";

/// Runs a job to its report. Fails if a run failed or nothing could be trusted.
fn execute(job: &Job) -> Result<ExitCode> {
    let scenario = job.scenario()?;
    conclude(&job.run(&scenario)?, &scenario)
}

fn check(files: &[PathBuf]) -> Result<ExitCode> {
    for file in files {
        let text = read_input(file)?;
        let name = file.display().to_string();
        let scenario = Scenario::parse(&text, &name).map_err(BadInput::because)?;
        let runs = |scenario: &Scenario| -> usize {
            let variants = scenario.cells().iter().map(|cell| cell.variants.len());
            variants.sum::<usize>() * scenario.repetitions as usize
        };
        let short = scenario.short().map_or(String::new(), |short| {
            format!(", short version {} cells and {} runs", short.cells().len(), runs(short))
        });
        let (cells, runs) = (scenario.cells().len(), runs(&scenario));
        println!("{name}: {cells} cells, {runs} runs{short}");
    }
    Ok(ExitCode::SUCCESS)
}

fn report(directory: &Path) -> Result<ExitCode> {
    let results = open(directory)?;
    conclude(&results, &scenario_of(&results)?)
}

fn export(arguments: &Export) -> Result<ExitCode> {
    let results = open(&arguments.results)?;
    let scenario = scenario_of(&results)?;
    let (title, records) = (&scenario.title, results.records());
    let within = |name| arguments.out.clone().unwrap_or_else(|| arguments.results.join(name));
    let mut files = Vec::new();
    if arguments.csv {
        files.extend(csv_files(title, records, &within("tables"))?);
    }
    if arguments.parquet {
        files.extend(parquet_files(title, records, &within("tables"))?);
    }
    if arguments.svg {
        files.extend(svg_files(&Report::new(&scenario, records)?, &within("plots"))?);
    }
    if arguments.png {
        files.extend(png_files(&Report::new(&scenario, records)?, &within("plots"))?);
    }
    for file in files {
        println!("{}", file.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn compare(directories: &[PathBuf], reference: &Path, out: Option<PathBuf>) -> Result<ExitCode> {
    let name = reference.display().to_string();
    let rows = reference::parse_csv(&read_input(reference)?, &name).map_err(BadInput::because)?;
    let mut folders = Vec::with_capacity(directories.len());
    for directory in directories {
        let results = open(directory)?;
        folders.push((scenario_of(&results)?, results));
    }
    let mut comparisons = Vec::with_capacity(folders.len());
    for (scenario, results) in &folders {
        let summary = Summary::of(scenario, results.records())?;
        comparisons.push((scenario, reference::compare(&rows, scenario, &summary), summary));
    }
    let compared: Vec<Compared<'_>> = comparisons
        .iter()
        .map(|(scenario, comparison, summary)| Compared { scenario, comparison, summary })
        .collect();
    print!("{}", compare::text(&compared, terminal()));
    let page = compare::page("Comparison with reference curves", &compared);
    let out = out.unwrap_or_else(|| directories[0].join("comparison.html"));
    std::fs::write(&out, page).with_context(|| format!("cannot write {}", out.display()))?;
    println!("\nReport: {}", out.display());
    Ok(ExitCode::SUCCESS)
}

/// Holds one folder against another of the same scenario.
fn hold(directories: &[PathBuf], with: &Path) -> Result<ExitCode> {
    let [directory] = directories else {
        return Err(BadInput::because("`--with` holds one folder against another; give one"));
    };
    let (results, others) = (open(directory)?, open(with)?);
    let scenario = &scenario_of(&results)?;
    let theirs = Summary::of(scenario, others.records())
        .map_err(|error| BadInput::because(format!("{}: {error}", with.display())))?;
    let ours = Summary::of(scenario, results.records())?;
    print!("{}", beside::text(scenario, &ours, &theirs, terminal()));
    Ok(ExitCode::SUCCESS)
}

/// A simulated scenario's file with all that it needs, in the version that is asked for.
pub(super) fn read_scenario(
    file: &Path,
    short: bool,
    selection: &Selection,
    directory: &Path,
) -> Result<(Scenario, Traces)> {
    let name = file.display().to_string();
    let parsed = Scenario::parse(&read_input(file)?, &name).map_err(BadInput::because)?;
    let scenario = selected(&parsed, short, &name)?.clone();
    selection.check(&scenario).map_err(BadInput::because)?;
    let traces = read_traces(&scenario, directory).map_err(|error| {
        BadInput::because(format!("{name}: {error:#}; `--traces DIR` has them"))
    })?;
    Ok((scenario, traces))
}

/// A folder that `lab run` made.
pub(super) fn open(directory: &Path) -> Result<Results> {
    if let Ok(Kept::Digest(_)) = Recorded::at(directory).kept() {
        let command = Recorded::at(directory).command()?;
        return Err(BadInput::because(format!(
            "{} has the digest of simulated records alone: `{command}` makes them again",
            directory.display()
        )));
    }
    let results =
        Results::read(directory).map_err(|error| BadInput::because(format!("{error:#}")))?;
    results.scenario_text().map_err(|error| {
        BadInput::because(format!("{error:#}; give a folder that `midspan lab run` made"))
    })?;
    Ok(results)
}

/// The scenario as it was meant when the records were made, in the version that they are of.
pub(super) fn scenario_of(results: &Results) -> Result<Scenario> {
    results.scenario().map_err(|error| BadInput::because(format!("{error:#}")))
}

/// Shows the table, writes the report, and says whether all went well.
pub(super) fn conclude(results: &Results, scenario: &Scenario) -> Result<ExitCode> {
    let counts = show(results, scenario)?.counts;
    Ok(if counts.failed > 0 || counts.measured == 0 {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Shows the table and writes the report.
pub(super) fn show(results: &Results, scenario: &Scenario) -> Result<Summary> {
    let (machine, source) = (results.machine()?, results.scenario_text()?);
    let explanations = results.explanations()?;
    let mut report = Report::new(scenario, results.records())?;
    report.machine = Some(&machine);
    report.source = Some(&source);
    report.explanations = &explanations;
    print!("\n{}", report.text(terminal()));
    results.write("summary.txt", &report.text(Terminal::PLAIN))?;
    results
        .write("summary.json", &format!("{}\n", serde_json::to_string_pretty(&report.summary)?))?;
    println!("\nReport: {}", results.write("report.html", &report.html())?.display());
    Ok(report.summary)
}

fn terminal() -> Terminal {
    if !std::io::stdout().is_terminal() {
        return Terminal::PLAIN;
    }
    let width = terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
    Terminal::new(width.min(100), std::env::var("NO_COLOR").ok().as_deref())
}

pub(super) fn selected<'a>(
    scenario: &'a Scenario,
    short: bool,
    file: &str,
) -> Result<&'a Scenario> {
    match (short, scenario.short()) {
        (false, _) => Ok(scenario),
        (true, Some(short)) => Ok(short),
        (true, None) => Err(BadInput::because(format!("{file} has no [short] version"))),
    }
}

pub(super) fn variant(text: &str) -> Result<Variant, String> {
    match text {
        "none" => Ok(Variant::None),
        "midspan" => Ok(Variant::Midspan),
        "haproxy" => Ok(Variant::Haproxy),
        _ => Err("must be none, midspan or haproxy".to_owned()),
    }
}

fn axis_label(text: &str) -> Result<(String, String), String> {
    let (axis, label) = text.split_once('=').ok_or("must be AXIS=LABEL, such as loss=\"0.5 %\"")?;
    Ok((axis.to_owned(), label.to_owned()))
}

/// This program's own file.
pub(super) fn this_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find this program's own file")
}

/// What was asked for, as a shell takes it.
fn this_command() -> Result<String> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    let words = std::iter::once("midspan").chain(arguments.iter().map(|argument| &**argument));
    Ok(shlex::try_join(words)?)
}
