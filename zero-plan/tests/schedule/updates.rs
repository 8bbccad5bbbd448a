//! Updates: steps that begin with the updates of the step before, each unit just before its first use. Schedules with one fault in
//! that are refused.

use zero_plan::{Config, Offload, Op, Pass, TierBytes, TierKind, UpdateTime, prove_ranks};

use crate::model::{
    Model, ON_DISK, at_use, config, mesh, models_with_offloaded_parameters, models_with_offloaded_sums,
    offloaded_models,
};
use crate::mutants::Edit;
use crate::shards::by_shard_slot;
use crate::tiers::{by_slot, by_sums_slot, edits, fetches};

/// A step that begins with the updates of the last one has each before the first fetch or gather of its unit, and after the
/// fetch or gather of the unit before it; and nothing after the agreement.
#[test]
fn updates_at_use_come_just_before_it() {
    for model in at_use([offloaded_models(), models_with_offloaded_sums(), models_with_offloaded_parameters()].concat())
    {
        model.plan().with(|plan| {
            let ops = plan.pipeline_stages[0].step;
            assert_eq!(ops.last(), Some(&Op::Agree));
            let takes = |op: &Op| match op {
                Op::FetchShard { unit, .. } => Some(*unit),
                Op::Gather { unit, .. } if !plan.config.offloads_parameters() => Some(*unit),
                _ => None,
            };
            let (mut updated, mut taken) = (Vec::new(), Vec::new());
            for op in ops {
                if let Op::Update { unit, .. } = op {
                    assert!(!taken.contains(unit), "{unit} is used before its update: {:?}", plan.config);
                    let before = (0..*unit).rfind(|&unit| plan.placements[unit].holds);
                    assert!(before.is_none_or(|unit| taken.contains(&unit)), "{unit} is updated too early");
                    updated.push(*unit);
                }
                taken.extend(takes(op));
            }
            updated.dedup();
            let held: Vec<usize> = (0..plan.units.len()).filter(|&unit| plan.units[unit].params > 0).collect();
            assert_eq!(updated, held, "{:?}", plan.config);
            assert!(TierBytes::of(plan, 0).read > 0);
        });
    }
}

/// Nothing that a step begins with waits behind pieces of later units: before the first forward, a unit's shard, or its gather, comes
/// before the pieces of all units after it.
#[test]
fn pieces_of_later_units_come_after_the_shards_of_a_step_that_begins() {
    let mut all = 0;
    for model in at_use([offloaded_models(), models_with_offloaded_parameters()].concat()) {
        model.plan().with(|plan| {
            let first = plan.pipeline_stages[0].step.iter().take_while(|op| !matches!(op, Op::Forward { .. }));
            let (mut fetched, mut shards) = (0, 0);
            for op in first {
                match op {
                    Op::Fetch { unit, .. } => fetched = fetched.max(*unit),
                    Op::FetchShard { unit, .. } | Op::Gather { unit, .. } => {
                        assert!(fetched <= *unit || shards > *unit, "{fetched} before {unit}: {:?}", plan.config);
                        shards = shards.max(*unit + 1);
                    }
                    _ => {}
                }
            }
            all += shards;
        });
    }
    assert!(all > 10, "{all}");
}

/// A step that begins with the updates of the last one, without an op of a tier or an update, with one more, with another in
/// its place, or with any two exchanged. Accepted are only exchanges that change nothing that a slot or a unit sees.
#[test]
fn a_fault_in_an_update_at_use_is_found() {
    let mut refused = 0;
    for (gradients, parameters) in [(TierKind::Device, TierKind::Device), (TierKind::Disk, TierKind::Disk)] {
        let offload = Offload { gradients, parameters, prefetch: 0, update: UpdateTime::AtUse, ..ON_DISK };
        let config = Config { mesh: mesh(1, 1, 1), offload, prefetch: 1, bucket_bytes: 1, ..config(3) };
        Model::new(config, &[9000, 7, 70], None).plan().with(|plan| {
            let ops = plan.pipeline_stages[0].step;
            let is_of_states = |op: &Op| op.traits().piece.is_some() || op.traits().stream.is_of_tier();
            for edit in edits(plan, ops, is_of_states) {
                let edited = edit.apply(ops);
                let is_refused = prove_ranks(plan, Pass::Train, &[&edited]).is_err();
                // Each unit sees its update as a whole, before its first use and before the sum of its bucket.
                let sees = |ops: &[Op]| {
                    let order = |unit: usize| {
                        let bucket = plan.placements[unit].bucket;
                        let last =
                            ops.iter().rposition(|op| matches!(op, Op::Update { unit: other, .. } if *other == unit));
                        let is_use = |op: &Op| match *op {
                            Op::Gather { unit: other, .. } | Op::FetchShard { unit: other, .. } => other == unit,
                            Op::Settle { bucket: other, .. } => other == bucket,
                            _ => false,
                        };
                        let uses = ops.iter().enumerate().filter(|(at, op)| Some(*at) == last || is_use(op));
                        uses.map(|(_, op)| (op.name(), op.round())).collect::<Vec<_>>()
                    };
                    let orders: Vec<_> = (0..plan.units.len()).map(order).collect();
                    (by_slot(ops), fetches(ops), by_shard_slot(ops), by_sums_slot(plan, ops), orders)
                };
                let is_same = || sees(&edited) == sees(ops);
                assert!(is_refused || is_same() && matches!(edit, Edit::Swap(..)), "{edit:?}: {ops:?}");
                refused += usize::from(is_refused);
            }
        });
    }
    assert!(refused > 1_000, "{refused}");
}
