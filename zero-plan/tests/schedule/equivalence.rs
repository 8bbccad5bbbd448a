//! Equivalence: the changes of a schedule that change nothing, each by a rule with a name. Knows what ops touch; shares
//! nothing with the check and the prover.

use zero_plan::{Op, Parcel, Plan};

/// A thing that two ops can have in common. Ops that have nothing in common, or only read it, may run in either order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    /// The state of the flat buffer of a holder: gathered, whole, in use, released, updated.
    Parameters(usize),
    /// The shard of it that this rank owns.
    Shard(usize),
    /// A slot for gathered parameters.
    Gathered(usize),
    /// A slot for activations.
    Activations(usize),
    /// The gradients of activations on their way through a chunk.
    ActivationGradients,
    /// The values that recomputed units save.
    Recomputed,
    /// The next micro-batch of a unit, forward and backward.
    Forwards(usize),
    Backwards(usize),
    /// The slots for parcels that leave, and their order.
    Outgoing(Parcel),
    /// The order in which parcels are taken.
    Incoming(Parcel),
    /// The staging of a bucket, or of all buckets that take turns in one slot.
    Staging(usize),
    /// The place of a bucket's sums over one replica.
    Partial(usize),
    /// The reduced gradients of a bucket.
    Sum(usize),
    /// The counts of offered, settled and combined reductions: peers know a reduction by its number.
    Offers,
    Settled,
    Combined,
    /// The directions by which the matrices of a unit are updated, as far as this rank has made them.
    Direction(usize),
    /// The agreement of all ranks.
    Agreement,
}

/// A thing that an op touches, and whether the op changes it.
type Touch = (Thing, bool);

/// The unit under which the parameters of `unit` are held.
fn holder(plan: &Plan, unit: usize) -> usize {
    if plan.placements[unit].holds { unit } else { plan.units[unit].source }
}

fn has_gradients(plan: &Plan, unit: usize) -> bool {
    plan.placements[unit].padded > 0
}

/// The things that op `at` touches.
fn touches(plan: &Plan, ops: &[Op], at: usize) -> Vec<Touch> {
    let changes = |things: &[Thing]| -> Vec<Touch> { things.iter().map(|&thing| (thing, true)).collect() };
    // If sums overwrite their terms, each bucket has its own place.
    let partial = |bucket: usize| {
        let is_shared = !plan.config.reduces_in_place();
        is_shared.then_some((Thing::Partial(plan.buckets[bucket].partial), true))
    };
    let staging = |bucket: usize| Thing::Staging(plan.buckets[bucket].slot.unwrap_or(plan.buckets.len() + bucket));
    let sum = |unit: usize| Thing::Sum(plan.placements[unit].bucket);
    match ops[at] {
        Op::Gather { unit, slot } if plan.config.shards_parameters() => {
            vec![(Thing::Shard(unit), false), (Thing::Parameters(unit), true), (Thing::Gathered(slot), true)]
        }
        Op::Gather { unit, .. } => vec![(Thing::Shard(unit), false), (Thing::Parameters(unit), true)],
        Op::Wait { unit } => changes(&[Thing::Parameters(unit)]),
        Op::Convert { unit, slot } => changes(&[Thing::Parameters(unit), Thing::Gathered(slot)]),
        Op::Release { unit } => {
            let slot = ops[..at].iter().rev().find_map(|op| match *op {
                Op::Gather { unit: held, slot } | Op::Convert { unit: held, slot } if held == unit => Some(slot),
                _ => None,
            });
            let slot = slot.map(|slot| (Thing::Gathered(slot), true));
            changes(&[Thing::Parameters(unit)]).into_iter().chain(slot).collect()
        }
        Op::Receive { parcel, unit, slot, .. } => {
            let to = match parcel {
                Parcel::Activations => vec![(Thing::Activations(slot), true), (Thing::Forwards(unit), true)],
                // The slot of its micro-batch is already taken.
                Parcel::Gradients => vec![(Thing::ActivationGradients, true), (Thing::Activations(slot), false)],
                Parcel::TiedGradients => vec![(sum(unit), true)],
                Parcel::TiedParameters => updated(unit),
            };
            to.into_iter().chain([(Thing::Incoming(parcel), true)]).collect()
        }
        Op::Clear { parcel } => changes(&[Thing::Outgoing(parcel)]),
        Op::Send { parcel, unit, .. } => {
            let from = match parcel {
                Parcel::TiedGradients => Some((sum(unit), false)),
                Parcel::TiedParameters => Some((Thing::Shard(unit), false)),
                Parcel::Activations | Parcel::Gradients => None,
            };
            changes(&[Thing::Outgoing(parcel)]).into_iter().chain(from).collect()
        }
        Op::Forward { .. } | Op::Recompute { .. } | Op::Backward { .. } => computes(plan, ops[at]),
        Op::Claim { bucket } => changes(&[staging(bucket)]),
        Op::Reduce { bucket, .. } => changes(&[staging(bucket), Thing::Offers]),
        Op::Subtotal { .. } => unreachable!("all ranks of these plans are on one host"),
        Op::Settle { bucket, .. } => {
            let things = changes(&[staging(bucket), Thing::Sum(bucket), Thing::Settled]);
            things.into_iter().chain(partial(bucket)).collect()
        }
        Op::Combine { bucket, .. } => {
            changes(&[Thing::Sum(bucket), Thing::Combined]).into_iter().chain(partial(bucket)).collect()
        }
        Op::Fold { unit } => vec![(sum(unit), false), (sum(plan.units[unit].source), true)],
        Op::Spread { bucket, axis } if plan.config.spreads_directions(axis) => {
            let units = plan.buckets[bucket].first..=plan.buckets[bucket].last;
            units.map(|unit| (Thing::Direction(unit), false)).chain([(staging(bucket), true)]).collect()
        }
        Op::Spread { bucket, .. } => changes(&[Thing::Sum(bucket)]),
        Op::Agree => {
            let sums = (0..plan.buckets.len()).map(|bucket| (Thing::Sum(bucket), false));
            // Owners update their shards only after all ranks have agreed that they no longer read them.
            let held = (0..plan.units.len()).map(|unit| (Thing::Parameters(unit), true));
            let passes = (0..plan.units.len()).flat_map(|unit| [Thing::Forwards(unit), Thing::Backwards(unit)]);
            let passes = passes.map(|thing| (thing, false));
            [(Thing::Agreement, true)].into_iter().chain(sums).chain(held).chain(passes).collect()
        }
        Op::Momentum { unit } => {
            vec![(Thing::Agreement, false), (sum(unit), false), (Thing::Direction(unit), true)]
        }
        Op::Update { unit, .. } => {
            // An update reads whole directions from the place to which they were spread.
            let spread = (plan.tables().is_orthogonalized(unit) && plan.config.shards_optimizer())
                .then(|| (staging(plan.placements[unit].bucket), false));
            let read = [(sum(unit), false), (Thing::Direction(unit), false)];
            updated(unit).into_iter().chain(read).chain(spread).collect()
        }
        Op::Offer { .. } | Op::StoreOffered { .. } => unreachable!("these plans publish nothing"),
        Op::Fetch { .. }
        | Op::Store { .. }
        | Op::FetchSums { .. }
        | Op::StoreSums { .. }
        | Op::FetchShard { .. }
        | Op::StoreActivations { .. }
        | Op::FetchActivations { .. } => {
            unreachable!("all states of these plans are on the device")
        }
    }
}

/// The things that get new values after all ranks have agreed.
fn updated(unit: usize) -> Vec<Touch> {
    vec![(Thing::Agreement, false), (Thing::Shard(unit), true), (Thing::Parameters(unit), true)]
}

/// The things that a computation touches.
fn computes(plan: &Plan, op: Op) -> Vec<Touch> {
    let (Op::Forward { unit, slot, .. } | Op::Recompute { unit, slot, .. } | Op::Backward { unit, slot, .. }) = op
    else {
        unreachable!("a computation")
    };
    let is_first = plan.chunks[plan.placements[unit].chunk].first == unit;
    // Only forward writes to the slot, and the last backward gives it up.
    let changes_slot = matches!(op, Op::Forward { .. }) || matches!(op, Op::Backward { .. }) && is_first;
    let mut touches = vec![(Thing::Activations(slot), changes_slot)];
    if has_gradients(plan, unit) {
        touches.push((Thing::Parameters(holder(plan, unit)), false));
    }
    if plan.config.recomputes(plan.units, unit) {
        touches.push((Thing::Recomputed, true));
    }
    match op {
        Op::Forward { .. } => {
            touches.push((Thing::Forwards(unit), true));
            if plan.tables().leaves(unit) {
                touches.push((Thing::Outgoing(Parcel::Activations), true));
            }
        }
        Op::Backward { .. } => {
            touches.extend([(Thing::Backwards(unit), true), (Thing::ActivationGradients, true)]);
            if is_first && unit > 0 {
                touches.push((Thing::Outgoing(Parcel::Gradients), true));
            }
            if has_gradients(plan, unit) {
                let bucket = plan.placements[unit].bucket;
                let staging = plan.buckets[bucket].slot.unwrap_or(plan.buckets.len() + bucket);
                touches.push((Thing::Staging(staging), true));
            }
        }
        _ => {}
    }
    touches
}

fn commute(plan: &Plan, ops: &[Op], a: usize, b: usize) -> bool {
    // A second forward reads the output of the unit before it in the slot, which later units do not change.
    let is_earlier = |first: Op, other: Op| match (first, other) {
        (Op::Recompute { unit, slot, .. }, Op::Forward { unit: later, slot: same, .. }) => same == slot && later > unit,
        _ => false,
    };
    let is_apart = is_earlier(ops[a], ops[b]) || is_earlier(ops[b], ops[a]);
    let (a, b) = (touches(plan, ops, a), touches(plan, ops, b));
    let is_shared = |thing: Thing| !(is_apart && matches!(thing, Thing::Activations(_)));
    let mut shared = a.iter().filter(|(thing, _)| is_shared(*thing));
    !shared.any(|&(thing, changes)| b.iter().any(|&(other, also)| thing == other && (changes || also)))
}

/// Whether a rule is about one of two swapped ops, and the name of the rule.
type Rule = (fn(&Op) -> bool, &'static str);

/// The rules by which ops may move over others with which they have nothing in common.
pub const SWAPS: [Rule; 17] = [
    (|op| matches!(op, Op::Gather { .. }), "a gather at another time: its slot is free, nobody uses its unit"),
    (|op| matches!(op, Op::Wait { .. }), "a wait at another time between gather and first use"),
    (|op| matches!(op, Op::Convert { .. }), "a copy at another time between release and first use"),
    (|op| matches!(op, Op::Release { .. }), "a release at another time between last use and next gather"),
    (|op| matches!(op, Op::Claim { .. }), "a claim at another time between settle and first gradient"),
    (|op| matches!(op, Op::Reduce { .. }), "a reduce at another time between last gradient and settle, in order"),
    (|op| matches!(op, Op::Settle { .. }), "a settle at another time between reduce and next claim, in order"),
    (|op| matches!(op, Op::Combine { .. }), "a sum over replicas at another time between settle and next settle"),
    (|op| matches!(op, Op::Momentum { .. }), "a momentum at another time between agreement and what needs it"),
    (|op| matches!(op, Op::Fold { .. }), "a sum of ties at another time between that of both and its spread"),
    (
        |op| matches!(op, Op::Spread { .. }),
        "a spread at another time between settle and agreement, or momentum and update",
    ),
    (|op| matches!(op, Op::Clear { .. }), "a slot cleared at another time between send and next result"),
    (|op| matches!(op, Op::Send { .. }), "a send at another time between its result and the next one"),
    (
        |op| matches!(op, Op::Receive { .. }),
        "a parcel taken at another time: its place is free, nobody waits in a cycle",
    ),
    (
        |op| matches!(op, Op::Recompute { .. }),
        "a second forward at another time between the first one and its backward",
    ),
    (|op| matches!(op, Op::Forward { .. }), "computations on two micro-batches in another order"),
    (|op| matches!(op, Op::Update { .. }), "updates of two units in another order"),
];

/// Why swapping ops `i` and `j` leaves the same schedule in another order, if it does.
pub fn of_swap(plan: &Plan, ops: &[Op], i: usize, j: usize) -> Option<&'static str> {
    let moves_freely = (i + 1..j).all(|between| commute(plan, ops, i, between) && commute(plan, ops, j, between));
    if !(moves_freely && commute(plan, ops, i, j)) {
        return None;
    }
    let is_either = |(is, _): &&Rule| is(&ops[i]) || is(&ops[j]);
    SWAPS.iter().find(is_either).map(|(_, rule)| *rule)
}

/// The rules by which something may use another slot.
pub const SLOTS: [&str; 2] =
    ["a gather into a replica, which has no slots", "a gather or a pass into another slot, free all the while"];

/// Why `mutant` is the same schedule, if it differs from `ops` only in slots.
pub fn of_slots(plan: &Plan, ops: &[Op], mutant: &[Op]) -> Option<&'static str> {
    let without_slot = |&op: &Op| match op {
        Op::Gather { unit, .. } => Op::Gather { unit, slot: 0 },
        Op::Convert { unit, .. } => Op::Convert { unit, slot: 0 },
        Op::Forward { unit, micro_batch, .. } => Op::Forward { unit, micro_batch, slot: 0 },
        op => op,
    };
    let differs_in_slots = ops.iter().map(without_slot).eq(mutant.iter().map(without_slot));
    differs_in_slots.then_some(SLOTS[usize::from(plan.config.uses_slots() || plan.config.shards_parameters())])
}
