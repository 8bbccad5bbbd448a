//! Directions: the numbers that matrices are updated by, if the optimizer makes them orthogonal. They are made bucket
//! by bucket, before the updates that need them. If a rank has only its shard of them, a bucket's directions are spread
//! while the bucket before it is updated, so that the update's matrix products hide the transfer.

use super::walk::PipelineStageWalk;
use super::{Op, Ops};
use crate::layout::Bucket;
use crate::mesh::Axis;

/// The progress of a pipeline stage with its directions.
pub(super) struct Directions {
    /// The bucket whose matrices are being updated.
    current: Option<usize>,
    /// The bucket after it, if its directions are there or on their way.
    ahead: Option<usize>,
}

impl Directions {
    pub const NEW: Self = Self { current: None, ahead: None };

    /// Makes the directions that the update of a unit needs.
    pub const fn before(&mut self, walk: &PipelineStageWalk, unit: usize, ops: &mut Ops) {
        let bucket = walk.tables.placements[unit].bucket;
        if !walk.tables.is_orthogonalized(unit) || is(self.current, bucket) {
            return;
        }
        if !is(self.ahead, bucket) {
            make(walk, bucket, ops);
        }
        self.current = Some(bucket);
        self.ahead = after(walk, bucket);
        if let Some(next) = self.ahead {
            make(walk, next, ops);
        }
    }
}

const fn is(one: Option<usize>, bucket: usize) -> bool {
    matches!(one, Some(one) if one == bucket)
}

/// The next bucket with directions, if they can be spread while those of `bucket` are still needed.
const fn after(walk: &PipelineStageWalk, bucket: usize) -> Option<usize> {
    let Bucket { last, .. } = walk.tables.buckets[bucket];
    let mut unit = last + 1;
    while walk.tables.config.spreads_directions(Axis::Zero) && unit < walk.tables.units.len() {
        if walk.has(unit) && walk.tables.is_orthogonalized(unit) {
            let next = walk.tables.placements[unit].bucket;
            let shares_staging = walk.tables.buckets[next].overlaps(&walk.tables.buckets[bucket]);
            return if shares_staging { None } else { Some(next) };
        }
        unit += 1;
    }
    None
}

/// Makes the directions of a bucket.
const fn make(walk: &PipelineStageWalk, bucket: usize, ops: &mut Ops) {
    let Bucket { first: mut unit, last, .. } = walk.tables.buckets[bucket];
    while unit <= last {
        if walk.tables.is_orthogonalized(unit) {
            ops.push(Op::Momentum { unit });
        }
        unit += 1;
    }
    if walk.tables.config.spreads_directions(Axis::Zero) {
        ops.push(Op::Spread { bucket, axis: Axis::Zero });
    }
}
