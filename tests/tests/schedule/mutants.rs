//! Mutants: schedules with one fault. The check objects to each, but for those that a rule of `equivalence` excuses; and
//! of those the simulator says that they train as before.

use std::collections::BTreeMap;

use proptest::prelude::*;
use zero_plan::{Op, Plan, Transport};

use crate::equivalence;
use crate::model::{Model, config, models};
use crate::simulator::{Pace, simulate};

/// A change of a schedule.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Delete(usize),
    /// The op at the first place once more, before the second.
    Copy(usize, usize),
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
            Self::Copy(from, to) => ops.insert(to, ops[from]),
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

/// Small models that have between them what schedules can have: every stage and transport, buckets of one and of several
/// units, a tied unit, units without parameters at either end and in the middle, and slots for all units or for few.
fn small_models() -> Vec<Model> {
    let mut models = Vec::new();
    for stage in 0..=3 {
        for (params, tied) in [
            (&[40, 7, 90][..], None),
            (&[9, 70, 20, 0], Some(1)),
            (&[0, 50, 0, 33, 0], None),
            (&[5, 6, 0], Some(1)),
            (&[8], None),
        ] {
            for (micro_batches, prefetch, bucket_bytes) in [(1, 1, 1), (2, 0, 300), (2, 2, 1), (3, 7, 1)] {
                let transport = if prefetch > 1 { Transport::Shm } else { Transport::Local };
                let config = zero_plan::Config { micro_batches, prefetch, bucket_bytes, transport, ..config(stage) };
                models.push(Model::new(config, params, tied));
            }
        }
    }
    models
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

#[test]
fn no_op_may_come_twice() {
    let tally =
        tally(|_, ops| (0..ops.len()).flat_map(|from| (0..=ops.len()).map(move |to| Edit::Copy(from, to))).collect());
    assert!(tally.rejected > 10_000 && tally.excused.is_empty(), "{} {:?}", tally.rejected, tally.excused);
}

#[test]
fn ops_that_depend_on_one_another_stay_in_order() {
    let tally =
        tally(|_, ops| (0..ops.len()).flat_map(|i| (i + 1..ops.len()).map(move |j| Edit::Swap(i, j))).collect());
    println!("{} {:#?}", tally.rejected, tally.excused);
    assert!(tally.rejected > 10_000);
}

#[test]
fn every_field_of_every_op_matters() {
    let tally = tally(|plan, ops| {
        (0..ops.len())
            .flat_map(|at| other_fields(plan, ops[at]).into_iter().map(move |op| Edit::Replace(at, op)))
            .collect()
    });
    println!("{} {:#?}", tally.rejected, tally.excused);
    assert!(tally.rejected > 10_000);
}

/// `op` with each of its fields set to each value up to one beyond the end.
fn other_fields(plan: &Plan, op: Op) -> Vec<Op> {
    let units = || 0..=plan.units.len();
    let buckets = || 0..=plan.buckets.len();
    let micro_batches = || 0..=plan.config.micro_batches;
    match op {
        Op::Gather { unit, slot } => {
            let slots = 0..=plan.config.prefetch + 1;
            units().map(|unit| Op::Gather { unit, slot }).chain(slots.map(|slot| Op::Gather { unit, slot })).collect()
        }
        Op::Wait { .. } => units().map(|unit| Op::Wait { unit }).collect(),
        Op::Release { .. } => units().map(|unit| Op::Release { unit }).collect(),
        Op::Forward { unit, micro_batch } => units()
            .map(|unit| Op::Forward { unit, micro_batch })
            .chain(micro_batches().map(|micro_batch| Op::Forward { unit, micro_batch }))
            .collect(),
        Op::Backward { unit, micro_batch } => units()
            .map(|unit| Op::Backward { unit, micro_batch })
            .chain(micro_batches().map(|micro_batch| Op::Backward { unit, micro_batch }))
            .collect(),
        Op::Claim { .. } => buckets().map(|bucket| Op::Claim { bucket }).collect(),
        Op::Reduce { bucket, micro_batch } => buckets()
            .map(|bucket| Op::Reduce { bucket, micro_batch })
            .chain(micro_batches().map(|micro_batch| Op::Reduce { bucket, micro_batch }))
            .collect(),
        Op::Settle { bucket, micro_batch } => buckets()
            .map(|bucket| Op::Settle { bucket, micro_batch })
            .chain(micro_batches().map(|micro_batch| Op::Settle { bucket, micro_batch }))
            .collect(),
        Op::Spread { .. } => buckets().map(|bucket| Op::Spread { bucket }).collect(),
        Op::Agree => Vec::new(),
        Op::Update { .. } => units().map(|unit| Op::Update { unit }).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_edits_of_random_schedules_are_caught(
        model in models(8),
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 40),
    ) {
        let plan = model.plan();
        let mut tally = Tally::default();
        tally.try_all(&plan.as_plan(), |ops| {
            let edits = |(a, b): &(prop::sample::Index, prop::sample::Index)| {
                let (a, b) = (a.index(ops.len()), b.index(ops.len()));
                let next = (a + 1).min(ops.len() - 1);
                [Edit::Delete(a), Edit::Copy(a, b), Edit::Swap(a.min(b), a.max(b)), Edit::Swap(a, next), Edit::Replace(a, ops[b])]
            };
            places.iter().flat_map(edits).collect()
        });
    }
}
