//! Mutants: schedules with one fault, on all ranks of a pipeline stage or on one rank alone. The provers object to
//! each, except those that a rule of `equivalence` excuses; the simulator confirms that those train as before.

use std::collections::BTreeMap;

use proptest::prelude::*;
use zero_plan::{Axis, Config, Coordinates, Op, Parcel, Pass, PipelineStage, Plan, prove, prove_ranks};

use crate::equivalence;
use crate::model::{Model, config, mesh, models, small_models};
use crate::simulator::{Pace, simulate, simulate_ranks};

/// A change of a schedule.
#[derive(Clone, Copy, Debug)]
pub enum Edit {
    Delete(usize),
    Insert(usize, Op),
    /// The first place must be before the second.
    Swap(usize, usize),
    Replace(usize, Op),
}

impl Edit {
    pub fn apply(self, ops: &[Op]) -> Vec<Op> {
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

/// The table of a plan that is edited.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    pub pipeline: usize,
    pub pass: Pass,
}

/// Calls back with the plan, in which one table is replaced.
pub fn with_table<R>(plan: &Plan, table: Table, ops: &[Op], use_plan: impl FnOnce(&Plan) -> R) -> R {
    let mut pipeline_stages: Vec<PipelineStage> = plan.pipeline_stages.to_vec();
    match table.pass {
        Pass::Train => pipeline_stages[table.pipeline].step = ops,
        Pass::Evaluate => pipeline_stages[table.pipeline].evaluation = ops,
        Pass::Publish => pipeline_stages[table.pipeline].publication = ops,
    }
    use_plan(&Plan { pipeline_stages: &pipeline_stages, ..*plan })
}

/// The tables of all ranks for a pass, with another table for only the last rank of a pipeline stage.
fn with_rank<'a>(plan: &Plan<'a>, table: Table, ops: &'a [Op], pass: Pass) -> Vec<&'a [Op]> {
    let mesh = &plan.config.mesh;
    let mut of_ranks: Vec<&[Op]> = (0..mesh.ranks()).map(|rank| plan.of_rank(rank).ops(pass)).collect();
    if pass == table.pass {
        let last = Coordinates { zero: mesh.zero - 1, replica: mesh.replica - 1, pipeline: table.pipeline };
        of_ranks[mesh.rank(last)] = ops;
    }
    of_ranks
}

/// How often each rule excused a mutant, and how many mutants the provers objected to.
#[derive(Default)]
struct Tally {
    rejected: usize,
    /// Those of them that are sound by themselves, and wrong only because other ranks do something else.
    rejected_together: usize,
    excused: BTreeMap<&'static str, usize>,
}

impl Tally {
    /// Tries one mutant on the provers, for all ranks of its pipeline stage and for one alone.
    #[track_caller]
    fn try_edit(&mut self, plan: &Plan, table: Table, edit: Edit) {
        let ops = plan.pipeline_stages[table.pipeline].ops(table.pass);
        let edited = edit.apply(ops);
        if edited == ops {
            return;
        }
        let is_refused = with_table(plan, table, &edited, |mutant| prove(mutant).is_err());
        if is_refused {
            self.rejected += 1;
        } else {
            let rule = self.excuse(plan, table, edit, &edited);
            with_table(plan, table, &edited, |mutant| {
                for pace in Pace::ALL {
                    assert_eq!(
                        simulate(mutant, pace),
                        Ok(()),
                        "{table:?}, {edit:?}, excused by: {rule}; {:?}",
                        plan.config
                    );
                }
            });
        }
        if plan.config.mesh.data_ranks() > 1 {
            self.try_rank(plan, table, edit, &edited, is_refused);
        }
    }

    fn try_rank(&mut self, plan: &Plan, table: Table, edit: Edit, edited: &[Op], is_refused: bool) {
        if prove_ranks(plan, table.pass, &with_rank(plan, table, edited, table.pass)).is_err() {
            self.rejected += 1;
            self.rejected_together += usize::from(!is_refused);
            return;
        }
        let rule = self.excuse(plan, table, edit, edited);
        let of = |pass| with_rank(plan, table, edited, pass);
        for pace in Pace::ALL {
            let done = simulate_ranks(plan, &of(Pass::Train), &of(Pass::Evaluate), pace);
            assert_eq!(done, Ok(()), "one rank, {table:?}, {edit:?}, excused by: {rule}; {:?}", plan.config);
        }
    }

    #[track_caller]
    fn excuse(&mut self, plan: &Plan, table: Table, edit: Edit, edited: &[Op]) -> &'static str {
        let ops = plan.pipeline_stages[table.pipeline].ops(table.pass);
        let rule = equivalence::of_slots(plan, ops, edited).or(match edit {
            Edit::Swap(a, b) => equivalence::of_swap(plan, ops, a, b),
            _ => None,
        });
        let Some(rule) = rule else { panic!("{table:?} survives {edit:?}: {:?} {ops:?}", plan.config) };
        *self.excused.entry(rule).or_default() += 1;
        rule
    }

    fn try_all(&mut self, plan: &Plan, edits: impl Fn(&[Op]) -> Vec<Edit>) {
        for pipeline in 0..plan.pipeline_stages.len() {
            for pass in [Pass::Train, Pass::Evaluate] {
                for edit in edits(plan.pipeline_stages[pipeline].ops(pass)) {
                    self.try_edit(plan, Table { pipeline, pass }, edit);
                }
            }
        }
    }
}

fn tally(models: &[Model], edits: impl Fn(&Plan, &[Op]) -> Vec<Edit>) -> Tally {
    let mut tally = Tally::default();
    for model in models {
        model.plan().with(|plan| {
            prove(plan).unwrap_or_else(|flaw| panic!("{flaw}"));
            tally.try_all(plan, |ops| edits(plan, ops));
        });
    }
    tally
}

#[test]
fn every_op_is_needed() {
    let tally = tally(&small_models(), |_, ops| (0..ops.len()).map(Edit::Delete).collect());
    assert!(tally.rejected > 1_000 && tally.excused.is_empty(), "{} {:?}", tally.rejected, tally.excused);
}

/// Otherwise it would mean little that the simulator accepts a mutant.
#[test]
fn the_simulator_misses_every_op_that_does_something() {
    for model in small_models() {
        model.plan().with(|plan| {
            for pipeline in 0..plan.pipeline_stages.len() {
                let table = Table { pipeline, pass: Pass::Train };
                let ops = plan.pipeline_stages[pipeline].step;
                for (at, op) in ops.iter().enumerate().filter(|(_, op)| does_something(plan, op)) {
                    let edited = Edit::Delete(at).apply(ops);
                    let is_missed = with_table(plan, table, &edited, goes_wrong);
                    assert!(
                        is_missed,
                        "{op:?} at {at} of pipeline stage {pipeline} is not missed: {:?} {ops:?}",
                        plan.config
                    );
                }
            }
        });
    }
}

/// Whether an op does more than order other ops, which may be in order without it.
fn does_something(plan: &Plan, op: &Op) -> bool {
    match op {
        Op::Claim { .. } | Op::Release { .. } | Op::Clear { .. } => false,
        // In other plans, gathers, and spreads of earlier sums, may order as much.
        Op::Reduce { .. } => {
            plan.config.mesh.zero > 1 && plan.config.mesh.replica == 1 && (1..=2).contains(&plan.config.stage)
        }
        // A replica of one shard is never stale.
        Op::Gather { .. } | Op::Wait { .. } => plan.config.mesh.zero > 1 || plan.config.shards_parameters(),
        // The first unit has no input to differentiate.
        Op::Backward { unit: 0, .. } => false,
        // A single shard that is summed in place is already whole.
        Op::Spread { axis: Axis::Zero, .. } => plan.config.mesh.zero > 1 || !plan.config.reduces_in_place(),
        _ => true,
    }
}

fn goes_wrong(plan: &Plan) -> bool {
    Pace::ALL.into_iter().any(|pace| simulate(plan, pace).is_err())
}

/// Peers know a reduction by its number, so a rank that settles the second one first lets them overwrite terms that the
/// first one needs.
#[test]
fn a_settle_out_of_order_is_a_race() {
    let config = Config { micro_batches: 2, ..config(2) };
    Model::new(config, &[40, 7], None).plan().with(|plan| {
        let ops = plan.pipeline_stages[0].step;
        let settles = |op: &Op| matches!(op, Op::Settle { .. });
        let first = ops.iter().position(settles).expect("gradients are settled");
        let second = first + 1 + ops[first + 1..].iter().position(settles).expect("both of them");
        let edited = Edit::Swap(first, second).apply(ops);
        with_table(plan, Table { pipeline: 0, pass: Pass::Train }, &edited, |mutant| {
            assert!(goes_wrong(mutant));
            assert!(prove(mutant).is_err());
        });
    });
}

/// A flaw that only a look at several ranks together can find, because each schedule is sound by itself.
#[test]
fn a_rank_that_does_the_same_in_another_order_is_found() {
    let config = Config { stage: 3, prefetch: 2, ..config(3) };
    Model::new(config, &[40, 7, 9], None).plan().with(|plan| {
        let ops = plan.pipeline_stages[0].step;
        let gathers = |op: &Op| matches!(op, Op::Gather { .. });
        assert!(gathers(&ops[0]) && gathers(&ops[1]));
        let (edited, table) = (Edit::Swap(0, 1).apply(ops), Table { pipeline: 0, pass: Pass::Train });
        with_table(plan, table, &edited, |mutant| assert!(prove(mutant).is_ok()));
        let flaw = prove_ranks(plan, Pass::Train, &with_rank(plan, table, &edited, Pass::Train)).unwrap_err();
        let expected = "\
[Z0292] unsound plan, in a training step: ranks issue another collective 0 on their `zero` communicator
  rank 0 (zero 0, replica 0, pipeline stage 0), op 0: Gather { unit: 0, slot: 0 }, issues Collective { \
            kind: \"all-gather of a unit\", of: 0, round: 0, width: Some(F32), elements: 64 }
  rank 1 (zero 1, replica 0, pipeline stage 0), op 0: Gather { unit: 1, slot: 1 }, issues Collective { \
            kind: \"all-gather of a unit\", of: 1, round: 0, width: Some(F32), elements: 32 }";
        assert_eq!(flaw.to_string(), expected);
    });
}

#[test]
fn no_rank_is_taken_to_do_what_its_peer_does() {
    let config = Config { mesh: mesh(1, 3, 1), prefetch: 2, ..config(3) };
    Model::new(config, &[40, 7, 9], None).plan().with(|plan| {
        let (edited, table) =
            (Edit::Swap(0, 1).apply(plan.pipeline_stages[0].step), Table { pipeline: 0, pass: Pass::Train });
        let flaw = prove_ranks(plan, Pass::Train, &with_rank(plan, table, &edited, Pass::Train)).unwrap_err();
        assert_eq!(flaw.places.iter().map(|place| place.rank).collect::<Vec<_>>(), [0, 2], "{flaw}");
    });
}

/// On one rank, there are none. On two pipeline stages of two ranks each, there are three sums and an all-gather of the
/// bucket of each, and the agreement; and parcels of three micro-batches forward and backward, and of an evaluation.
#[test]
fn a_proof_counts_what_it_has_matched() {
    let proof = |config| Model::new(config, &[40, 7], None).plan().with(|plan| prove(plan).expect("a sound plan"));
    let alone = proof(Config { mesh: mesh(1, 1, 1), ..config(0) });
    assert_eq!((alone.ranks, alone.communicators, alone.collectives, alone.parcels), (1, 0, 0, 0));
    let piped = proof(Config { mesh: mesh(2, 2, 1), micro_batches: 3, ..config(0) });
    assert_eq!(
        (piped.ranks, piped.communicators, piped.collectives, piped.parcels),
        (4, 3, 2 * 4 + 1, 2 * (3 + 3 + 1))
    );
}

/// Two pipeline stages that each wait for the other's parcel first. Both are sound by themselves, and all parcels pair.
#[test]
fn a_cycle_is_named() {
    let config = Config { mesh: mesh(2, 1, 1), micro_batches: 2, ..config(0) };
    Model::new(config, &[4, 7], None).plan().with(|plan| {
        // The first pipeline stage takes the gradient of its first micro-batch before it sends that micro-batch.
        let ops = plan.pipeline_stages[0].step;
        let sends = |op: &Op| matches!(op, Op::Send { .. });
        let takes = |op: &Op| matches!(op, Op::Receive { .. });
        let (send, take) = (ops.iter().position(sends).unwrap(), ops.iter().position(takes).unwrap());
        let mut edited = ops.to_vec();
        edited[send..=take].rotate_right(1);
        let of_ranks = [&edited[..], plan.pipeline_stages[1].step];
        let flaw = prove_ranks(plan, Pass::Train, &of_ranks).unwrap_err();
        let expected = "\
[Z0292] unsound plan, in a training step: a deadlock: each of these ranks waits for the next, and the last for the first
  rank 0 (zero 0, replica 0, pipeline stage 0), op 2: Receive { parcel: Gradients, unit: 0, micro_batch: 0, slot: 0 }, \
            waits for rank 1 to send parcel 0 of Gradients
  rank 1 (zero 0, replica 0, pipeline stage 1), op 0: Receive { parcel: Activations, unit: 1, micro_batch: 0, slot: 0 }, \
            waits for rank 0 to send parcel 0 of Activations";
        assert_eq!(flaw.to_string(), expected);
    });
}

#[test]
fn ops_that_depend_on_one_another_stay_in_order() {
    let swaps = |ops: &[Op]| (0..ops.len()).flat_map(|i| (i + 1..ops.len()).map(move |j| Edit::Swap(i, j))).collect();
    let tally = tally(&small_models(), |_, ops| swaps(ops));
    assert!(tally.rejected > 10_000 && tally.rejected_together > 100, "{} {}", tally.rejected, tally.rejected_together);
    // Each rule is used, so none is superfluous.
    assert!(equivalence::SWAPS.iter().all(|(_, rule)| tally.excused.contains_key(rule)), "{:#?}", tally.excused);
}

/// Every third of the small models, of which there are equally many of each kind. Not all are tried, because there are
/// many ops, and many places for each.
fn some_models() -> Vec<Model> {
    small_models().into_iter().step_by(3).collect()
}

#[test]
fn no_op_may_be_added() {
    let tally = tally(&some_models(), |plan, ops| {
        let everywhere = |op| (0..=ops.len()).map(move |at| Edit::Insert(at, op));
        vocabulary(plan).into_iter().flat_map(everywhere).collect()
    });
    assert!(tally.rejected > 100_000 && tally.excused.is_empty(), "{} {:?}", tally.rejected, tally.excused);
}

#[test]
fn no_op_can_stand_for_another() {
    let tally = tally(&some_models(), |plan, ops| {
        let everywhere = |op| (0..ops.len()).map(move |at| Edit::Replace(at, op));
        vocabulary(plan).into_iter().flat_map(everywhere).collect()
    });
    assert!(tally.rejected > 100_000);
    assert!(equivalence::SLOTS.iter().all(|rule| tally.excused.contains_key(rule)), "{:#?}", tally.excused);
}

/// Every op on every unit, bucket, slot and micro-batch, including one beyond the last of each.
pub fn vocabulary(plan: &Plan) -> Vec<Op> {
    let config = &plan.config;
    let mut ops = vec![Op::Agree];
    ops.extend(Parcel::ALL.map(|parcel| Op::Clear { parcel }));
    let slots =
        (0..plan.pipeline_stages.len()).map(|pipeline| plan.tables().activation_slots(pipeline)).max().unwrap_or(0);
    for unit in 0..=plan.units.len() {
        ops.extend([Op::Wait { unit }, Op::Release { unit }, Op::Update { unit, piece: None }, Op::Fold { unit }]);
        ops.push(Op::Momentum { unit });
        for slot in 0..=config.prefetch.min(plan.units.len()) + 1 {
            ops.extend([Op::Gather { unit, slot }, Op::Convert { unit, slot }]);
        }
        for micro_batch in 0..=config.micro_batches {
            ops.extend(Parcel::ALL.map(|parcel| Op::Send { parcel, unit, micro_batch }));
            for slot in 0..=slots {
                ops.extend([
                    Op::Forward { unit, micro_batch, slot },
                    Op::Recompute { unit, micro_batch, slot },
                    Op::Backward { unit, micro_batch, slot },
                ]);
                ops.extend(Parcel::ALL.map(|parcel| Op::Receive { parcel, unit, micro_batch, slot }));
            }
        }
    }
    for bucket in 0..=plan.buckets.len() {
        ops.push(Op::Claim { bucket });
        ops.extend(Axis::ALL.map(|axis| Op::Spread { bucket, axis }));
        for round in 0..=config.reductions() {
            ops.extend([Op::Reduce { bucket, round }, Op::Settle { bucket, round }, Op::Combine { bucket, round }]);
        }
    }
    ops
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_edits_of_random_schedules_are_caught(
        model in models(8),
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 6),
    ) {
        let mut tally = Tally::default();
        model.plan().with(|plan| tally.try_all(plan, |ops| {
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
        }));
    }
}
