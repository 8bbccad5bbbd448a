//! Stands for a user's binary of a spec: `main`, with the tiny model of the spec in place of the named one; with the model that
//! is `published`; or with that model and data of its own that is `counting`, whose tokens are those of `TOKENIZER`, if it is set.
//!
//! `main_of NAME [ARGUMENT...]`

use std::process::ExitCode;

use zero_core::layer::Tokens;
use zero_core::model::Model;
use zero_runtime::Runs;
use zero_runtime::data::{Dataset, Draw, Ids, Sequences, Tokenizer};
use zero_tests::published::Published;
use zero_tests::specs::program;
use zero_tests::tiny::VOCAB;

/// Sequences in which each id is one more than the one before.
struct Counting {
    tokenizer: Option<Tokenizer>,
}

impl Dataset for Counting {
    type Input = Tokens;
    type Target = Tokens;

    fn training(&self, draw: Draw, input: &mut [u32], targets: &mut [u32]) {
        let (first, ids) = ((draw.hash() % VOCAB as u64) as u32, VOCAB as u32);
        for (i, (id, next)) in (first..).zip(input.iter_mut().zip(targets)) {
            (*id, *next) = (i % ids, (i + 1) % ids);
        }
    }

    fn held_out(&self, index: usize, input: &mut [u32], targets: &mut [u32]) {
        self.training(Draw { seed: 0, step: u64::MAX, index: index as u64 }, input, targets);
    }

    fn held_out_count(&self) -> usize {
        4
    }

    fn ids(&self) -> Ids<'_> {
        self.tokenizer.as_ref().map_or(Ids::Tokens, Ids::TokensOf)
    }
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).expect("the name of a spec");
    let tokenizer = std::env::var_os("TOKENIZER").map(|path| Tokenizer::open(path.as_ref()).expect("a tokenizer"));
    let counting = Counting { tokenizer };
    let (program, data): (_, Option<&dyn Sequences>) = match &*name {
        "counting" => (Published::PROGRAM, Some(&counting)),
        "published" => (Published::PROGRAM, None),
        name => (program(name), None),
    };
    // The name of the spec is in the place of the program's name.
    Runs::run(program, std::env::args_os().skip(1).collect(), data)
}
