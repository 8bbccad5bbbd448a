//! Mutants: schedules with one fault. The check objects to each, but for those that a rule of `equivalence` excuses; and
//! of those the simulator says that they train as before.

use std::collections::BTreeMap;

use proptest::prelude::*;
use zero_plan::{Config, Op, Plan};

use crate::equivalence;
use crate::model::{Model, config, models, small_models};
use crate::simulator::{Pace, simulate};

/// A change of a schedule.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Delete(usize),
    Insert(usize, Op),
    /// The first place lies before the second.
    Swap(usize, usize),
    Replace(usize, Op),
}

/// Which table of a plan is edited.
#[derive(Clone, Copy, Debug)]
enum Table {
    Step,
    Evaluation,
}

impl Edit {
    fn apply(self, ops: &[Op]) -> Vec<Op> {
        let mut ops = ops.to_vec();
        match self {
            Self::Delete(at) => drop(ops.remove(at)),
            Self::Insert(at, op) => ops.insert(at, op),
            Self::Swap(a, b) => ops.swap(a, b),
            Self::Replace(at, op) => ops[at] = op,
        }
        ops
    }
}

/// How often each rule excused a mutant, and how many the check objected to.
#[derive(Default)]
struct Tally {
    rejected: usize,
    excused: BTreeMap<&'static str, usize>,
}

impl Tally {
    /// Holds one mutant against the check.
    #[track_caller]
    fn try_edit(&mut self, plan: &Plan, table: Table, edit: Edit) {
        let ops = match table {
            Table::Step => plan.step,
            Table::Evaluation => plan.evaluation,
        };
        let edited = edit.apply(ops);
        if edited == ops {
            return;
        }
        let mutant = match table {
            Table::Step => Plan { step: &edited, ..*plan },
            Table::Evaluation => Plan { evaluation: &edited, ..*plan },
        };
        if mutant.check().is_err() {
            self.rejected += 1;
            return;
        }
        let rule = equivalence::of_slots(plan, ops, &edited).or(match edit {
            Edit::Swap(a, b) => equivalence::of_swap(plan, ops, a, b),
            _ => None,
        });
        let Some(rule) = rule else { panic!("{table:?} survives {edit:?}: {plan:#?}") };
        for pace in Pace::ALL {
            assert_eq!(simulate(&mutant, pace), Ok(()), "{table:?} after {edit:?} is excused by: {rule}; {plan:#?}");
        }
        *self.excused.entry(rule).or_default() += 1;
    }

    fn try_all(&mut self, plan: &Plan, edits: impl Fn(&[Op]) -> Vec<Edit>) {
        for (table, ops) in [(Table::Step, plan.step), (Table::Evaluation, plan.evaluation)] {
            for edit in edits(ops) {
                self.try_edit(plan, table, edit);
            }
        }
    }
}

fn tally(edits: impl Fn(&Plan, &[Op]) -> Vec<Edit>) -> Tally {
    let mut tally = Tally::default();
    for model in small_models() {
        let plan = model.plan();
        assert_eq!(plan.as_plan().check(), Ok(()));
        tally.try_all(&plan.as_plan(), |ops| edits(&plan.as_plan(), ops));
    }
    tally
}

#[test]
fn every_op_is_needed() {
    let tally = tally(|_, ops| (0..ops.len()).map(Edit::Delete).collect());
    assert!(tally.rejected > 1_000 && tally.excused.is_empty(), "{} {:?}", tally.rejected, tally.excused);
}

/// Else that the simulator is content with a mutant would mean little.
#[test]
fn the_simulator_misses_every_op_that_does_something() {
    for model in small_models() {
        let plan = model.plan();
        let plan = plan.as_plan();
        for (at, op) in plan.step.iter().enumerate() {
            // A claim or a release orders what others do, and may do so for nobody; unit 0 has no input to differentiate.
            if !matches!(op, Op::Claim { .. } | Op::Release { .. } | Op::Backward { unit: 0, .. }) {
                let mutant = Plan { step: &Edit::Delete(at).apply(plan.step), ..plan };
                assert!(goes_wrong(&mutant), "{op:?} at {at} is not missed: {plan:#?}");
            }
        }
    }
}

fn goes_wrong(plan: &Plan) -> bool {
    Pace::ALL.into_iter().any(|pace| simulate(plan, pace).is_err())
}

/// Peers know a reduction by its number: a rank that settles the second first makes them overwrite what the first needs.
#[test]
fn a_settle_out_of_order_is_a_race() {
    let config = Config { micro_batches: 2, ..config(2) };
    let plan = Model::new(config, &[40, 7], None).plan();
    let plan = plan.as_plan();
    let first = plan.step.iter().position(|op| matches!(op, Op::Settle { .. })).expect("gradients are settled");
    assert!(matches!(plan.step[first + 1], Op::Settle { .. }), "{:?}", plan.step);
    let step = Edit::Swap(first, first + 1).apply(plan.step);
    let mutant = Plan { step: &step, ..plan };
    assert!(goes_wrong(&mutant));
    assert_eq!(mutant.check().map_err(|fault| fault.op), Err(first));
}

#[test]
fn no_op_may_be_added() {
    let tally = tally(|plan, ops| {
        let everywhere = |op| (0..=ops.len()).map(move |at| Edit::Insert(at, op));
        vocabulary(plan).into_iter().flat_map(everywhere).collect()
    });
    assert!(tally.rejected > 100_000 && tally.excused.is_empty(), "{} {:?}", tally.rejected, tally.excused);
}

#[test]
fn ops_that_depend_on_one_another_stay_in_order() {
    let tally =
        tally(|_, ops| (0..ops.len()).flat_map(|i| (i + 1..ops.len()).map(move |j| Edit::Swap(i, j))).collect());
    assert!(tally.rejected > 10_000);
    // Each rule is met, so that none is there for nothing.
    assert!(equivalence::SWAPS.iter().all(|(_, rule)| tally.excused.contains_key(rule)), "{:#?}", tally.excused);
}

#[test]
fn no_op_can_stand_for_another() {
    let tally = tally(|plan, ops| {
        let everywhere = |op| (0..ops.len()).map(move |at| Edit::Replace(at, op));
        vocabulary(plan).into_iter().flat_map(everywhere).collect()
    });
    assert!(tally.rejected > 100_000);
    assert!(tally.excused.keys().eq(&equivalence::SLOTS), "{:#?}", tally.excused);
}

/// Every op on every unit, bucket, slot and micro-batch, and on one beyond the last of each.
fn vocabulary(plan: &Plan) -> Vec<Op> {
    let mut ops = vec![Op::Agree];
    for unit in 0..=plan.units.len() {
        ops.extend([Op::Wait { unit }, Op::Release { unit }, Op::Update { unit }]);
        ops.extend((0..=plan.config.prefetch + 1).map(|slot| Op::Gather { unit, slot }));
        for micro_batch in 0..=plan.config.micro_batches {
            ops.extend([Op::Forward { unit, micro_batch }, Op::Backward { unit, micro_batch }]);
        }
    }
    for bucket in 0..=plan.buckets.len() {
        ops.extend([Op::Claim { bucket }, Op::Spread { bucket }]);
        for micro_batch in 0..=plan.config.micro_batches {
            ops.extend([Op::Reduce { bucket, micro_batch }, Op::Settle { bucket, micro_batch }]);
        }
    }
    ops
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_edits_of_random_schedules_are_caught(
        model in models(8),
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 10),
    ) {
        let plan = model.plan();
        let mut tally = Tally::default();
        tally.try_all(&plan.as_plan(), |ops| {
            let edits = |(a, b): &(prop::sample::Index, prop::sample::Index)| {
                let (a, b) = (a.index(ops.len()), b.index(ops.len()));
                let next = (a + 1).min(ops.len() - 1);
                [
                    Edit::Delete(a),
                    Edit::Insert(a, ops[b]),
                    Edit::Swap(a.min(b), a.max(b)),
                    Edit::Swap(a, next),
                    Edit::Replace(a, ops[b]),
                ]
            };
            places.iter().flat_map(edits).collect()
        });
    }
}
