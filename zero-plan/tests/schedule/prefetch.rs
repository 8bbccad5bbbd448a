//! Prefetch: how far ahead of its use a unit is gathered at stage 3.

use proptest::prelude::*;
use zero_plan::{Config, Often, Op, Plan};

use crate::model::{Model, config, models};

/// The unit that holds the parameters on which an op computes, if it computes on any.
fn held_for(plan: &Plan, op: &Op) -> Option<usize> {
    let (Op::Forward { unit, .. } | Op::Backward { unit, .. }) = *op else { return None };
    let holder = if plan.placements[unit].holds { unit } else { plan.units[unit].source };
    (plan.placements[unit].padded > 0).then_some(holder)
}

/// How many uses after the first of `rest` can be gathered: as many as `prefetch` says, but only up to the end, and up
/// to the first whose unit is still held for an earlier use.
fn ahead(rest: &[usize], prefetch: usize) -> usize {
    let can_be = |ahead: &usize| !rest[..*ahead].contains(&rest[*ahead]);
    (1..rest.len()).take(prefetch).take_while(can_be).count()
}

/// Walks the step of a pipeline stage and checks, at each computation, the units that are gathered ahead.
fn assert_gathers_ahead(plan: &Plan, pipeline: usize) {
    let ops = plan.pipeline_stages[pipeline].step;
    let mut uses: Vec<usize> = ops.iter().filter_map(|op| held_for(plan, op)).collect();
    uses.dedup();
    let holders = plan.placements.iter().filter(|at| at.holds && at.pipeline_stage == pipeline).count();
    let slots = holders.min(plan.config.prefetch + 1);
    let (mut held, mut current): (Vec<(usize, usize)>, Option<usize>) = (Vec::new(), None);
    for op in ops {
        match *op {
            Op::Gather { unit, slot } => held.push((unit, slot)),
            Op::Release { unit } => held.retain(|&(other, _)| other != unit),
            _ => {}
        }
        if let Some(unit) = held_for(plan, op) {
            let is_next = current.is_none_or(|current| uses[current] != unit);
            let use_now = current.map_or(0, |current| current + usize::from(is_next));
            current = Some(use_now);
            assert_eq!(uses[use_now], unit);
            assert!(held.iter().any(|&(other, _)| other == unit), "{op:?} of what is not gathered");
            assert_eq!(held.len() - 1, ahead(&uses[use_now..], plan.config.prefetch), "at {op:?}, {plan:?}");
        }
        assert!(held.len() <= slots && held.iter().all(|&(_, slot)| slot < slots), "{held:?} of {slots} slots");
    }
    assert!(held.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn as_many_units_are_gathered_ahead_as_can_be(model in models(48)) {
        let config = Config { gather: Often::PerMicroBatch, ..model.config.at_stage(3) };
        Model { config, ..model }.plan().with(|plan| {
            (0..plan.pipeline_stages.len()).for_each(|pipeline| assert_gathers_ahead(plan, pipeline));
        });
    }
}

#[test]
fn what_is_held_for_a_step_is_gathered_as_far_ahead_as_asked_for() {
    let config = Config { gather: Often::PerStep, micro_batches: 2, ..config(3) };
    Model::new(config, &[32; 5], None).plan().with(|plan| {
        let (mut gathered, mut waited) = (0, 0);
        for op in plan.pipeline_stages[0].step {
            gathered += usize::from(matches!(op, Op::Gather { .. }));
            if let Op::Wait { .. } = op {
                waited += 1;
                assert_eq!(gathered, (waited + config.prefetch).min(5), "{:?}", plan.pipeline_stages[0].step);
            }
        }
        assert_eq!(waited, 5);
    });
}
