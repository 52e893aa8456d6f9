//! `midspan relay gain`: what a flow log with a holdout says of how much faster splitting is.

mod findings;
mod log;
mod page;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use midspan_units::Span;

use self::findings::Findings;
use self::log::Log;
use self::table::Table;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Flow logs of a relay with a holdout, and the files that they were rotated to, in any order
    #[arg(value_name = "LOG", required = true)]
    logs: Vec<PathBuf>,
    /// What rows are of
    #[arg(long, value_enum, default_value_t = By::Size)]
    by: By,
    /// How much of the beginning of each slot is left out, in which what began before still has a say
    #[arg(long, value_name = "TIME", default_value = "30 s")]
    settle: Span,
    /// How many servers or networks, those with most connections first; or hours, the last
    #[arg(long, value_name = "N", default_value_t = 20)]
    most: usize,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// A page with plots by all of these to write as well
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum By {
    /// What connections carried
    Size,
    /// Servers' addresses
    Service,
    /// Servers' networks, /24 and /48
    Prefix,
    /// Hours in which connections' slots began, in UTC
    Hour,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let findings = Log::read(&arguments.logs, arguments.settle)?.findings()?;
    if let Some(path) = &arguments.html {
        page::write(path, &findings, &arguments.logs, arguments.most)?;
    }
    let table = table(findings, arguments);
    match arguments.json {
        true => println!("{}", serde_json::to_string_pretty(&table)?),
        false => print!("{table}"),
    }
    Ok(ExitCode::SUCCESS)
}

fn table(findings: Findings, arguments: &Arguments) -> Table {
    let Findings { all, sizes, services, prefixes, hours, mut notes } = findings;
    let mut rows = match arguments.by {
        By::Size => sizes,
        By::Service => services,
        By::Prefix => prefixes,
        By::Hour => hours.into_iter().map(|hour| hour.effect).collect(),
    };
    let more = match arguments.by {
        By::Size => 0,
        By::Service | By::Prefix | By::Hour => rows.len().saturating_sub(arguments.most),
    };
    match arguments.by {
        By::Hour => drop(rows.drain(..more)),
        By::Size | By::Service | By::Prefix => rows.truncate(rows.len() - more),
    }
    if more > 0 {
        notes.insert(0, format!("{more} rows more: --most shows them"));
    }
    Table { rows: all.into_iter().chain(rows).collect(), notes }
}
