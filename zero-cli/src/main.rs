//! The `zero` command: compiles a parallelism spec and a model into a training binary, and runs it. Knows cargo and
//! files; what a spec means it leaves to `zero-plan`.

mod build;
mod error;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
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
        Verb::Run { spec, arguments } => {
            let binary = build::build(&spec)?;
            // In place of this process, so that signals and the exit code are the binary's own.
            Err(Error::Start { source: Command::new(&binary).args(arguments).exec(), binary })
        }
        Verb::Build { spec } => {
            println!("{}", build::build(&spec)?.display());
            Ok(())
        }
    }
}
