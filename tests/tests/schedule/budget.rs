//! Budget: what a build says whose arena is larger than its spec allows.

use std::panic::catch_unwind;

use zero_plan::budget::require_budget;
use zero_plan::{Bytes, Config, Memory, Op, PlanBuf, Transport, Unit};

use crate::model::{Model, config, mesh};

const MIB: usize = 1 << 20;

/// Four units of 256 KiB over four ranks: 1 MiB of parameters, and activations of less than 1 KiB.
fn model(stage: u8, memory_bytes: usize) -> Model {
    let memory_bytes = Some(memory_bytes);
    let config = Config { mesh: mesh(1, 4, 1), memory_bytes, transport: Transport::Shm, ..config(stage) };
    Model::new(config, &[MIB / 16; 4], None)
}

/// What a build that fails says behind the code of the error.
fn refusal(plan: &PlanBuf) -> Option<String> {
    plan.with(|plan| {
        let memories: Vec<Memory> = plan.stages.iter().map(|stage| stage.memory).collect();
        let steps: Vec<&[Op]> = plan.stages.iter().map(|stage| stage.step).collect();
        let mut scratch = vec![Unit::NONE; plan.units.len()];
        let refused = catch_unwind(move || require_budget(&plan.tables(), &memories, &steps, &mut scratch)).err()?;
        let message = refused.downcast_ref::<String>().expect("a panic with a message");
        let (code, rest) = message.split_once("a rank").expect("who needs memory");
        assert!(code.contains("[Z0201]"), "{message}");
        Some(rest.to_owned())
    })
}

/// Stage 0: parameters, gradients and two moments, 4 MiB. Stage 1: a quarter of the moments, 2.5. Stage 2: staging for
/// two units and a quarter of the sums for all gradients, 2.25. Stage 3: a quarter of the parameters, 1.5.
#[test]
fn it_says_by_how_much_and_what_fits() {
    let expected = " needs 4.0 MiB at stage 0, but `memory` is 2.0 MiB: 2.0 MiB too much
  most is in use in the backward of `odd`: optimizer state 2.0 MiB, parameters 1.0 MiB, gradients 1.0 MiB
  fits, the cheapest change first:
    `stage: 3`: 1.5 MiB, about 1.0 MiB more sent a step
  fix: make one of these changes, or raise `memory`";
    assert_eq!(refusal(&model(0, 2 * MIB).plan()).as_deref(), Some(expected));
}

/// Figures are those of the plans that the changes lead to, and the cheapest of what fits comes first.
#[test]
fn what_it_offers_is_what_a_plan_would_need() {
    let refused = refusal(&model(0, 3 * MIB).plan()).expect("4 MiB do not fit 3");
    let offers: Vec<&str> = refused.lines().filter(|line| line.starts_with("    `")).collect();
    assert_eq!(offers.len(), 3, "{refused}");
    for (offer, stage) in offers.iter().zip([1, 2, 3]) {
        let needed = Bytes(model(stage, 0).plan().with(|plan| plan.bytes_per_rank_max()));
        assert!(offer.starts_with(&format!("    `stage: {stage}`: {needed}")), "{refused}");
    }
}

#[test]
fn where_no_change_fits_it_makes_several() {
    let tight = refusal(&model(0, MIB).plan()).expect("4 MiB do not fit 1");
    assert!(tight.contains("no single change fits; one after another:\n    `stage: 3`: 1.5 MiB"), "{tight}");
    assert!(tight.ends_with("fix: raise `memory`, or lower what it pays for: sequences, length, widths of the model"));
    // Activations of a MiB and states of as much: neither change would do by itself.
    let model = |memory_bytes: usize| {
        let mut model = model(0, memory_bytes);
        model.units.iter_mut().for_each(|unit| unit.saved = MIB / 16);
        model
    };
    let refused = refusal(&model(2 * MIB + MIB / 4).plan()).expect("5 MiB do not fit 2.25");
    let offers: Vec<&str> = refused.lines().filter(|line| line.starts_with("    `")).collect();
    assert!(offers[0].starts_with("    `stage: 3`: 2.5 MiB"), "{refused}");
    assert!(offers[1].starts_with("    `recompute: Every(1)`: ") && offers[1].ends_with(", which fits"), "{refused}");
    assert!(refused.ends_with("fix: make all of these changes, or raise `memory`"), "{refused}");
}

#[test]
fn of_several_pipeline_stages_it_names_the_largest() {
    let config = Config { mesh: mesh(2, 1, 1), memory_bytes: Some(MIB), ..config(0) };
    // The second stage has the larger unit: 256 KiB, four times.
    let refused = refusal(&Model::new(config, &[MIB / 64, MIB / 16], None).plan()).expect("more than 1 MiB");
    assert!(refused.starts_with(" of pipeline stage 1 needs 1.0 MiB at stage 0"), "{refused}");
}

#[test]
fn the_last_byte_counts() {
    for stage in 0..=3 {
        let needed = model(stage, 0).plan().with(|plan| plan.bytes_per_rank_max());
        assert_eq!(refusal(&model(stage, needed).plan()), None);
        let refused = refusal(&model(stage, needed - 1).plan()).expect("a byte too much");
        assert!(refused.contains(": 1 B too much"), "{refused}");
    }
}
