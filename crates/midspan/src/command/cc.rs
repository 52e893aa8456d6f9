//! `midspan cc`: the congestion controls that Midspan brings, and a user's own, in the running kernel.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use midspan_cc::{Config, HyStart};
use midspan_ccload::{
    Algorithm, Change, Controls, Error, Kernel, Options, Removal, algorithms, own_algorithms,
};
use midspan_ccown::{Folder, Name, template, unit_test};
use midspan_units::Rate;

use super::BadInput;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say which controls there are, and what each is for
    List,
    /// Register controls with the kernel, for every network namespace of this machine, until they are
    /// unloaded; those that are loaded already are replaced, and connections keep what they have
    Load(Load),
    /// Take controls back; connections that use one keep it until they end
    Unload(Which),
    /// Say which are loaded, and what this kernel lacks
    Status,
    /// Begin a control of your own: a header that works, its unit test, and a scenario that runs it
    New {
        /// Its name: up to 12 of a to z, digits and _
        name: String,
        /// Folder to write into [default: NAME]
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
    /// Compile and run the unit test beside a control of your own, NAME_test.c
    Test {
        /// The control's header, NAME.h
        #[arg(value_name = "FILE")]
        header: PathBuf,
    },
    /// Build a control of your own, for `midspan cc load` and for simulations, which name it `ms_NAME`; what is built is
    /// kept in the folder that MIDSPAN_CC names, or in ~/.local/share/midspan/cc
    Build {
        /// The control's header, NAME.h
        #[arg(value_name = "FILE")]
        header: PathBuf,
    },
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// Their names, with `ms_` or without, as `midspan cc list` has them
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// All of them
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Load {
    #[command(flatten)]
    which: Which,
    /// Let every socket use them, and every network namespace have them as its default, without
    /// CAP_NET_ADMIN
    #[arg(long)]
    unrestricted: bool,
    /// How cubic, nacubic and natcp leave slow start
    #[arg(long, value_enum, default_value = "classic")]
    hystart: Start,
    /// cubic, nacubic and natcp: grow as RFC 9438 says where Reno would be faster, which is faster than
    /// Linux does
    #[arg(long)]
    rfc9438: bool,
    /// The sending rate that me begins with, such as `200 kbit/s`
    #[arg(long, value_name = "RATE")]
    me_rate: Option<Rate>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Start {
    /// At the first loss
    Off,
    /// HyStart, as in Linux
    Classic,
    /// HyStart++ (RFC 9406)
    PlusPlus,
}

/// Runs one of them.
pub(crate) fn run(command: Command) -> Result<ExitCode> {
    let controls = Controls::default();
    match command {
        Command::List => {
            for algorithm in algorithms() {
                let name = controls.name_of(algorithm);
                println!("{name:12} {}", purpose(algorithm.name()));
            }
            for algorithm in own_algorithms() {
                let source = algorithm.source().unwrap_or_default();
                println!("{:12} yours: {source}", controls.name_of(algorithm));
            }
        }
        Command::Load(arguments) => load(&controls, &arguments)?,
        Command::Unload(which) if which.all => {
            for (algorithm, removal) in controls.unload_all()? {
                println!("{}", outcome(&controls.name_of(algorithm), removal));
            }
        }
        Command::Unload(which) => {
            for algorithm in which.algorithms_of(|name| controls.named(name))? {
                let removal = controls.unload(algorithm).map_err(blame)?;
                println!("{}", outcome(&controls.name_of(algorithm), removal));
            }
        }
        Command::Status => status(&controls)?,
        Command::New { name, folder } => {
            let name = Name::parse(&name)?;
            let folder = folder.unwrap_or_else(|| name.as_str().into());
            for file in template::write(&name, &folder)? {
                println!("{}", file.display());
            }
        }
        Command::Test { header } => {
            return Ok(match unit_test(&header)? {
                status if status.success() => ExitCode::SUCCESS,
                status => {
                    let name = header.display();
                    eprintln!("midspan: the unit test of {name} failed ({status})");
                    ExitCode::FAILURE
                }
            });
        }
        Command::Build { header } => build(&controls, &header)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn build(controls: &Controls, header: &Path) -> Result<()> {
    let glue: Vec<(String, &str)> = midspan_ccload::glue().collect();
    let glue = glue.iter().map(|(name, text)| (&**name, *text));
    let made = midspan_ccown::build(header, glue, &Folder::of_user()?)?;
    for warning in made.warnings {
        eprintln!("{warning}");
    }
    let (built, prefix) = (made.built, controls.prefix());
    println!("{prefix}{} is built:", built.name());
    println!("  {}  for midspan cc load {}", built.program().display(), built.name());
    println!("  {}  for simulations", built.object().display());
    Ok(())
}

fn load(controls: &Controls, arguments: &Load) -> Result<()> {
    let mut config = Config {
        hystart: match arguments.hystart {
            Start::Off => HyStart::Off,
            Start::Classic => HyStart::Classic,
            Start::PlusPlus => HyStart::PlusPlus,
        },
        cubic_constant_alpha: !arguments.rfc9438,
        ..Config::default()
    };
    if let Some(rate) = arguments.me_rate {
        config.me_initial_rate = rate;
    }
    let options = Options { config, unrestricted: arguments.unrestricted };
    for algorithm in arguments.which.algorithms()? {
        let change = controls.load(algorithm, &options).map_err(blame)?;
        let done = match change {
            Change::Loaded => "loaded",
            Change::Replaced => "replaced",
        };
        println!("{} is {done}", controls.name_of(algorithm));
    }
    Ok(())
}

fn outcome(name: &str, removal: Removal) -> String {
    match removal {
        Removal::Gone => format!("{name} is unloaded"),
        Removal::InUse => {
            format!("{name} is unloaded, and stays until the last process ends that uses it")
        }
    }
}

fn status(controls: &Controls) -> Result<()> {
    for status in controls.status() {
        let what = match (status.loaded, status.registered) {
            (true, true) if status.unrestricted => "loaded, for every socket",
            (true, true) => "loaded, for sockets with CAP_NET_ADMIN",
            (true, false) => "pinned, but not registered any more: load it again",
            (false, true) => "registered by another process, for as long as that lives",
            (false, false) => "-",
        };
        println!("{:12} {what}", status.name);
    }
    let kernel = Kernel::running()?;
    println!("Linux {}", kernel.release);
    for lacking in kernel.lacks() {
        println!("  lacks {lacking}");
    }
    Ok(())
}

impl Which {
    /// All is all of Midspan's.
    fn algorithms(&self) -> Result<Vec<Algorithm>> {
        if self.all {
            return Ok(algorithms().collect());
        }
        self.algorithms_of(Algorithm::named)
    }

    /// Those that are named, as `find` has them.
    fn algorithms_of(
        &self,
        find: impl Fn(&str) -> Result<Algorithm, Error>,
    ) -> Result<Vec<Algorithm>> {
        let bare = |name: &'_ String| {
            find(name.strip_prefix(midspan_ccload::PREFIX).unwrap_or(name)).map_err(blame)
        };
        self.names.iter().map(bare).collect()
    }
}

/// What the user can mend in the command, and what not; a control of theirs is told of by its own error.
fn blame(error: Error) -> anyhow::Error {
    match error {
        Error::Unknown { .. } | Error::NotLoaded { .. } => BadInput::because(error),
        error => error.into(),
    }
}

fn purpose(algorithm: &str) -> &'static str {
    match algorithm {
        "reno" => "Reno with NewReno's recovery (RFC 5681, RFC 6582)",
        "cubic" => "CUBIC (RFC 9438)",
        "westwood" => "Westwood+: on loss, back to what the path was seen to carry",
        "illinois" => {
            "TCP-Illinois: the queueing delay says how fast to grow and how far to shrink"
        }
        "lp" => "TCP-LP: takes what others leave, for background transfers",
        "dctcp" => "DCTCP (RFC 8257): shrinks by as much as the path marks; wants ECN on all of it",
        "bbr" => {
            "BBR version 1 (draft-cardwell-iccrg-bbr): the kernel's own, for kernels without it"
        }
        "bbr_2016" => "BBR as published, without room for aggregated acknowledgements",
        "bbr3" => "BBR version 3 (draft-ietf-ccwg-bbr): paced by a model of the path",
        "radio" => "for short radio links: CUBIC for which a loss without a queue is none",
        "natcp" => "NATCP: window and rate as NetAssist says, CUBIC when it says nothing",
        "nacubic" => "NACubic: CUBIC under a cap that NetAssist gives",
        "me" => "TCP-ME: finds the rate of the operator's policer, by marks that tell losses apart",
        _ => "",
    }
}
