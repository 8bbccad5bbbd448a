//! Stands for a user's binary of a spec: `main`, with the tiny model of the spec in place of the named one.
//!
//! `main_of NAME [ARGUMENT...]`

use std::process::ExitCode;

use zero_runtime::Runs;
use zero_tests::specs::program;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).expect("the name of a spec");
    // The name of the spec is in the place of the program's name.
    Runs::run(program(&name), std::env::args_os().skip(1).collect(), None)
}
