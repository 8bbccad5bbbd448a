//! Completions: a script that completes this command in a shell, as `cargo-zero` and, if the shell supports it, as
//! `cargo zero`. Prints clap's script, with a part that leads the shell from `cargo zero` to `cargo-zero`.

use clap::Args;
use clap_complete::Shell;

use crate::say;

/// The shell.
#[derive(Args, Debug, PartialEq)]
pub struct CompletionsArguments {
    /// The shell; source the script for bash in ~/.bashrc, put the script for fish into conf.d/, and the script for zsh into a
    /// folder of $fpath, as `_cargo-zero`. In elvish and PowerShell only `cargo-zero` is completed, not `cargo zero`
    pub shell: Shell,
}

/// The note in the scripts of shells that complete only `cargo-zero`.
const ALONE: &str = "# This completes `cargo-zero`, which is the same command as `cargo zero`. Words after `cargo` are completed \
                     by this shell's own script for cargo, which does not know `zero`.\n";

/// Prints the script for the command, as clap defines it.
pub fn completions(arguments: &CompletionsArguments, command: clap::Command) {
    let script = match arguments.shell {
        // For names with a hyphen, clap's script of bash never finds the functions of subcommands.
        Shell::Bash => {
            generated(Shell::Bash, command, "cargo_zero").replace("-o default cargo_zero\n", "-o default cargo-zero\n")
        }
        shell => generated(shell, command, "cargo-zero"),
    };
    let (before, after) = match arguments.shell {
        Shell::Bash => ("", include_str!("completions/cargo.bash")),
        Shell::Fish => ("", include_str!("completions/cargo.fish")),
        Shell::Zsh => ("", include_str!("completions/cargo.zsh")),
        _ => (ALONE, ""),
    };
    say::line(format!("{before}{script}{after}").trim_end());
}

fn generated(shell: Shell, mut command: clap::Command, name: &str) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
