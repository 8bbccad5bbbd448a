//! Trains a model for two steps, moves bytes that are not in the plan, and compares with the plan as a run does. `NOTHING` in the
//! environment skips the extra bytes.

use std::process::ExitCode;

use zero_engine::Engine;
use zero_plan::Moved;
use zero_plan::footprint::RunSize;
use zero_ranks::transport::{Crossed, local};
use zero_runtime::error::Error;
use zero_runtime::prelude::*;
use zero_runtime::run::compare;
use zero_tests::training::HYPER;

const STEPS: u64 = 2;

#[zero(stage = 3, ranks = 2, transport = Local, length = 4)]
struct Small {
    embed: Embedding<7, 4, 8>,
    head: LmHead<8, 7>,
}

fn batch(_: usize, ids: &mut [u32], targets: &mut [u32]) {
    ids.fill(1);
    targets.fill(2);
}

fn main() -> ExitCode {
    let tampers = std::env::var_os("NOTHING").is_none();
    let ranks = local::run(Small::PLAN, Result::is_err, |transport| {
        let mut engine = Engine::new(Small::PROGRAM, transport);
        engine.initialize(0);
        for _ in 0..STEPS {
            engine.step(&HYPER, batch)?;
        }
        if tampers {
            // Gathers each unit once more.
            engine.evaluate(batch)?;
        }
        let moved: Moved = engine.moved();
        compare(&mut engine, &moved, Crossed::default(), STEPS, &RunSize::LEAST)?;
        Ok::<_, Error>(())
    });
    for rank in ranks.expect("the memory of a tiny model") {
        if let Err(error) = rank {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
