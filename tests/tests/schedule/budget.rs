//! Budget: what a build says whose arena is larger than its spec allows.

use std::panic::catch_unwind;

use zero_plan::plan::require_budget;
use zero_plan::{Config, Memory, Transport};

use crate::model::{Model, config};

const MIB: usize = 1 << 20;

/// Four units of 256 KiB over four ranks: 1 MiB of parameters, and activations of less than 1 KiB.
fn model(stage: u8, memory_bytes: usize) -> Model {
    let memory_bytes = Some(memory_bytes);
    let config = Config { ranks: 4, memory_bytes, transport: Transport::Shm, ..config(stage) };
    Model::new(config, &[MIB / 16; 4], None)
}

/// What a build that fails says behind the code of the error.
fn refusal(model: &Model) -> Option<String> {
    let message = catch_unwind(|| require_budget(&model.config, &model.units)).err()?;
    let message = message.downcast_ref::<String>().expect("a panic with a message");
    let (code, rest) = message.split_once("a rank").expect("who needs memory");
    assert!(code.contains("[Z0201]"), "{message}");
    Some(rest.to_owned())
}

/// Stage 0: parameters, gradients and two moments, 4 MiB. Stage 1: a quarter of the moments, 2.5. Stage 2: staging for
/// two units and a quarter of the sums for all gradients, 2.25. Stage 3: a quarter of the parameters, 1.5.
#[test]
fn it_says_by_how_much_and_which_stage_fits() {
    let expected = " needs 4.0 MiB at stage 0, but `memory` is 2.0 MiB: 2.0 MiB too much
  stage 1 needs 2.5 MiB, which does not fit either
  stage 2 needs 2.2 MiB, which does not fit either
  stage 3 needs 1.5 MiB and fits
  fix: raise `memory`, or lower what it pays for: stage, sequences, length, prefetch, bucket";
    assert_eq!(refusal(&model(0, 2 * MIB)).as_deref(), Some(expected));
}

#[test]
fn at_stage_3_there_is_no_other_stage_to_name() {
    let expected = " needs 1.5 MiB at stage 3, but `memory` is 512.0 KiB: 1.0 MiB too much
  fix: raise `memory`, or lower what it pays for: stage, sequences, length, prefetch, bucket";
    assert_eq!(refusal(&model(3, MIB / 2)).as_deref(), Some(expected));
}

#[test]
fn the_last_byte_counts() {
    for stage in 0..=3 {
        let model = |memory_bytes| model(stage, memory_bytes);
        let needed = Memory::of(&model(0).config, &model(0).units).bytes_per_rank();
        assert_eq!(refusal(&model(needed)), None);
        let refused = refusal(&model(needed - 1)).expect("a byte too much");
        assert!(refused.contains(": 1 B too much"), "{refused}");
    }
}
