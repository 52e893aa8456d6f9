//! `midspan assist`: NetAssist, its agents, and what belongs to them.

mod metrics;
mod text;
mod top;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use midspan_assist::config::{AgentConfig, DaemonConfig, load_policy};
use midspan_assist::control::{self, Answer, Request};
use midspan_assist::daemon::Error;
use midspan_assist::tls::DevSet;
use midspan_assist::{agent, daemon};

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
    Top(top::Arguments),
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
        Command::Top(arguments) => top::run(&arguments)?,
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

fn ask(socket: &Path, request: &Request) -> Result<Answer> {
    control::ask(socket, request).map_err(|error| anyhow!("{}: {error}", socket.display()))
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
