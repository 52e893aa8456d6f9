//! `midspan relay upgrade`: this program takes over from an older one, as a service manager sees it too.

use std::env;
use std::ffi::OsString;
use std::process::{Command, ExitCode};

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

/// Answers when the relay that takes over is ready, which goes on then. Its own status if it ends before.
pub(crate) fn run(arguments: &Upgrade) -> Result<ExitCode> {
    let former = arguments.pid;
    let is_same = midspan_relay::runs_this_program(former)
        .map_err(|error| BadInput::because(format!("process {former}: {error}")))?;
    if is_same {
        println!("process {former} is of this program already");
        return Ok(ExitCode::SUCCESS);
    }
    let mut relay = Command::new(env::current_exe().context("this program's own file")?);
    relay.args(["relay", "--replace", "--say-ready"]).args(&arguments.options);
    match midspan_relay::take_over(&mut relay, former).context("the relay that takes over")? {
        Ok(relay) => {
            println!("process {} has taken over from {former}", relay.id());
            Ok(ExitCode::SUCCESS)
        }
        Err(status) => {
            eprintln!(
                "midspan: process {former} goes on as it was: what should take over has ended"
            );
            Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1).into())
        }
    }
}
