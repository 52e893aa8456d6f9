//! `midspan relay`: the data plane.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use ipnet::IpNet;
use midspan_relay::Config;
use midspan_units::ByteSize;

use super::BadInput;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Configuration file (TOML; docs/relay.md has every key). Flags below override it
    #[arg(long, value_name = "FILE", required_unless_present = "clients")]
    config: Option<PathBuf>,
    /// Prefixes whose connections are taken, such as 10.0.0.0/8
    #[arg(long = "client", value_name = "PREFIX")]
    clients: Vec<IpNet>,
    /// Port that interception hands connections to
    #[arg(long)]
    port: Option<u16>,
    /// Worker threads; 0 is one per core
    #[arg(long)]
    workers: Option<usize>,
    /// Congestion control towards clients
    #[arg(long, value_name = "NAME")]
    client_cc: Option<String>,
    /// Congestion control towards servers
    #[arg(long, value_name = "NAME")]
    server_cc: Option<String>,
    /// What is held of a flow in each direction, beside the sockets' buffers, such as "1 MiB"
    #[arg(long, value_name = "SIZE")]
    buffer: Option<ByteSize>,
    /// Check the configuration, print it in full, and end
    #[arg(long)]
    check: bool,
}

/// Runs the relay until it is told to stop.
pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let check = arguments.check;
    let config = configuration(arguments)?;
    config.check().map_err(BadInput::because)?;
    if check {
        print!("{}", toml::to_string(&config)?);
        return Ok(ExitCode::SUCCESS);
    }
    let filter = tracing_subscriber::EnvFilter::builder()
        .with_default_directive(tracing_subscriber::filter::LevelFilter::INFO.into())
        .with_env_var("MIDSPAN_LOG")
        .from_env()
        .map_err(|error| BadInput::because(format!("MIDSPAN_LOG: {error}")))?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    midspan_relay::run(config, |_| {})?;
    Ok(ExitCode::SUCCESS)
}

fn configuration(arguments: Arguments) -> Result<Config> {
    let mut config = match &arguments.config {
        Some(path) => Config::load(path).map_err(BadInput::because)?,
        None => Config::new(Vec::new()),
    };
    if !arguments.clients.is_empty() {
        config.clients = arguments.clients;
    }
    if let Some(port) = arguments.port {
        config.port = port;
    }
    if let Some(workers) = arguments.workers {
        config.workers = workers;
    }
    if let Some(buffer) = arguments.buffer {
        config.buffer = buffer;
    }
    config.client_leg.congestion_control =
        arguments.client_cc.or(config.client_leg.congestion_control);
    config.server_leg.congestion_control =
        arguments.server_cc.or(config.server_leg.congestion_control);
    Ok(config)
}
