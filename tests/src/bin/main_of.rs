//! Stands for a user's binary of a spec: `main`, with the tiny model of the spec in place of the named one, or with the
//! model that is `published`.
//!
//! `main_of NAME [ARGUMENT...]`

use std::process::ExitCode;

use zero_core::model::Model;
use zero_runtime::Runs;
use zero_tests::published::Published;
use zero_tests::specs::program;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).expect("the name of a spec");
    // The name of the spec is in the place of the program's name.
    let program = if name == "published" { Published::PROGRAM } else { program(&name) };
    Runs::run(program, std::env::args_os().skip(1).collect(), None)
}
