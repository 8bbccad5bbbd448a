//! Budget: the error of a build that takes more memory than its spec allows.

use std::panic::catch_unwind;

use zero_plan::budget::require_budget;
use zero_plan::footprint::RunSize;
use zero_plan::{Bytes, Config, Memory, Op, Origin, PlanBuf, TransportKind};

use crate::model::{Model, config, mesh};

const MIB: usize = 1 << 20;

/// Bytes outside the arena of any rank of `model`.
fn outside() -> usize {
    let config = Config { mesh: mesh(1, 4, 1), ..config(0) };
    Model::new(config, &[MIB / 16; 4], None).plan().with(|plan| plan.outside_bytes(&RunSize::LEAST))
}

/// The bytes of an arena and those outside, as a message shows them.
fn total(arena_bytes: usize) -> Bytes {
    Bytes(arena_bytes + outside())
}

/// Four units of 256 KiB over four ranks: 1 MiB of parameters, and activations of less than 1 KiB. The budget is that
/// of the arena, plus the bytes outside.
fn model(stage: u8, arena_bytes: usize) -> Model {
    let memory_bytes = Some(arena_bytes + outside());
    let config = Config { mesh: mesh(1, 4, 1), memory_bytes, transport: TransportKind::Shm, ..config(stage) };
    Model::new(config, &[MIB / 16; 4], None)
}

/// The message of a failing build after the words "a rank".
fn refusal(plan: &PlanBuf) -> Option<String> {
    plan.with(|plan| {
        let memories: Vec<Memory> = plan.pipeline_stages.iter().map(|pipeline_stage| pipeline_stage.memory).collect();
        let steps: Vec<&[Op]> = plan.pipeline_stages.iter().map(|pipeline_stage| pipeline_stage.step).collect();
        let refuse = move || require_budget(&plan.tables(), &memories, &steps, &Origin::UNKNOWN);
        let refused = catch_unwind(refuse).err()?;
        let message = refused.downcast_ref::<String>().expect("a panic with a message");
        let (code, rest) = message.split_once("a rank").expect("who needs memory");
        assert!(code.contains("[Z0201]"), "{message}");
        Some(rest.to_owned())
    })
}

/// Stage 0: parameters, gradients and two moments, 4 MiB.
#[test]
fn it_says_by_how_much_and_of_what() {
    let needed = total(model(0, 0).plan().with(|plan| plan.bytes_per_rank_max()));
    let budget = total(2 * MIB);
    let expected = format!(
        " needs {needed} at stage 0, but `memory` is {budget}: 2.0 MiB too much
  most is in use in the backward of `odd`: optimizer state 2.0 MiB, parameters 1.0 MiB, gradients 1.0 MiB
  outside the arena: {} at most
  fix: raise `memory`, or change what is sharded, kept or worked on at once: `cargo zero build` finds what fits",
        total(0)
    );
    assert_eq!(refusal(&model(0, 2 * MIB).plan()), Some(expected));
}

#[test]
fn of_several_pipeline_stages_it_names_the_largest() {
    let config = Config { mesh: mesh(2, 1, 1), memory_bytes: Some(MIB + outside()), ..config(0) };
    // The second pipeline stage has the larger unit: 256 KiB, four times.
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
