//! Whole: for a command that was built without `tokenize`, builds it with all features and continues as the new command. Only in a
//! clone, because a package is no place to build in.

use std::os::unix::process::CommandExt;

use super::TokenizeArguments;
use crate::error::CommandError;
use crate::origin::IN_CLONE;
use crate::workspace::cargo;

const _: () = assert!(
    IN_CLONE,
    "zero-command is built without its feature `tokenize` only in a clone, from which it can build itself again"
);

/// Runs the whole command with the same arguments, in place of this process. Returns only if cargo cannot be started.
pub fn tokenize(_: &TokenizeArguments) -> Result<(), CommandError> {
    eprintln!("building `cargo zero` once more, with tokenizers and Parquet");
    let mut command = cargo();
    command.args(["run", "--release", "--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    command.args(["--bin", "cargo-zero", "--"]).args(std::env::args_os().skip(1));
    Err(CommandError::Cargo { source: command.exec() })
}
