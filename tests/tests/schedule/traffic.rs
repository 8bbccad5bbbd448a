//! Traffic: bytes that a rank sends, against the published volumes and against formulas for what the papers leave out.
//!
//! With P bytes of padded parameters over N ranks, every whole pass over the parameters sends (N-1)/N P. In m
//! micro-batches, stages 0 to 2 reduce-scatter m times and all-gather once (sums at stage 0, parameters above): m + 1
//! passes. Stage 3 reduce-scatters m times, and gathers each unit for each forward and each backward, 2 m times; but the
//! last unit in use is gathered once for both, and the first once for a backward and the forward of the next
//! micro-batch. U equal units so make m (2 U - 1) - (m - 1) gathers. A head that is tied to a unit in front of the last
//! owner makes one more gather a micro-batch, and the last owner is then gathered twice, like the others.

use proptest::prelude::*;
use zero_plan::{Config, Op, Plan, Traffic};

use crate::model::{Model, config, models};

fn step(plan: &Plan) -> Traffic {
    Traffic::of(plan, plan.step)
}

/// (N-1)/N of so many elements, in bytes.
fn passed(plan: &Plan, elements: usize) -> usize {
    elements * 4 * (plan.config.ranks - 1) / plan.config.ranks
}

/// ZeRO paper, section 7: 2, 2, 2 and 3 times the parameters, less the gather of the last unit that stage 3 saves.
#[test]
fn one_micro_batch_sends_the_published_volumes() {
    for ranks in [1, 2, 3, 4, 8] {
        for stage in 0..=3 {
            let plan = Model::new(Config { ranks, ..config(stage) }, &[1000, 300, 77, 5000, 123], None).plan();
            let plan = plan.as_plan();
            let saved = plan.placements[4].padded;
            let expected = if stage == 3 { 3 * plan.padded() - saved } else { 2 * plan.padded() };
            assert_eq!(step(&plan).payload_bytes(), passed(&plan, expected), "stage {stage} over {ranks}");
        }
    }
}

#[test]
fn equal_units_are_gathered_for_each_use_but_the_shared_ones() {
    for units in 1..=5 {
        for micro_batches in 1..=4 {
            let plan = Model::new(Config { micro_batches, ..config(3) }, &vec![32; units], None).plan();
            let gathers = plan.as_plan().step.iter().filter(|op| matches!(op, Op::Gather { .. })).count();
            assert_eq!(gathers, micro_batches * (2 * units - 1) - (micro_batches - 1));
        }
    }
}

/// Two ranks pad 40, 100 and 10 parameters to 64, 128 and 32: 224 elements, 896 bytes, of which half goes to the peer.
#[test]
fn a_small_model_sends_what_was_worked_out_by_hand() {
    let sent = |stage, micro_batches, params: &[usize], tied| {
        let plan = Model::new(Config { micro_batches, ..config(stage) }, params, tied).plan();
        let Traffic { gather_bytes, reduce_bytes, spread_bytes, agree_bytes } = step(&plan.as_plan());
        // Loss and norm, two numbers of eight bytes, to the one peer.
        assert_eq!(agree_bytes, 16);
        [gather_bytes, reduce_bytes, spread_bytes]
    };
    let untied = |stage, micro_batches| sent(stage, micro_batches, &[40, 100, 10], None);
    assert_eq!(untied(0, 1), [0, 448, 448]);
    assert_eq!(untied(1, 1), [448, 448, 0]);
    assert_eq!(untied(2, 1), [448, 448, 0]);
    // Units 0 1 2 1 0: 64 + 128 + 32 + 128 + 64 = 416 elements.
    assert_eq!(untied(3, 1), [832, 448, 0]);
    assert_eq!(untied(0, 2), [0, 896, 448]);
    assert_eq!(untied(1, 2), [448, 896, 0]);
    assert_eq!(untied(2, 2), [448, 896, 0]);
    // Units 0 1 2 1 0 1 2 1 0: 3 x 64 + 4 x 128 + 2 x 32 = 768 elements.
    assert_eq!(untied(3, 2), [1536, 896, 0]);
    // The last unit takes the 64 of unit 0. Units 0 1 0 1 0: 3 x 64 + 2 x 128 = 448 elements, of 192.
    assert_eq!(sent(3, 1, &[40, 100, 0], Some(0)), [896, 384, 0]);
    // Tied to the unit before it, it uses what is held: units 0 1 0.
    assert_eq!(sent(3, 1, &[40, 100, 0], Some(1)), [512, 384, 0]);
}

/// Elements that stage 3 gathers in a step, by the formula above.
fn gathered(plan: &Plan) -> usize {
    let padded = |unit: usize| plan.placements[unit].padded;
    let owners: Vec<usize> = (0..plan.units.len()).filter(|&unit| padded(unit) > 0).collect();
    let (Some(&first), Some(&last)) = (owners.first(), owners.last()) else { return 0 };
    let micro_batches = plan.config.micro_batches;
    let head = plan.units[plan.units.len() - 1].source;
    let uses = 2 * micro_batches * plan.padded() - (micro_batches - 1) * padded(first);
    // A head that takes parameters from in front of the last owner; one without parameters takes none from anywhere.
    if head < last && padded(head) > 0 {
        uses + micro_batches * padded(head)
    } else {
        uses - micro_batches * padded(last)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_model_sends_what_the_formulas_say(model in models(12)) {
        let plan = model.plan();
        let plan = plan.as_plan();
        let (flat, micro_batches) = (plan.padded(), plan.config.micro_batches);
        let (gathered, spread) = match plan.config.stage {
            0 => (0, flat),
            1 | 2 => (flat, 0),
            _ => (gathered(&plan), 0),
        };
        prop_assert_eq!(step(&plan), Traffic {
            gather_bytes: passed(&plan, gathered),
            reduce_bytes: passed(&plan, micro_batches * flat),
            spread_bytes: passed(&plan, spread),
            agree_bytes: 16 * (plan.config.ranks - 1),
        });
    }
}
