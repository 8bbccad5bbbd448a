//! Work: how much an op computes and how many bytes it reads and writes, counted from the plan. Never measures.
//!
//! These formulas are separate from the sums of [`crate::place`]'s accesses, because they leave out the padding of
//! shards, on which no op computes, and count the bytes that a layer reads and writes, which only its sizes determine.

use crate::mesh::{Axis, Coordinates};
use crate::place::Stretch;
use crate::plan::Plan;
use crate::schedule::{Op, Parcel, Piece};
use crate::unit::OrthogonalCost;

/// The work of one op of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Floating-point operations of layers, and of making matrices orthogonal.
    pub operations: usize,
    /// Bytes of parameters, gradients, optimizer state or activations that an op reads and writes; 0 for ops that
    /// compute layers.
    pub bytes: usize,
}

impl Work {
    /// The work of `op` for the rank at these coordinates.
    pub fn of(plan: &Plan, at: Coordinates, op: Op) -> Self {
        Self { operations: operations(plan, op), bytes: bytes(plan, at, op) }
    }
}

fn operations(plan: &Plan, op: Op) -> usize {
    match op {
        Op::Forward { unit, .. } | Op::Recompute { unit, .. } => plan.units[unit].forward_operations(),
        Op::Backward { unit, .. } => plan.units[unit].backward_operations(),
        Op::Update { unit, .. } if plan.tables().is_orthogonalized(unit) => orthogonalizing(plan, unit),
        _ => 0,
    }
}

/// A rank that updates a shard makes each matrix orthogonal as a whole if it updates a part of it: about its share of
/// the matrices, and one that it shares with other ranks.
fn orthogonalizing(plan: &Plan, unit: usize) -> usize {
    let OrthogonalCost { operations, operations_max, .. } = plan.units[unit].matrices;
    let sharers = if plan.config.shards_optimizer() { plan.config.mesh.zero } else { 1 };
    let cut = if sharers > 1 { operations_max } else { 0 };
    (operations / sharers + cut).min(operations)
}

/// Each source is read once and each destination is written once, and read once more if something is added to it. With
/// `p`, `g` and `m` bytes in a parameter, a gradient and a moment, `c` bytes in a parameter as layers compute with it,
/// `N` ranks along `zero`, `R` replicas, and for a unit or bucket `n` elements in its flat buffer, `s = n / N` in a
/// shard and `t = s / R` in a part:
///
/// | op | bytes |
/// |---|---|
/// | wait, into a slot | `n (p + c)` |
/// | gather, into a slot that ranks of a host have in common | `s (p + c)` |
/// | wait for updated shards, into a replica | `(n - s) 2p` |
/// | convert | `n (p + c)` |
/// | receive activations, or their gradients | twice their own |
/// | receive or fold tied gradients | `3 t g` |
/// | receive tied parameters | `2p` an element that this rank updates |
/// | settle | `(N + 1) s g`, and `s g` more to add; none if `N` is 1 and the sum is in place |
/// | combine | `(R + 1) t g`, and `t g` more to add |
/// | subtotal, of `M` ranks of each of `H` hosts, in `K` sums | `H (M g + 4 K) s`; along `replica`, `t` instead of `s` |
/// | settle of `B` blocks, after `J` joins of such sums | `(12 J + 4 B + g) s`, and `s g` more to add |
/// | combine of `B` blocks, after `J` joins | the same with `t` instead of `s` |
/// | spread along `replica` | `(s - t) 2g` |
/// | spread along `zero` | `n 2g`, or `(n - s) 2g` in place; of directions, only for units that have some |
/// | agree, on the norm | `t g` for each unit |
/// | momentum, for each parameter that this rank updates | `2g + 2m` |
/// | update, for each parameter that this rank updates | `g + 4m + 2p`; with a master copy, `g + 4m + p + 8` |
/// | offer, of `t` elements in type `d` | `t (p + d)`; of a master copy, `t (4 + d)` |
///
/// All other ops move nothing: because memory is shared, they only signal and wait.
fn bytes(plan: &Plan, at: Coordinates, op: Op) -> usize {
    let (config, mesh) = (&plan.config, &plan.config.mesh);
    let precision = &config.precision;
    let (p, g, m) = (precision.params.bytes(), precision.reduce.bytes(), precision.moments.bytes());
    let c = precision.compute.bytes();
    let place = |unit: usize| &plan.placements[unit];
    // Shard and part of a bucket.
    let of_bucket = |bucket: usize| {
        let n = plan.buckets[bucket].elements;
        (n / mesh.zero, n / mesh.data_ranks())
    };
    let sum = |axis: Axis, bucket: usize, adds: bool| {
        let (ranks, subtrees, writes) = (mesh.len(axis), config.subtrees(axis), 1 + usize::from(adds));
        let of_element = if config.sums_on_hosts(axis) {
            subtrees.joins().count() * 12 + subtrees.blocks().0 * 4 + writes * g
        } else if ranks == 1 && config.reduces_in_place() {
            0
        } else {
            (ranks + writes) * g
        };
        plan.buckets[bucket].elements / mesh.summed_parts(axis) * of_element
    };
    match op {
        Op::Gather { unit, .. } if config.shares_slots() => place(unit).shard(config) * (p + c),
        Op::Wait { .. } if config.shares_slots() => 0,
        Op::Wait { unit } if config.uses_slots() && config.shards_parameters() => place(unit).padded * (p + c),
        Op::Wait { unit } if !config.shards_parameters() => (place(unit).padded - place(unit).shard(config)) * 2 * p,
        Op::Convert { unit, .. } => place(unit).padded * (p + c),
        Op::Receive { parcel: Parcel::Activations, unit, .. } => plan.units[unit].input_bytes * 2,
        Op::Receive { parcel: Parcel::Gradients, unit, .. } => plan.units[unit].output_bytes * 2,
        Op::Receive { parcel: Parcel::TiedGradients, unit, .. } | Op::Fold { unit } => place(unit).part(config) * 3 * g,
        Op::Receive { parcel: Parcel::TiedParameters, unit, .. } => plan.places(at).owned(unit).len * 2 * p,
        Op::Subtotal { bucket, axis, .. } => {
            let sums = config.subtrees(axis).count_of(at.along(axis) / config.ranks_per_host(axis));
            let part = plan.buckets[bucket].elements / mesh.summed_parts(axis);
            config.hosts_along(axis) * part * (config.ranks_per_host(axis) * g + sums * 4)
        }
        Op::Agree => {
            let units = (0..plan.units.len()).filter(|&unit| plan.units[unit].params > 0);
            units
                .filter(|&unit| place(unit).pipeline_stage == at.pipeline)
                .map(|unit| place(unit).part(config) * g)
                .sum()
        }
        Op::Settle { bucket, round } => sum(Axis::Zero, bucket, round > 0 && !config.has_partials()),
        Op::Combine { bucket, round } => sum(Axis::Replica, bucket, round > 0),
        Op::Spread { bucket, axis: Axis::Zero } => {
            let n = plan.tables().spread_elements(bucket, Axis::Zero);
            let s = n / mesh.zero;
            if config.reduces_in_place() { (n - s) * 2 * g } else { n * 2 * g }
        }
        Op::Spread { bucket, .. } => {
            let (s, t) = of_bucket(bucket);
            (s - t) * 2 * g
        }
        Op::Momentum { unit } => updated(plan, at, unit, None) * (2 * g + 2 * m),
        Op::Update { unit, piece } => {
            let stored = if precision.has_master_copy() { p + 2 * precision.master.bytes() } else { 2 * p };
            updated(plan, at, unit, piece) * (g + 4 * m + stored)
        }
        Op::Offer { unit } => {
            let own = plan.places(at);
            own.offered_from(unit, 0).len_bytes + own.offered_to(unit, 0).len_bytes
        }
        _ => 0,
    }
}

/// Elements of a unit's flat buffer that a rank updates, all or one piece of them, without padding.
fn updated(plan: &Plan, at: Coordinates, unit: usize, piece: Option<Piece>) -> usize {
    let own = plan.places(at);
    let owned = own.owned(unit);
    let part = piece.map_or(Stretch { start: 0, ..owned }, |piece| own.piece(unit, piece.index));
    let Stretch { start, len } = Stretch { start: owned.start + part.start, ..part };
    plan.units[unit].params.saturating_sub(start).min(len)
}

#[cfg(test)]
mod tests;
