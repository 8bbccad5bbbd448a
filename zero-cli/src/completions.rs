//! Completions: a script that completes this command in a shell, as `zero` and, if the shell supports it, as `cargo zero`; and the alias
//! of cargo that makes the one of the other. The script is clap's, with a part that leads the shell from `cargo zero` to `zero`.

use clap::{Args, ValueEnum};
use clap_complete::Shell;

use crate::say;

/// What completes or finds the command.
#[derive(Args, Debug, PartialEq)]
pub struct CompletionsArguments {
    /// The shell; source the script for bash in ~/.bashrc, put the script for fish into conf.d/, and the script for zsh into a
    /// folder of $fpath, as `_zero`. In elvish and PowerShell only `zero` is completed, not `cargo zero`. For `cargo`, the lines that
    /// make `cargo zero` the installed `zero` in all workspaces: put them into ~/.cargo/config.toml
    #[arg(value_name = "SHELL")]
    pub of: Completed,
}

/// A program that the command is made known to.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub enum Completed {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
    Cargo,
}

/// The note in the scripts of shells that complete only `zero`.
const ALONE: &str = "# This completes `zero`, which is the same command as `cargo zero`. Words after `cargo` are completed by this shell's \
                     own script for cargo, which does not know `zero`.\n";

/// The alias of the installed command, in a file of cargo's configuration.
pub const ALIAS: &str = include_str!("completions/alias.toml");

/// Prints the script for the command, as clap defines it, or the alias.
pub fn completions(arguments: &CompletionsArguments, command: clap::Command) {
    let (shell, before, after) = match arguments.of {
        Completed::Bash => (Shell::Bash, "", include_str!("completions/cargo.bash")),
        Completed::Fish => (Shell::Fish, "", include_str!("completions/cargo.fish")),
        Completed::Zsh => (Shell::Zsh, "", include_str!("completions/cargo.zsh")),
        Completed::Elvish => (Shell::Elvish, ALONE, ""),
        Completed::Powershell => (Shell::PowerShell, ALONE, ""),
        Completed::Cargo => return say::line(ALIAS.trim_end()),
    };
    let script = generated(shell, command);
    say::line(format!("{before}{script}{after}").trim_end());
}

fn generated(shell: Shell, mut command: clap::Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "zero", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
