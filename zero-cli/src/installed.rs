//! Installed: `cargo zero-installed`, by which an alias of cargo starts the `zero` beside it: `zero = "zero-installed"`. Cargo warns of an
//! alias that has the name of an installed subcommand, and the alias of a clone is `zero`, so no subcommand is.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let zero = std::env::current_exe().map(|own| own.with_file_name("zero"));
    // The first argument is the subcommand itself.
    let error = match zero {
        Ok(zero) => Command::new(zero).args(std::env::args_os().skip(2)).exec(),
        Err(error) => error,
    };
    let _ = writeln!(
        std::io::stderr(),
        "error[Z0123]: cannot run `zero`, which is installed with this command: {error}\n  = help: install both again"
    );
    ExitCode::FAILURE
}
