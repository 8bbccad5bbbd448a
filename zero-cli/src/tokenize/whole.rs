//! Whole: for a command that was built without `tokenize`, builds it with all features and continues as the new command.

use std::os::unix::process::CommandExt;

use super::TokenizeArguments;
use crate::error::CommandError;
use crate::workspace::cargo;

/// Runs the whole command with the same arguments, in place of this process. Returns only if cargo cannot be started.
pub fn tokenize(_: &TokenizeArguments) -> Result<(), CommandError> {
    eprintln!("building `cargo zero` once more, with tokenizers and Parquet");
    let mut command = cargo();
    command.args(["run", "--release", "--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    command.args(["--bin", "cargo-zero", "--"]).args(std::env::args_os().skip(1));
    Err(CommandError::Cargo { source: command.exec() })
}
