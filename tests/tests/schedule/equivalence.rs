//! Equivalence: which changes of a schedule change nothing, each by a rule with a name. Knows what ops touch; shares
//! nothing with the check.

use zero_plan::{Op, Plan};

/// What two ops can have in common. Ops that have nothing in common, or only read it, may run in either order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    /// The flat buffer of an owner: gathered, whole, in use, released, updated.
    Parameters(usize),
    /// A slot for gathered parameters.
    Slot(usize),
    /// The chain of activations and of their gradients.
    Chain,
    /// The staging of a bucket, or of all buckets that take turns in one slot.
    Staging(usize),
    /// The reduced gradients of a bucket.
    Sum(usize),
    /// The count of offers: peers know a reduction by its number.
    Offers,
    /// The count of settled reductions, for the same reason.
    Settled,
    /// That all ranks have agreed.
    Agreement,
}

/// Whether an op changes what it touches.
type Touch = (Thing, bool);

/// What op `at` touches.
fn touches(plan: &Plan, ops: &[Op], at: usize) -> Vec<Touch> {
    let sharded = plan.config.shards_parameters();
    let source = |unit: usize| plan.units[unit].source;
    let owns = |unit: usize| plan.placements[unit].padded > 0;
    let bucket_of = |unit: usize| plan.placements[unit].bucket;
    let staging = |bucket: usize| Thing::Staging(plan.buckets[bucket].slot.unwrap_or(bucket));
    match ops[at] {
        Op::Gather { unit, slot } if sharded => vec![(Thing::Parameters(unit), true), (Thing::Slot(slot), true)],
        Op::Gather { unit, .. } | Op::Wait { unit } => vec![(Thing::Parameters(unit), true)],
        Op::Release { unit } => {
            let slot = ops[..at].iter().rev().find_map(|op| match *op {
                Op::Gather { unit: gathered, slot } if gathered == unit => Some((Thing::Slot(slot), true)),
                _ => None,
            });
            [Some((Thing::Parameters(unit), true)), slot].into_iter().flatten().collect()
        }
        Op::Forward { unit, .. } => vec![(Thing::Parameters(source(unit)), false), (Thing::Chain, true)],
        Op::Backward { unit, .. } if owns(source(unit)) => vec![
            (Thing::Parameters(source(unit)), false),
            (Thing::Chain, true),
            (staging(bucket_of(source(unit))), true),
        ],
        Op::Backward { .. } => vec![(Thing::Chain, true)],
        Op::Claim { bucket } => vec![(staging(bucket), true)],
        Op::Reduce { bucket, .. } => vec![(staging(bucket), true), (Thing::Offers, true)],
        Op::Settle { bucket, .. } => {
            vec![(staging(bucket), true), (Thing::Settled, true), (Thing::Sum(bucket), true)]
        }
        Op::Spread { bucket } => vec![(Thing::Sum(bucket), true)],
        Op::Agree => {
            let sums = (0..plan.buckets.len()).map(|bucket| (Thing::Sum(bucket), false));
            // Owners update what lies in their shards once all ranks have agreed that they read it no more.
            let held = (0..plan.units.len()).filter(|_| sharded).map(|unit| (Thing::Parameters(unit), true));
            [(Thing::Agreement, true), (Thing::Chain, false)].into_iter().chain(sums).chain(held).collect()
        }
        Op::Update { unit } => {
            vec![(Thing::Agreement, false), (Thing::Sum(bucket_of(unit)), false), (Thing::Parameters(unit), true)]
        }
    }
}

fn commute(plan: &Plan, ops: &[Op], a: usize, b: usize) -> bool {
    let (a, b) = (touches(plan, ops, a), touches(plan, ops, b));
    !a.iter().any(|&(thing, changes)| b.iter().any(|&(other, also)| thing == other && (changes || also)))
}

/// Which of two swapped ops it is about, and its name.
type Rule = (fn(&Op) -> bool, &'static str);

/// The rules by which ops that have nothing in common with what they move over may move.
pub const SWAPS: [Rule; 8] = [
    (|op| matches!(op, Op::Gather { .. }), "a gather at another time: its slot is free, nobody uses its unit"),
    (|op| matches!(op, Op::Wait { .. }), "a wait at another time between gather and first use"),
    (|op| matches!(op, Op::Release { .. }), "a release at another time between last use and next gather"),
    (|op| matches!(op, Op::Claim { .. }), "a claim at another time between settle and first gradient"),
    (|op| matches!(op, Op::Reduce { .. }), "a reduce at another time between last gradient and settle, in order"),
    (|op| matches!(op, Op::Settle { .. }), "a settle at another time between reduce and next claim, in order"),
    (|op| matches!(op, Op::Spread { .. }), "a spread at another time between settle and agreement"),
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

/// The rules by which a gather may go into another slot.
pub const SLOTS: [&str; 2] =
    ["a gather into a replica, which has no slots", "a gather into another slot, free all the while"];

/// Why `mutant` is the same schedule, if it differs from `ops` in nothing but slots.
pub fn of_slots(plan: &Plan, ops: &[Op], mutant: &[Op]) -> Option<&'static str> {
    let without_slot = |&op: &Op| match op {
        Op::Gather { unit, .. } => Op::Gather { unit, slot: 0 },
        op => op,
    };
    let differs_in_slots = ops.iter().map(without_slot).eq(mutant.iter().map(without_slot));
    differs_in_slots.then_some(SLOTS[usize::from(plan.config.shards_parameters())])
}
