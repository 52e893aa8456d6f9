//! `midspan lab serve`: a folder of results in a browser.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use midspan_serve::folder::{Asked, Folder};

use super::BadInput;
use super::recorded::parse_command;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder with results somewhere below it
    #[arg(value_name = "FOLDER", default_value = "results")]
    folder: PathBuf,
    /// Address to listen at; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8870")]
    listen: SocketAddr,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let folder = Folder::open(&arguments.folder, asked).map_err(|error| {
        let folder = arguments.folder.display();
        BadInput::because(format!("{folder}: {error}; give a folder with results of `lab run`"))
    })?;
    let listener = TcpListener::bind(arguments.listen).map_err(|error| {
        let address = arguments.listen;
        BadInput::because(format!("cannot listen at {address}: {error}; `--listen` takes another"))
    })?;
    let address = listener.local_addr()?;
    midspan_serve::run(folder, listener, || {
        println!("{} at http://{address}/ until Ctrl-C", arguments.folder.display());
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What a results folder's command asked for.
fn asked(command: &str) -> Option<Asked> {
    let run = parse_command(command, Path::new("")).ok()?;
    Some(Asked { short: run.short, selection: run.selection() })
}
