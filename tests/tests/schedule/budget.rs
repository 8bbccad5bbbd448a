//! Budget: what a build says that takes more than its spec allows.

use std::panic::catch_unwind;

use zero_plan::bounds::OPS_MAX;
use zero_plan::budget::require_budget;
use zero_plan::config::Recompute;
use zero_plan::{Bytes, Config, Memory, Op, Origin, PlanBuf, RunSize, TransportKind, Unit};

use crate::model::{Model, config, mesh};

const MIB: usize = 1 << 20;

/// What lies outside the arena of any rank of `model`.
fn outside() -> usize {
    let config = Config { mesh: mesh(1, 4, 1), ..config(0) };
    Model::new(config, &[MIB / 16; 4], None).plan().with(|plan| plan.outside_bytes(&RunSize::LEAST))
}

/// An arena of so many bytes, and what lies outside, as a message shows it.
fn total(arena_bytes: usize) -> Bytes {
    Bytes(arena_bytes + outside())
}

/// Four units of 256 KiB over four ranks: 1 MiB of parameters, and activations of less than 1 KiB. The budget is for the
/// arena, with what lies outside added.
fn model(stage: u8, arena_bytes: usize) -> Model {
    let memory_bytes = Some(arena_bytes + outside());
    let config = Config { mesh: mesh(1, 4, 1), memory_bytes, transport: TransportKind::Shm, ..config(stage) };
    Model::new(config, &[MIB / 16; 4], None)
}

/// What a build that fails says behind the code of the error.
fn refusal(plan: &PlanBuf) -> Option<String> {
    plan.with(|plan| {
        let memories: Vec<Memory> = plan.stages.iter().map(|stage| stage.memory).collect();
        let steps: Vec<&[Op]> = plan.stages.iter().map(|stage| stage.step).collect();
        let mut scratch = vec![Unit::NONE; plan.units.len()];
        let refuse = move || require_budget(&plan.tables(), &memories, &steps, &mut scratch, &Origin::UNKNOWN);
        let refused = catch_unwind(refuse).err()?;
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
    let of_stage = |stage| total(model(stage, 0).plan().with(|plan| plan.bytes_per_rank_max()));
    let (needed, budget, fits) = (of_stage(0), total(2 * MIB), of_stage(3));
    let expected = format!(
        " needs {needed} at stage 0, but `memory` is {budget}: 2.0 MiB too much
  most is in use in the backward of `odd`: optimizer state 2.0 MiB, parameters 1.0 MiB, gradients 1.0 MiB
  outside the arena: {} at most
  fits, the cheapest change first:
    `zero: (stage: 3)`: {fits}, about 1.0 MiB more sent a step
  fix: make one of these changes, or raise `memory`",
        total(0)
    );
    assert_eq!(refusal(&model(0, 2 * MIB).plan()), Some(expected));
}

/// Figures are those of the plans that the changes lead to, and the cheapest of what fits comes first.
#[test]
fn what_it_offers_is_what_a_plan_would_need() {
    let refused = refusal(&model(0, 3 * MIB).plan()).expect("4 MiB do not fit 3");
    let offers: Vec<&str> = refused.lines().filter(|line| line.starts_with("    `")).collect();
    assert_eq!(offers.len(), 3, "{refused}");
    for (offer, stage) in offers.iter().zip([1, 2, 3]) {
        let needed = total(model(stage, 0).plan().with(|plan| plan.bytes_per_rank_max()));
        assert!(offer.starts_with(&format!("    `zero: (stage: {stage})`: {needed}")), "{refused}");
    }
}

#[test]
fn where_no_change_fits_it_makes_several() {
    let tight = refusal(&model(0, MIB).plan()).expect("4 MiB do not fit 1");
    let stage_3 = format!("no single change fits; one after another:\n    `zero: (stage: 3)`: {}", total(3 * MIB / 2));
    assert!(tight.contains(&stage_3), "{tight}");
    assert!(tight.ends_with("fix: raise `memory`, or lower what it pays for: sequences, length, widths of the model"));
    // Activations of a MiB and states of as much: neither change would do by itself.
    let model = |memory_bytes: usize| {
        let mut model = model(0, memory_bytes);
        model.units.iter_mut().for_each(|unit| unit.saved_bytes = MIB / 4);
        model
    };
    let refused = refusal(&model(2 * MIB + MIB / 4).plan()).expect("5 MiB do not fit 2.25");
    let offers: Vec<&str> = refused.lines().filter(|line| line.starts_with("    `")).collect();
    assert!(offers[0].starts_with(&format!("    `zero: (stage: 3)`: {}", total(5 * MIB / 2))), "{refused}");
    assert!(offers[1].starts_with("    `recompute: Every(1)`: ") && offers[1].ends_with(", which fits"), "{refused}");
    assert!(refused.ends_with("fix: make all of these changes, or raise `memory`"), "{refused}");
    // No change more where it fits to the byte.
    let mut both = model(0);
    (both.config.stage, both.config.prefetch, both.config.recompute) = (3, 1, Recompute::Every(1));
    let needed = both.plan().with(|plan| plan.bytes_per_rank_max());
    let refused = refusal(&model(needed).plan()).expect("no single change does it");
    assert!(refused.contains("one after another") && refused.contains(", which fits\n"), "{refused}");
}

#[test]
fn of_several_pipeline_stages_it_names_the_largest() {
    let config = Config { mesh: mesh(2, 1, 1), memory_bytes: Some(MIB + outside()), ..config(0) };
    // The second stage has the larger unit: 256 KiB, four times.
    let refused = refusal(&Model::new(config, &[MIB / 64, MIB / 16], None).plan()).expect("more than 1 MiB");
    assert!(refused.starts_with(&format!(" of pipeline stage 1 needs {} at stage 0", total(MIB))), "{refused}");
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

/// A spec that goes to stage 3 gathers one unit ahead unless it says otherwise, and on threads that takes a slot.
#[test]
fn stage_3_is_offered_with_the_prefetch_that_a_spec_then_has() {
    let local = |stage: u8, memory_bytes: usize| {
        let mut model = model(stage, memory_bytes);
        model.config.transport = TransportKind::Local;
        model.config.prefetch = usize::from(stage == 3);
        model
    };
    let needed = local(3, 0).plan().with(|plan| plan.bytes_per_rank_max());
    let refused = refusal(&local(0, needed).plan()).expect("stage 0 needs more");
    assert!(refused.contains(&format!("    `zero: (stage: 3)`: {}", total(needed))), "{refused}");
    assert!(!refusal(&local(0, needed - 1).plan()).unwrap().contains("fits, the cheapest"));
}

/// With a single unit to gather there is none to gather ahead, so the spec must say that it does not.
#[test]
fn stage_3_of_a_single_unit_with_parameters_is_offered_without_prefetch() {
    let with_parameters = |units: usize| {
        let mut model = model(0, units * MIB * 3 / 4);
        model.units[units..].iter_mut().for_each(|unit| (unit.params, unit.takes) = (0, 0));
        refusal(&model.plan()).expect("1 MiB for each unit with parameters")
    };
    assert!(with_parameters(1).contains("`zero: (stage: 3, prefetch: 0)`: "), "{}", with_parameters(1));
    assert!(with_parameters(2).contains("`zero: (stage: 3)`: "), "{}", with_parameters(2));
}

/// With fewer parameters than ranks no higher stage is possible (Z0208), whatever it would need.
#[test]
fn what_the_mesh_forbids_is_not_offered() {
    let with = |smallest: usize| {
        let mut model = model(0, 3 * MIB);
        model.units[0].params = smallest;
        model.units[0].takes = smallest;
        refusal(&model.plan()).expect("about 3 MiB and more")
    };
    assert!(with(4).contains("`zero: (stage: 1)`"));
    assert!(!with(3).contains("stage: 1)"), "{}", with(3));
}

/// Nor is what the compiler would take too long for (Z0212).
#[test]
fn what_cannot_be_compiled_is_not_offered() {
    let with = |micro_batches: usize| {
        let mut model = model(2, MIB);
        (model.config.micro_batches, model.config.bucket_bytes) = (micro_batches, usize::MAX);
        refusal(&model.plan()).expect("more than 1 MiB")
    };
    let fits = |micro_batches: usize, stage| {
        let config = Config { micro_batches, prefetch: 1, ..model(stage, 0).config };
        let config = Config { bucket_bytes: usize::MAX, ..config };
        Model { config, ..model(stage, 0) }
            .plan()
            .with(|plan| plan.stages[0].step.len() + plan.stages[0].evaluation.len())
    };
    let micro_batches = (1..).find(|&n| fits(1000 * n, 3) > OPS_MAX).unwrap() * 1000;
    assert!(fits(micro_batches, 2) < OPS_MAX);
    assert!(with(100).contains("stage: 3"));
    assert!(!with(micro_batches).contains("stage: 3"), "{}", with(micro_batches));
}

/// Half the sequences: what is offered is what the plan of a model with half of everything needs, or more.
#[test]
fn smaller_micro_batches_need_at_most_what_is_said() {
    let of = |sequences: usize, memory_bytes: usize| {
        let mut model = model(3, memory_bytes);
        let scale = |unit: &mut Unit| {
            (unit.saved_bytes, unit.targets_bytes) = (sequences * 4 * 65_536, sequences * 12);
            (unit.input_bytes, unit.output_bytes) = (sequences * 320, sequences * 320);
            (unit.workspace_bytes, unit.operations) = (MIB / 4, sequences * 7);
        };
        model.units.iter_mut().for_each(scale);
        (model.config.sequences, model.config.micro_batches) = (sequences, 4 / sequences);
        model.config.transport = TransportKind::Shm;
        model
    };
    let needed = of(2, 0).plan().with(|plan| plan.bytes_per_rank_max());
    let refused = refusal(&of(4, needed).plan()).expect("twice the activations");
    let offer = format!("    `batch: (sequences: 2, micro_batches: 2)`: at most {}", total(needed));
    assert!(refused.contains(&offer), "{refused}");
}
