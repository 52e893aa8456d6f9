//! `midspan top`: a running relay, live.

mod frame;
mod screen;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use midspan_observe::admin::{Answer, Order, Request};

use self::frame::{Frame, Sample};
use super::admin::{By, Connection, Refused, Socket};

/// Flows that are asked for: enough for the tallest screen, and for the legs' medians.
const FLOWS: usize = 200;
/// How long the relay may take to answer before the screen says so.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    socket: Socket,
    /// Print it once, as text, and end
    #[arg(long)]
    once: bool,
    /// Seconds between looks, 0.1 to 60
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Which flows come first
    #[arg(long, value_enum, default_value_t = By::Rate)]
    by: By,
    /// How many flows to print with --once
    #[arg(long, value_name = "N", default_value_t = 10)]
    most: usize,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=60.0).contains(seconds));
    seconds.ok_or_else(|| "must be between 0.1 and 60".into())
}

/// Shows it until the user has seen enough.
pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let interval = Duration::from_secs_f64(arguments.interval);
    let mut relay = Connection::open(&arguments.socket.path, PATIENCE)?;
    let order = arguments.by.into();
    let first = look(&mut relay, order)?;
    if arguments.once {
        thread::sleep(interval);
        let frame = Frame::between(&first, &look(&mut relay, order)?);
        print!("{}", screen::text(&frame, arguments.most));
        return Ok(ExitCode::SUCCESS);
    }
    screen::live(relay, &arguments.socket.path, first, order, interval)?;
    Ok(ExitCode::SUCCESS)
}

/// Asks the relay for all that is shown.
fn look(relay: &mut Connection, order: Order) -> Result<Sample> {
    let Answer::Status(status) = relay.ask(&Request::Status)? else { bail!(STRANGE) };
    let Answer::Counters(counters) = relay.ask(&Request::Counters)? else { bail!(STRANGE) };
    let at = Instant::now();
    let Answer::Flows(flows) = relay.ask(&Request::Flows { order, most: FLOWS })? else {
        bail!(STRANGE)
    };
    let decisions = match relay.ask(&Request::Decisions) {
        Ok(Answer::Decisions(decisions)) => Some(decisions),
        Ok(_) => bail!(STRANGE),
        // It has no [decide], or is of before there was any.
        Err(error) if error.is::<Refused>() => None,
        Err(error) => return Err(error),
    };
    Ok(Sample { at, status, counters, flows, decisions })
}

const STRANGE: &str = "the relay answers something else than was asked";
