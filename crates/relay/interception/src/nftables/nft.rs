//! An `nft` process that owns the table and takes commands.

use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::process::{Child, ChildStdin, Stdio};

use midspan_sys::process::{self, die_with_parent};

use crate::error::InterceptionError;

#[derive(Debug)]
pub(super) struct Nft {
    child: Child,
    /// Closing it ends the process.
    commands: Option<ChildStdin>,
    /// What it says, answers and complaints alike, in order.
    output: BufReader<PipeReader>,
    /// A command that says something in any case: whether the table is there.
    probe: String,
}

impl Nft {
    pub(super) fn start(probe: impl Into<String>) -> io::Result<Nft> {
        let (output, said) = io::pipe()?;
        let mut command = process::command("nft");
        command.arg("-i").stdin(Stdio::piped()).stdout(said.try_clone()?).stderr(said);
        // Signals from a terminal are for the relay, which ends this process when it is done.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = die_with_parent(&mut command).spawn()?;
        let commands = child.stdin.take();
        Ok(Nft { child, commands, output: BufReader::new(output), probe: probe.into() })
    }

    /// Runs one command line as one transaction.
    pub(super) fn run(&mut self, command: &str) -> Result<(), InterceptionError> {
        let refused = |error: io::Error| InterceptionError::Refused(error.to_string());
        // It does not say when it is done, but does so in order: whatever it says before it
        // answers the probe is about the command.
        let lines = format!("{command}\n{}\n", self.probe);
        let commands =
            self.commands.as_mut().ok_or_else(|| refused(io::ErrorKind::BrokenPipe.into()))?;
        commands.write_all(lines.as_bytes()).map_err(refused)?;
        let mut complaint = None;
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).map_err(refused)? == 0 {
                return Err(complaint.unwrap_or_else(|| refused(io::ErrorKind::BrokenPipe.into())));
            }
            // The answer to the probe ends either way: with the table's closing brace, or with
            // its command line quoted below an error.
            match line.trim_end() {
                "}" => return complaint.map_or(Ok(()), Err),
                line if line == self.probe => return complaint.map_or(Ok(()), Err),
                error if error.starts_with("Error: ") => {
                    complaint.get_or_insert_with(|| understood(error));
                }
                _ => {}
            }
        }
    }

    pub(super) fn output(&self) -> &PipeReader {
        self.output.get_ref()
    }

    /// Ends the process, and with it the table.
    pub(super) fn end(&mut self) {
        drop(self.commands.take());
        // The kernel has removed the table once the process is gone.
        if let Err(error) = self.child.wait() {
            tracing::error!(%error, "the nft process could not be ended");
        }
    }
}

impl Drop for Nft {
    fn drop(&mut self) {
        self.end();
    }
}

fn understood(error: &str) -> InterceptionError {
    // What another process owns may not be touched.
    if error.contains("Operation not permitted") && rustix::process::geteuid().is_root() {
        return InterceptionError::Taken;
    }
    InterceptionError::Refused(error.trim_start_matches("Error: ").to_owned())
}
