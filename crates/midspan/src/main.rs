//! The command line of Midspan: parse, validate, call.

mod command;
#[cfg(feature = "control")]
mod log_filter;

use std::panic;
use std::process::{self, ExitCode};

use clap::{Parser, Subcommand};

#[cfg(feature = "assist")]
use crate::command::assist;
#[cfg(feature = "control")]
use crate::command::cc;
use crate::command::generate;
#[cfg(feature = "lab")]
use crate::command::{advise, demo, doctor, lab};
#[cfg(feature = "relay")]
use crate::command::{relay, top};

/// TCP acceleration at the mobile edge.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[cfg(feature = "relay")]
    /// Split TCP connections that pass through this machine
    Relay(relay::Arguments),
    #[cfg(feature = "relay")]
    /// Show a running relay, live
    Top(top::Arguments),
    #[cfg(feature = "lab")]
    /// Say whether a relay would pay, where, and how set, from measured figures of a path
    Advise(Box<advise::Arguments>),
    #[cfg(feature = "assist")]
    /// Tell senders what the radio network knows
    #[command(subcommand)]
    Assist(assist::Command),
    #[cfg(feature = "lab")]
    /// Run experiments over emulated paths
    #[command(subcommand)]
    Lab(lab::Command),
    #[cfg(feature = "control")]
    /// Load congestion controls into the running kernel, and make your own
    #[command(subcommand)]
    Cc(cc::Command),
    #[cfg(feature = "lab")]
    /// Show TCP across an emulated 5G path, with and without the relay
    Demo(demo::Arguments),
    #[cfg(feature = "lab")]
    /// Say what this machine can do, and what is missing because of what
    Doctor,
    /// Write man pages, completions for a shell, or the reference of all commands
    #[command(subcommand)]
    Generate(generate::Command),
}

/// Who reads what is printed may have seen enough (`| head`): that ends the program, as it does any other, and is no
/// fault to be told. SIGPIPE itself stays ignored, for the sockets of relay and lab.
fn end_with_the_reader() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        let said = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        if said.starts_with("failed printing to stdout") && said.contains("Broken pipe") {
            process::exit(128 + SIGPIPE);
        }
        usual(panic);
    }));
}

/// The number of the signal.
const SIGPIPE: i32 = 13;

fn main() -> ExitCode {
    end_with_the_reader();
    let arguments = Arguments::parse();
    let result = match arguments.command {
        #[cfg(feature = "relay")]
        Command::Relay(arguments) => relay::run(arguments),
        #[cfg(feature = "relay")]
        Command::Top(arguments) => top::run(arguments),
        #[cfg(feature = "lab")]
        Command::Advise(arguments) => advise::run(&arguments),
        #[cfg(feature = "assist")]
        Command::Assist(command) => assist::run(command),
        #[cfg(feature = "lab")]
        Command::Lab(command) => lab::run(command),
        #[cfg(feature = "control")]
        Command::Cc(command) => cc::run(command),
        #[cfg(feature = "lab")]
        Command::Demo(arguments) => demo::run(arguments),
        #[cfg(feature = "lab")]
        Command::Doctor => doctor::run(),
        Command::Generate(command) => generate::run(command),
    };
    result.unwrap_or_else(|error| {
        eprintln!("midspan: {error:#}");
        // 2 is for what the user can mend in a file or an argument.
        ExitCode::from(if command::is_bad_input(&error) { 2 } else { 1 })
    })
}
