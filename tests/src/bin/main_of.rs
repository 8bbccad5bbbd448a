//! What a user's binary of a spec does: `main`, with the tiny model of the spec in place of the one that it names.
//!
//! `main_of NAME [ARGUMENT...]`

use std::process::ExitCode;

use zero_runtime::model::Model;
use zero_runtime::prelude::*;
use zero_tests::specs::{Visitor, visit};

struct Main;

impl Visitor for Main {
    type Output = ExitCode;

    fn visit<M: Model<Input = Tokens, Target = Tokens>>(self) -> ExitCode {
        // The name of the spec stands where that of the program is expected.
        zero_runtime::run::main_from::<M>(std::env::args_os().skip(1))
    }
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).expect("the name of a spec");
    visit(&name, Main).expect("a spec of that name")
}
