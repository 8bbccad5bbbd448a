//! Benchmark: trains the same GPT under several specs and, with `--python`, with PyTorch in turn, and prints medians.
//!
//! `bench NAME [ARGUMENTS]` trains under the spec NAME, as any generated binary does.

mod compare;
mod models;
mod overlap;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Times training steps at every stage, beside PyTorch's with `--python`, in turn.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Arguments {
    /// A Python with torch, whose steps are timed in turn with ours
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Times that each row is measured
    #[arg(long, default_value_t = 3, value_name = "N")]
    rounds: usize,
    /// Steps of a measurement; the median counts
    #[arg(long, default_value_t = 12, value_name = "N")]
    steps: usize,
    /// Measure instead how much communication over an emulated link computation hides, by prefetch and bucket size
    #[arg(long)]
    overlap: bool,
    /// Rows to measure; without any, all
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // `bench zero3 --steps 12` trains; `bench --steps 12 zero3` measures.
    if let Some(code) = models::train(&arguments) {
        return code;
    }
    let arguments = Arguments::parse_from(arguments);
    let result = if arguments.overlap { overlap::measure(&arguments) } else { compare::compare(&arguments) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
