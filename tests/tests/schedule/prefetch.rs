//! Prefetch: how far ahead of its use a unit is gathered at stage 3.

use proptest::prelude::*;
use zero_plan::{Op, Plan};

use crate::model::{Model, models};

/// A stretch of computations on one flat buffer.
#[derive(Clone, Copy, Debug)]
struct Use {
    unit: usize,
    first: usize,
}

/// The owners whose parameters are used, in the order of use, each with the computation that begins it.
fn uses(plan: &Plan) -> Vec<Use> {
    let units = 0..plan.units.len();
    let there_and_back: Vec<usize> = units.clone().chain(units.rev()).collect();
    let mut uses: Vec<Use> = Vec::new();
    for first in 0..there_and_back.len() * plan.config.micro_batches {
        let unit = plan.units[there_and_back[first % there_and_back.len()]].source;
        let is_new = uses.last().is_none_or(|last| last.unit != unit);
        if is_new && plan.placements[unit].padded > 0 {
            uses.push(Use { unit, first });
        }
    }
    uses
}

/// How many uses beyond `current` can be gathered: all that `prefetch` says, up to the end and up to the first whose unit
/// is then held for a use before it.
fn ahead(uses: &[Use], current: usize, prefetch: usize) -> usize {
    let rest = &uses[current..];
    let can_be = |ahead: &usize| rest[..*ahead].iter().all(|earlier| earlier.unit != rest[*ahead].unit);
    (1..rest.len()).take(prefetch).take_while(can_be).count()
}

/// Walks a step and compares, at each computation, what is gathered beyond what it uses.
fn assert_gathers_ahead(plan: &Plan) {
    let uses = uses(plan);
    let owners = plan.placements.iter().filter(|at| at.padded > 0).count();
    let (mut held, mut computations): (Vec<(usize, usize)>, usize) = (Vec::new(), 0);
    for &op in plan.step {
        match op {
            Op::Gather { unit, slot } => held.push((unit, slot)),
            Op::Release { unit } => held.retain(|&(other, _)| other != unit),
            Op::Forward { unit, .. } | Op::Backward { unit, .. } => {
                let source = plan.units[unit].source;
                if plan.placements[source].padded > 0 {
                    let begun = uses.iter().rposition(|of| of.first <= computations).expect("this one has begun");
                    assert_eq!(uses[begun].unit, source);
                    assert!(held.iter().any(|&(unit, _)| unit == source), "{op:?} of what is not gathered");
                    assert_eq!(held.len() - 1, ahead(&uses, begun, plan.config.prefetch), "at {op:?}, {plan:#?}");
                }
                computations += 1;
            }
            _ => {}
        }
        let slots = owners.min(plan.config.prefetch + 1);
        assert!(held.len() <= slots && held.iter().all(|&(_, slot)| slot < slots), "{held:?} of {slots} slots");
    }
    assert!(held.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn as_many_units_are_gathered_ahead_as_can_be(model in models(12)) {
        let model = Model { config: model.config.at_stage(3), ..model };
        assert_gathers_ahead(&model.plan().as_plan());
    }
}
