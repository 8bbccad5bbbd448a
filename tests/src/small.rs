//! Small: a model of text that binaries of the tests train, each under two specs. Never trains it.

use std::process::ExitCode;

use zero_core::layer::Tokens;
use zero_core::model::{DeviceOf, Model};
use zero_runtime::run::{Runs, main, main_from};

/// The smallest model of text whose training uses every part of the runtime, under the spec that its attribute names.
#[macro_export]
macro_rules! small_model {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        struct $name {
            embed: Embedding<256, 16, 12>,
            mlp: Linear<12, 12>,
            norm: LayerNorm<12>,
            head: LmHead<12, 256>,
        }
    };
}

/// The main function of a binary that trains `A`, or `B` if its first argument is this word.
pub fn main_of<A, B>(word: &str) -> ExitCode
where
    A: Model<Input = Tokens, Target = Tokens>,
    B: Model<Input = Tokens, Target = Tokens>,
    DeviceOf<A>: Runs,
    DeviceOf<B>: Runs,
{
    if std::env::args().nth(1).is_some_and(|first| first == word) {
        // The word is in the place of the program's name.
        return main_from::<B>(std::env::args_os().skip(1));
    }
    main::<A>()
}
