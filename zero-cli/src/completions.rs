//! Completions: a script that completes this command in a shell, both as `cargo-zero` and, where the shell can be told
//! to, as `cargo zero`. Prints clap's script, with a part that leads the shell from `cargo zero` to `cargo-zero`.

use clap::Args;
use clap_complete::Shell;

use crate::say;

/// Which shell.
#[derive(Args, Debug, PartialEq)]
pub struct CompletionsArguments {
    /// The shell; the script of bash is sourced by ~/.bashrc, that of fish lies in conf.d/, and that of zsh in a folder of $fpath,
    /// as `_cargo-zero`. In elvish and PowerShell `cargo-zero` alone is completed, and not `cargo zero`
    pub shell: Shell,
}

/// The note in the scripts of shells that complete only `cargo-zero`.
const ALONE: &str = "# This completes `cargo-zero`, which is the same command as `cargo zero`. Words after `cargo` are completed \
                     by what this shell has for cargo, and that knows nothing of `zero`.\n";

/// Prints the script for the command as clap knows it.
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
