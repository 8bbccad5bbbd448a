//! Tiers: plans that keep optimizer states outside the device. Where pieces lie is worked out here from sizes alone, and
//! schedules with one fault in their fetches, updates and stores are refused.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::catch_unwind;

use zero_plan::budget::require_budget;
use zero_plan::place::{Kept, Place};
use zero_plan::{
    Config, DeviceKind, Home, Kind, Memory, Offload, Op, Origin, Pass, Piece, Plan, Report, TierBytes, TierKind,
    TransportKind, prove, prove_ranks,
};

use crate::activations;
use crate::model::{
    Model, ON_DISK, at_use, config, mesh, models_with_offloaded_parameters, models_with_offloaded_sums,
    offloaded_models,
};
use crate::mutants::Edit;

/// Every op on pieces, including one beyond the last unit, piece and slot of each.
pub fn vocabulary(plan: &Plan) -> Vec<Op> {
    let tables = plan.tables();
    let slots = (0..plan.pipeline_stages.len()).map(|pipeline| tables.window_slots(pipeline)).max().unwrap_or(0);
    let pieces = (0..plan.units.len()).map(|unit| if slots > 0 { tables.pieces(unit) } else { 0 }).max().unwrap_or(0);
    let pieces = (0..=pieces).flat_map(|index| (0..=slots).map(move |slot| Piece { index, slot }));
    let ops = |unit| {
        let of_piece = move |piece| {
            [Op::Fetch { unit, piece }, Op::Update { unit, piece: Some(piece) }, Op::Store { unit, piece }]
        };
        pieces.clone().flat_map(of_piece).chain([Op::Update { unit, piece: None }])
    };
    let rounds = 0..=plan.config.reductions();
    let sums = move |bucket| {
        let of_round = move |round| [Op::FetchSums { bucket, round }, Op::StoreSums { bucket, round }];
        rounds.clone().flat_map(of_round)
    };
    let shards = |unit| (0..=Offload::SHARD_SLOTS).map(move |slot| Op::FetchShard { unit, slot });
    let of_units = (0..=plan.units.len()).flat_map(ops).chain((0..=plan.units.len()).flat_map(shards));
    of_units.chain((0..=plan.buckets.len()).flat_map(sums)).chain(activations::vocabulary(plan)).collect()
}

/// Checks and proves the plans of models.
pub fn assert_proven(models: impl IntoIterator<Item = Model>) {
    for model in models {
        model.plan().with(|plan| {
            assert_eq!(plan.check(), Ok(()), "{:?}", plan.config);
            prove(plan).unwrap_or_else(|flaw| panic!("{flaw}: {:?}", plan.config));
        });
    }
}

/// The same model on GPUs, with the states on their hosts that were on disk.
pub fn on_gpus(mut model: Model, transport: TransportKind) -> Model {
    let Offload { optimizer, gradients, parameters, .. } = &mut model.config.offload;
    for state in [optimizer, gradients, parameters] {
        *state = if *state == TierKind::Disk { TierKind::Host } else { *state };
    }
    model.on_gpus(transport)
}

#[test]
fn plans_with_tiers_are_proven() {
    let all = [offloaded_models(), models_with_offloaded_sums(), models_with_offloaded_parameters()].concat();
    let later = at_use(all.clone());
    assert!(later.len() > 10, "{}", later.len());
    assert_proven(later);
    assert_proven(all.clone());
    for transport in [TransportKind::Peer, TransportKind::Nccl] {
        assert_proven(all.iter().cloned().map(|model| on_gpus(model, transport)));
    }
}

/// What travels in a step, in order: the pieces of each unit, with the slots that rotate.
pub fn trip(ops: &[Op], kind: fn(Op) -> Option<(usize, Piece)>) -> Vec<(usize, Piece)> {
    ops.iter().filter_map(|&op| kind(op)).collect()
}

/// Each piece of each unit is fetched, updated and stored once, in the same order, and no op of an evaluation moves any.
#[test]
fn every_piece_makes_one_trip() {
    for model in offloaded_models() {
        model.plan().with(|plan| {
            for (pipeline, stage) in plan.pipeline_stages.iter().enumerate() {
                let slots = plan.tables().window_slots(pipeline);
                let mut expected = Vec::new();
                for (unit, placement) in plan.placements.iter().enumerate() {
                    let ranks = if plan.config.stage > 0 { plan.config.mesh.zero } else { 1 };
                    let is_owned = placement.pipeline_stage == pipeline && plan.units[unit].params > 0;
                    let elements = if is_owned { placement.padded / ranks } else { 0 };
                    let most = if plan.config.precision.moments.bytes() == 2 { 4096 } else { 2048 };
                    for index in 0..elements.div_ceil(most) {
                        expected.push((unit, Piece { index, slot: expected.len() % slots }));
                    }
                }
                assert_eq!(slots, (plan.config.offload.prefetch + 2).min(expected.len()));
                let fetched = |op| if let Op::Fetch { unit, piece } = op { Some((unit, piece)) } else { None };
                let stored = |op| if let Op::Store { unit, piece } = op { Some((unit, piece)) } else { None };
                let updated = |op| if let Op::Update { unit, piece } = op { Some((unit, piece?)) } else { None };
                for kind in [fetched, stored, updated] {
                    assert_eq!(trip(stage.step, kind), expected, "{:?}", plan.config);
                    assert_eq!(trip(stage.evaluation, kind), []);
                }
                // The first fetches come before anything else.
                assert!(stage.step[..slots].iter().all(|op| matches!(op, Op::Fetch { .. })));
            }
        });
    }
}

pub fn disjoint(mut ranges: Vec<Range<usize>>) -> bool {
    ranges.sort_by_key(|range| range.start);
    ranges.windows(2).all(|pair| pair[0].end <= pair[1].start)
}

/// Blocks of all pieces of all states lie apart in the file, and those of all slots in the window; all begin on blocks.
#[test]
fn pieces_lie_apart_in_whole_blocks() {
    for model in offloaded_models() {
        model.plan().with(|plan| {
            for rank in 0..plan.config.mesh.ranks() {
                let own = plan.places(plan.config.mesh.coordinates(rank));
                let mut kept: BTreeMap<usize, Vec<Range<usize>>> = BTreeMap::new();
                let mut window: BTreeMap<[usize; 3], Range<usize>> = BTreeMap::new();
                let slots = plan.tables().window_slots(own.at.pipeline);
                let range = |place: Place| {
                    let region = own.memory.region(place.region);
                    let start = region.offset_bytes + place.offset_bytes;
                    assert!(
                        [start, place.len_bytes].iter().all(|bytes| bytes.is_multiple_of(4096)),
                        "{place:?} is not made of blocks"
                    );
                    assert!(place.end_bytes() <= region.bytes, "{place:?} of {region:?}");
                    start..start + place.len_bytes
                };
                for (unit, index, slot) in pieces(plan, own.at.pipeline, slots) {
                    for part in own.states_of(unit, Piece { index, slot }) {
                        let (in_tier, in_window) = part.blocks();
                        assert_eq!(own.memory.region(in_tier.region).home, Home::Disk);
                        assert_eq!(own.memory.region(in_window.region).home, Home::Private);
                        assert_eq!(
                            (part.kept.len_bytes, in_tier.len_bytes),
                            (part.window.len_bytes, in_window.len_bytes)
                        );
                        if slot == 0 {
                            kept.entry(0).or_default().push(range(in_tier));
                        }
                        let used = window
                            .entry([
                                in_window.region as usize,
                                Kept::ALL.iter().position(|&kept| kept == part.of).expect("one of all"),
                                slot,
                            ])
                            .or_insert(range(in_window));
                        used.end = used.end.max(range(in_window).end);
                    }
                }
                assert!(kept.into_values().all(disjoint) && disjoint(window.into_values().collect()));
            }
        });
    }
}

/// All pieces of a pipeline stage in all slots.
fn pieces(plan: &Plan, pipeline: usize, slots: usize) -> Vec<(usize, usize, usize)> {
    let units = (0..plan.units.len()).filter(|&unit| plan.placements[unit].pipeline_stage == pipeline);
    let of_unit = |unit| (0..plan.tables().pieces(unit)).map(move |index| (unit, index));
    units.flat_map(of_unit).flat_map(|(unit, index)| (0..slots).map(move |slot| (unit, index, slot))).collect()
}

/// Two moments in f32 of 9088 elements, of which a rank has 4544: pieces of 2048, 2048 and 448 elements, which are
/// 8192, 8192 and 4096 bytes in whole blocks.
#[test]
fn what_travels_is_counted_in_blocks() {
    Model::new(Config { offload: ON_DISK, ..config(1) }, &[9088, 0], None).plan().with(|plan| {
        let bytes = 2 * (2 * 8192 + 4096);
        assert_eq!(TierBytes::of(plan, 1), TierBytes { read: bytes, written: bytes });
        let memory = &plan.pipeline_stages[0].memory;
        // Three slots of two moments; and the file, with a block of room between units.
        assert_eq!(memory.region(Kind::OptimizerWindow).bytes, 3 * 2 * 8192);
        assert_eq!(memory.bytes_of(Home::Disk), 2 * 4 * (3 * 2048 + 3 * 2048));
        assert!(memory.region(Kind::Optimizer).home.is_tier());
    });
}

#[test]
fn an_arena_has_the_window_in_place_of_the_states() {
    let plan = |offload| Model::new(Config { offload, ..config(1) }, &[100_000, 7], None).plan();
    let [here, there] =
        [Config::PLAIN.offload, ON_DISK].map(|offload| plan(offload).with(|plan| plan.bytes_per_rank_max()));
    // A rank has two moments of 50,000 elements and some padding, and a window of three slots.
    let states = plan(Config::PLAIN.offload).with(|plan| plan.pipeline_stages[0].memory.region(Kind::Optimizer).bytes);
    assert_eq!(here - there, states - 3 * 2 * 8192);
}

/// Ops of tiers and updates that use a slot, slot by slot.
pub fn by_slot(ops: &[Op]) -> BTreeMap<usize, Vec<Op>> {
    let mut slots: BTreeMap<usize, Vec<Op>> = BTreeMap::new();
    for &op in ops.iter().filter(|op| op.traits().piece.is_some()) {
        slots.entry(op.slot().expect("the slot of a piece")).or_default().push(op);
    }
    slots
}

/// Whether each unit's pieces are fetched in order.
pub fn fetches(ops: &[Op]) -> Vec<Vec<usize>> {
    let mut units = vec![Vec::new(); 8];
    for op in ops {
        if let Op::Fetch { unit, piece } = op {
            units[*unit].push(piece.index);
        }
    }
    units
}

/// A step without one op of a tier, with one more, with another in its place, or with two exchanged. Accepted are only
/// exchanges after which each slot sees the same ops.
#[test]
fn a_fault_in_a_trip_is_found() {
    let mut refused = 0;
    for stage in [0, 3] {
        let config = Config { mesh: mesh(1, 1, 1), offload: ON_DISK, ..config(stage) };
        Model::new(config, &[9000, 7, 2100], None).plan().with(|plan| {
            let ops = plan.pipeline_stages[0].step;
            let is_of_tier = |at: &usize| ops[*at].traits().piece.is_some();
            let at: Vec<usize> = (0..ops.len()).filter(is_of_tier).collect();
            let swaps = at.iter().flat_map(|&a| at.iter().filter(move |&&b| a < b).map(move |&b| Edit::Swap(a, b)));
            let deletes = at.iter().map(|&at| Edit::Delete(at));
            let all = vocabulary(plan);
            let replaces = at.iter().flat_map(|&at| all.iter().map(move |&op| Edit::Replace(at, op)));
            let inserts = (0..=ops.len()).flat_map(|at| all.iter().map(move |&op| Edit::Insert(at, op)));
            for edit in swaps.chain(deletes).chain(replaces).chain(inserts) {
                let edited = edit.apply(ops);
                if edited == ops {
                    continue;
                }
                let is_refused = prove_ranks(plan, Pass::Train, &[&edited]).is_err();
                let is_same = by_slot(&edited) == by_slot(ops) && fetches(&edited) == fetches(ops);
                assert!(is_refused || is_same && matches!(edit, Edit::Swap(..)), "{edit:?}: {ops:?}");
                refused += usize::from(is_refused);
            }
        });
    }
    assert!(refused > 3_000, "{refused}");
}

/// Every sum of every bucket goes to its tier, and comes back if another is added to it; none is fetched before it is stored.
#[test]
fn every_sum_makes_a_trip_for_each_micro_batch() {
    for model in models_with_offloaded_sums() {
        model.plan().with(|plan| {
            for (pipeline, stage) in plan.pipeline_stages.iter().enumerate() {
                for (bucket, it) in plan.buckets.iter().enumerate().filter(|(_, it)| it.pipeline_stage == pipeline) {
                    let trips: Vec<Op> = stage
                        .step
                        .iter()
                        .filter(|op| op.bucket() == Some(bucket) && op.traits().stream.is_of_tier())
                        .copied()
                        .collect();
                    let store = |round| Op::StoreSums { bucket, round };
                    let rounds = if it.elements > 0 { 0..plan.config.micro_batches } else { 0..0 };
                    let expected: Vec<Op> = rounds
                        .flat_map(|round| [Op::FetchSums { bucket, round }, store(round)])
                        .filter(|&op| op != Op::FetchSums { bucket, round: 0 })
                        .collect();
                    assert_eq!(trips, expected, "{:?}", plan.config);
                }
                assert!(!stage.evaluation.iter().any(|op| op.traits().stream.is_of_tier()));
            }
        });
    }
}

/// The room for sums on the device is that of a few buckets, in whole blocks, and all sums lie apart in the file.
#[test]
fn buckets_take_turns_with_slots_for_sums() {
    let model = |offload| {
        let config = Config { offload, bucket_bytes: 1, ..config(3) };
        Model::new(config, &[20_000; 12], None).plan()
    };
    let sums = Offload { gradients: TierKind::Disk, ..ON_DISK };
    let reduced = |offload| model(offload).with(|plan| plan.pipeline_stages[0].memory.region(Kind::Reduced).bytes);
    // A rank has 10,000 elements of a unit, and some padding: 5 blocks of 2048. A slot has two more.
    assert_eq!(reduced(sums), 3 * 7 * 2048 * 4);
    assert!(reduced(ON_DISK) >= 12 * 10_000 * 4);
    model(sums).with(|plan| {
        let own = plan.places(plan.config.mesh.coordinates(1));
        let kept: Vec<Range<usize>> = (0..plan.buckets.len())
            .map(|bucket| own.kept_sums(bucket))
            .map(|place| place.offset_bytes..place.end_bytes())
            .collect();
        assert!(kept.iter().all(|range| range.start.is_multiple_of(4096) && range.len() == 5 * 2048 * 4));
        assert!(disjoint(kept));
        // Sums are written once, and read once in the update.
        let without = model(ON_DISK).with(|plan| TierBytes::of(plan, 1));
        let with = TierBytes::of(plan, 1);
        let blocks = 12 * 5 * 2048 * 4;
        assert_eq!((with.written - without.written, with.read - without.read), (blocks, blocks));
    });
}

/// Every way to leave out one op of a kind, to add one, to put another in its place, or to exchange it with any op, if that
/// changes the ops.
pub fn edits(plan: &Plan, ops: &[Op], is_of_kind: fn(&Op) -> bool) -> Vec<Edit> {
    let at: Vec<usize> = (0..ops.len()).filter(|&at| is_of_kind(&ops[at])).collect();
    let all: Vec<Op> = vocabulary(plan).into_iter().filter(is_of_kind).collect();
    let swaps = at.iter().flat_map(|&a| (0..ops.len()).map(move |b| Edit::Swap(a.min(b), a.max(b))));
    let deletes = at.iter().map(|&at| Edit::Delete(at));
    let replaces = at.iter().flat_map(|&at| all.iter().map(move |&op| Edit::Replace(at, op)));
    let inserts = (0..=ops.len()).flat_map(|at| all.iter().map(move |&op| Edit::Insert(at, op)));
    let edits = swaps.chain(deletes).chain(replaces).chain(inserts);
    edits.filter(|edit| edit.apply(ops) != ops).collect()
}

/// A step without one op on sums, with one more, with another in its place, or with two exchanged.
#[test]
fn a_fault_in_a_trip_of_sums_is_found() {
    let mut refused = 0;
    for (replicas, micro_batches) in [(1, 2), (2, 1)] {
        let offload = Offload { gradients: TierKind::Disk, ..ON_DISK };
        let config = Config { mesh: mesh(1, 1, replicas), micro_batches, offload, bucket_bytes: 1, ..config(2) };
        Model::new(config, &[90, 7, 70, 60, 50], None).plan().with(|plan| {
            let ops = plan.pipeline_stages[0].step;
            let steps: Vec<Vec<Op>> = vec![ops.to_vec(); replicas];
            for edit in edits(plan, ops, |op| matches!(op, Op::FetchSums { .. } | Op::StoreSums { .. })) {
                let edited = edit.apply(ops);
                let edited: Vec<&[Op]> = steps.iter().map(|_| edited.as_slice()).collect();
                let is_refused = prove_ranks(plan, Pass::Train, &edited).is_err();
                let is_same = || by_sums_slot(plan, edited[0]) == by_sums_slot(plan, ops);
                assert!(is_refused || is_same() && matches!(edit, Edit::Swap(..)), "{edit:?}: {ops:?}");
                refused += usize::from(is_refused);
            }
        });
    }
    assert!(refused > 1_000, "{refused}");
}

/// The ops on each slot for sums, in order.
pub fn by_sums_slot(plan: &Plan, ops: &[Op]) -> BTreeMap<usize, Vec<Op>> {
    let mut slots: BTreeMap<usize, Vec<Op>> = BTreeMap::new();
    for &op in ops {
        let is_on_sums =
            op.traits().stream.is_of_tier() || matches!(op, Op::Settle { .. } | Op::Combine { .. } | Op::Spread { .. });
        if let Some(slot) = op.bucket().and_then(|bucket| plan.buckets[bucket].sums).filter(|_| is_on_sums) {
            slots.entry(slot).or_default().push(op);
        }
    }
    slots
}

/// States in the memory of a GPU's host, and on disk.
fn in_each_tier() -> [Config; 2] {
    let offload = Offload { optimizer: TierKind::Host, ..ON_DISK };
    let on_gpus = Config { device: DeviceKind::Cuda, transport: TransportKind::Peer, ..config(1) };
    [Config { offload, ..on_gpus }, Config { offload: ON_DISK, ..config(1) }]
}

/// Both keep and move the same: see the test of what is counted in blocks.
#[test]
fn reports_say_where_states_are() {
    let words = [["in host memory", "host: a rank reads"], ["on disk", "disk: a rank reads"]];
    let [on_host, on_disk] = in_each_tier();
    let configs = [Config { host_bytes: Some(1 << 20), ..on_host }, Config { disk_bytes: Some(1 << 20), ..on_disk }];
    for (tier, config) in configs.into_iter().enumerate() {
        let text = Model::new(config, &[9088, 0], None).plan().with(|plan| Report(plan).to_string());
        let row = |label: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(label)).expect(label);
            line.trim_start()[label.len()..].trim().to_owned()
        };
        let [place, traffic] = words[tier];
        assert_eq!([row(place), row(&format!("budget {place}"))], ["96.0 KiB", "1.0 MiB"]);
        assert_eq!(row(traffic), "up to 40.0 KiB in a step, and writes up to 40.0 KiB");
        assert!(words[1 - tier].iter().all(|other| !text.contains(other)), "{text}");
    }
}

#[test]
fn a_tier_has_a_budget() {
    let refusal = |config| {
        Model::new(config, &[9088, 0], None).plan().with(|plan| {
            let memories: Vec<Memory> = plan.pipeline_stages.iter().map(|stage| stage.memory).collect();
            let steps: Vec<&[Op]> = plan.pipeline_stages.iter().map(|stage| stage.step).collect();
            let refused = catch_unwind(move || require_budget(&plan.tables(), &memories, &steps, &Origin::UNKNOWN));
            refused.err().map(|panic| panic.downcast_ref::<String>().expect("a message").clone())
        })
    };
    let bytes = 2 * 4 * (3 * 2048 + 3 * 2048);
    let [on_host, on_disk] = in_each_tier();
    for (least, less, words) in [
        (
            Config { disk_bytes: Some(bytes), ..on_disk },
            Config { disk_bytes: Some(bytes - 1024), ..on_disk },
            ["on disk", "disk"],
        ),
        (
            Config { host_bytes: Some(bytes), ..on_host },
            Config { host_bytes: Some(bytes - 1024), ..on_host },
            ["in host memory", "host"],
        ),
    ] {
        assert_eq!(refusal(least), None);
        let [place, key] = words;
        let expected = format!(
            "[Z0230] a rank keeps 96.0 KiB {place} at stage 1, but `{key}` is 95.0 KiB: 1.0 KiB too much
  fix: raise `{key}`, or let more ranks share the optimizer state: a stage above 0, and more ranks along `zero`"
        );
        assert_eq!(refusal(less), Some(expected));
    }
}

/// Pieces and slots are part of a plan; without offload nothing of it is.
#[test]
fn fingerprints_know_tiers() {
    let of =
        |offload| Model::new(Config { offload, ..config(1) }, &[9000, 7], None).plan().with(|plan| plan.fingerprint());
    let plain = of(Config::PLAIN.offload);
    let disk = of(ON_DISK);
    let ahead = of(Offload { prefetch: 2, ..ON_DISK });
    assert!(plain != disk && disk != ahead && plain != ahead);
}
