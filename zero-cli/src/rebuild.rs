//! Rebuild: a command that was built without a verb's libraries builds itself with them and continues as the new command. Only in a
//! clone, because a package is no place to build in.

use std::os::unix::process::CommandExt;

use crate::error::CommandError;
use crate::origin::IN_CLONE;
use crate::say;
use crate::workspace::cargo;

const _: () = assert!(
    IN_CLONE,
    "zero-command is built without its features `follow`, `tokenize` and `view` only in a clone, from which it can build itself again"
);

/// Runs the command that also has `feature`, and so can make `what`, with the same arguments in place of this process. Returns only if
/// cargo cannot be started.
pub fn rebuild_with(feature: &str, what: &str) -> Result<(), CommandError> {
    say::note(format_args!("building `cargo zero` once more, for {what}"));
    let mut command = cargo();
    command.args(["run", "--release", "--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    command.args(["--no-default-features", "--features", feature]);
    command.args(["--bin", "zero", "--"]).args(std::env::args_os().skip(1));
    Err(CommandError::Cargo { source: command.exec() })
}
