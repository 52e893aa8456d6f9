//! `midspan relay upgrade`: this program takes over from an older one, as a service manager sees it too.

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use super::BadInput;

/// Take over from a running relay of another program, as the main process of its systemd service
///
/// Another program is one that was installed later, under the same name too. As `midspan relay --replace`; to be in
/// the service's ExecReload=.
#[derive(Debug, Args)]
pub(crate) struct Upgrade {
    /// Process of the running relay: $MAINPID
    #[arg(value_name = "PID")]
    pid: u32,
    /// Options of the relay that takes over, as of the one that runs, such as --config FILE
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<OsString>,
}

/// Answers when the relay that takes over is ready, which goes on then.
pub(crate) fn run(arguments: &Upgrade) -> Result<ExitCode> {
    let former = arguments.pid;
    let is_same = midspan_relay::runs_this_program(former)
        .map_err(|error| BadInput::because(format!("process {former}: {error}")))?;
    if is_same {
        println!("process {former} is of this program already");
        return Ok(ExitCode::SUCCESS);
    }
    let program = env::current_exe().context("this program's own file")?;
    let mut options = ["relay", "--replace", "--say-ready"].map(OsString::from).to_vec();
    options.extend_from_slice(&arguments.options);
    let relay = midspan_relay::take_over(program.as_os_str(), &options, former)
        .context("the relay that takes over")?;
    // It has said for itself why it has ended.
    let relay = relay.with_context(|| {
        format!("process {former} goes on as it was: what should take over has ended")
    })?;
    println!("process {relay} has taken over from {former}");
    Ok(ExitCode::SUCCESS)
}
