//! What is made of the command line's own definitions: man pages, completions, the reference in `docs`.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{CommandFactory, Subcommand};
use clap_complete::Shell;
use clap_markdown::MarkdownOptions;

use crate::Arguments;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write a man page for each command into a folder, which is made if it is not there
    Man {
        /// The folder, such as /usr/local/share/man/man1
        folder: PathBuf,
    },
    /// Print what has a shell complete commands and options, such as for
    /// /usr/share/bash-completion/completions/midspan
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the reference of all commands, in Markdown
    Reference,
}

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Man { folder } => {
            std::fs::create_dir_all(&folder)
                .and_then(|()| clap_mangen::generate_to(Arguments::command(), &folder))
                .with_context(|| format!("cannot write man pages into {}", folder.display()))?;
        }
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "midspan", &mut io::stdout());
        }
        Command::Reference => {
            let options = MarkdownOptions::new()
                .title("Commands".to_owned())
                .show_footer(false)
                .show_table_of_contents(false);
            let text = clap_markdown::help_markdown_custom::<Arguments>(&options);
            println!("{}", text.trim_end());
        }
    }
    Ok(ExitCode::SUCCESS)
}
