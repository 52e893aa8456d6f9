//! `midspan relay`: the data plane.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use ipnet::IpNet;
use midspan_relay::{Config, Error, Monitor, READY, Start};
use toml::{Table, Value};

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::settings::{put, setting};
use super::upgrade::Upgrade;
use super::{BadInput, admin, upgrade};
use crate::log_filter;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Configuration file (TOML; docs/reference/relay.md has every key)
    #[arg(long, value_name = "FILE", required_unless_present = "clients")]
    config: Option<PathBuf>,
    /// Prefix whose connections are taken, such as 10.0.0.0/8, instead of the file's; may be given
    /// several times
    #[arg(long = "client", value_name = "PREFIX")]
    clients: Vec<IpNet>,
    /// Any other key of the file, which it overrides, such as
    /// client_leg.congestion_control=bbr; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = setting)]
    settings: Vec<(String, Value)>,
    /// Take over from the relay that runs here, which takes no new connections then, and ends with its
    /// last one
    #[arg(long)]
    replace: bool,
    /// Check the configuration, print it in full, and end
    #[arg(long)]
    check: bool,
    /// Print `ready` and the process as soon as connections are taken
    #[arg(long)]
    say_ready: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Admin(admin::Command),
    Upgrade(Upgrade),
}

/// Runs the relay until it is told to stop, or asks one that runs.
pub(crate) fn run(mut arguments: Arguments) -> Result<ExitCode> {
    match arguments.command.take() {
        Some(Command::Admin(command)) => return admin::run(command),
        Some(Command::Upgrade(arguments)) => return upgrade::run(&arguments),
        None => {}
    }
    let (check, say_ready) = (arguments.check, arguments.say_ready);
    let start = if arguments.replace { Start::Replacing } else { Start::Alone };
    let config = configuration(&arguments)?;
    if check {
        midspan_relay::check_here(&config).map_err(BadInput::because)?;
        print!("{}", toml::to_string(&config)?);
        return Ok(ExitCode::SUCCESS);
    }
    let filter = log_filter::from_environment().map_err(BadInput::because)?;
    let (filter, level) = tracing_subscriber::reload::Layer::new(filter);
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    tracing_subscriber::registry().with(filter).with(lines).init();
    let set_level =
        move |text: &str| level.reload(log_filter::parse(text)?).map_err(|error| error.to_string());
    let started = move |monitor: Monitor| {
        monitor.on_log_level(set_level);
        monitor.on_reload(move || configuration(&arguments).map_err(|error| format!("{error:#}")));
        if say_ready {
            // Who asked for it may be gone, which is no reason to end.
            let _ = writeln!(std::io::stdout(), "{READY} {}", std::process::id());
        }
    };
    midspan_relay::run(config, start, started).map_err(|error| match error {
        Error::Config(_) | Error::Leg { .. } => BadInput::because(error),
        other => other.into(),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn configuration(arguments: &Arguments) -> Result<Config> {
    let mut config = match &arguments.config {
        Some(path) => midspan_relay::load(path).map_err(BadInput::because)?,
        None => Config::new(Vec::new()),
    };
    if !arguments.clients.is_empty() {
        config.clients.clone_from(&arguments.clients);
    }
    // One after the other, so that a refusal is about one of them.
    for (key, value) in arguments.settings.clone() {
        let refused =
            |error: &dyn std::fmt::Display| BadInput::because(format!("--set {key}: {error}"));
        let mut table = Table::try_from(&config)?;
        put(&mut table, &key, value).map_err(|error| refused(&error))?;
        let changed = table.try_into::<Config>().map_err(|error| refused(&error.message()))?;
        changed.check().map_err(|error| refused(&error))?;
        config = changed;
    }
    config.check().map_err(BadInput::because)?;
    Ok(config)
}
