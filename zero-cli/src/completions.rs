//! Completions: a script that completes this command in a shell. Only prints what clap makes.

use clap::Args;
use clap_complete::Shell;

use crate::arguments;
use crate::say;

/// Which shell.
#[derive(Args, Debug, PartialEq)]
pub struct CompletionsArguments {
    /// The shell; its manual says where such a script goes
    pub shell: Shell,
}

/// Prints the script for `cargo-zero`, which is what a shell sees of `cargo zero`.
pub fn completions(arguments: &CompletionsArguments) {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut arguments::command(), "cargo-zero", &mut script);
    say::line(String::from_utf8_lossy(&script).trim_end());
}
