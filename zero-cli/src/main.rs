//! The `zero` command: compiles a parallelism spec and a model into a training binary, and runs it. Knows cargo and
//! files; what a spec or a code means it leaves to `zero-plan`.

mod build;
mod error;
mod explain;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

use error::Error;

/// Compiles a parallelism spec and a model into a training binary.
#[derive(Parser)]
#[command(name = "cargo zero", bin_name = "cargo zero", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build the binary and start its ranks
    Run {
        /// The spec, a RON file
        spec: PathBuf,
        /// Arguments of the binary; `-- --help` lists them
        #[arg(last = true)]
        arguments: Vec<OsString>,
    },
    /// Build the binary under target/zero/, named after the spec
    Build {
        /// The spec, a RON file
        spec: PathBuf,
    },
    /// Build the binary and print its plan
    Plan {
        /// The spec, a RON file
        spec: PathBuf,
        /// Also where everything lies, and every op of every pipeline stage
        #[arg(long)]
        schedule: bool,
    },
    /// Say what a code of a message means
    Explain {
        /// The code, such as Z0107; without it, all codes are listed
        code: Option<String>,
    },
}

fn main() -> ExitCode {
    match execute(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn execute(verb: Verb) -> Result<(), Error> {
    match verb {
        Verb::Run { spec, arguments } => become_binary(&spec, &arguments),
        Verb::Build { spec } => {
            println!("{}", build::build(&spec)?.display());
            Ok(())
        }
        Verb::Plan { spec, schedule } => become_binary(&spec, &[if schedule { "--schedule" } else { "--plan" }.into()]),
        Verb::Explain { code } => {
            println!("{}", explain::explain(code.as_deref())?);
            Ok(())
        }
    }
}

/// Builds the binary of a spec and runs it in place of this process, so that signals and the exit code are its own.
fn become_binary(spec: &Path, arguments: &[OsString]) -> Result<(), Error> {
    let binary = build::build(spec)?;
    Err(Error::Start { source: Command::new(&binary).args(arguments).exec(), binary })
}
