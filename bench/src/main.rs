//! Midspan's benchmarks: each prints a table, and keeps its run when told to.

mod assist;
mod chain;
mod emu;
mod flow;
mod pages;
mod program;
mod record;
mod relay;
mod sim;
mod statistics;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Midspan's benchmarks", version)]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Subcommand)]
enum Benchmark {
    /// NetAssist's daemon: delay and cost of feedback, by UEs and senders.
    Assist(assist::Options),
    /// Rate and lateness of the emulated link: one bulk TCP flow at 1 and 50 ms round trip.
    Emu(emu::Options),
    /// What accounts and decisions cost the relay, switched on and off by turns.
    Overhead(relay::overhead::Options),
    /// A plain relay, which `relay` measures beside the others.
    #[command(hide = true)]
    Plain(relay::plain::Options),
    /// Web pages in a browser over an emulated cellular access, by the relay's handshake.
    Pages(pages::Options),
    /// Midspan's relay against HAProxy and nginx: bulk, connections, messages, memory.
    Relay(relay::Options),
    /// The simulator: simulated seconds and events per second, and memory.
    Sim(sim::Options),
}

fn main() -> Result<()> {
    match Arguments::parse().benchmark {
        Benchmark::Assist(options) => assist::run(&options),
        Benchmark::Emu(options) => emu::run(&options),
        Benchmark::Overhead(options) => relay::overhead::run(&options),
        Benchmark::Plain(options) => relay::plain::run(&options),
        Benchmark::Pages(options) => pages::run(&options),
        Benchmark::Relay(options) => relay::run(&options),
        Benchmark::Sim(options) => sim::run(&options),
    }
}
