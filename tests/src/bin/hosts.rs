//! A small model of text whose ranks are on two hosts, or, where its first argument is `lone`, each on one of three. SIGUSR1
//! ends a rank at once, with code 3.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGUSR1;
use signal_hook::flag::register_conditional_shutdown;
use zero_runtime::prelude::*;

macro_rules! model {
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

model! { #[zero(spec = "specs/hosts.ron")] Hosts }
model! { #[zero(spec = "specs/lone.ron")] Lone }

fn main() -> ExitCode {
    register_conditional_shutdown(SIGUSR1, 3, Arc::new(AtomicBool::new(true))).expect("a handler");
    let is_lone = std::env::args().nth(1).is_some_and(|word| word == "lone");
    if is_lone {
        // The word stands where the name of the program is expected.
        return zero_runtime::run::main_from::<Lone>(std::env::args_os().skip(1));
    }
    zero_runtime::main::<Hosts>()
}
