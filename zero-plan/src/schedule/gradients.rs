//! Gradients: the phases of a bucket's sum, from the claim of its staging to the spread of the sums. Each phase runs
//! one bucket later than the phase before it, so that ranks need not keep step with one another.

use super::walk::{PipelineStageWalk, WalkStep};
use super::{Op, Ops, Parcel};
use crate::layout::Bucket;
use crate::mesh::Axis;

/// A bucket in one of its reductions.
#[derive(Clone, Copy)]
struct Reduction {
    bucket: usize,
    round: usize,
}

/// For each phase, the bucket for which it is due, if there is one.
pub(super) struct DueBucket {
    /// For sums of which hosts make parts: along `zero` before settling, along `replica` before combining.
    unsubtotalled: Option<Reduction>,
    unsettled: Option<Reduction>,
    uncombined: Option<Reduction>,
    unspread: Option<usize>,
    /// The owner that waits for gradients of a mirror.
    unjoined: Option<usize>,
}

impl DueBucket {
    pub const NEW: Self =
        Self { unsubtotalled: None, unsettled: None, uncombined: None, unspread: None, unjoined: None };

    /// Claims the staging of a bucket before the first gradient goes into it.
    pub const fn claim(&mut self, walk: &PipelineStageWalk, step: WalkStep, ops: &mut Ops) {
        let bucket = walk.tables.placements[step.unit].bucket;
        let held = walk.tables.config.holds_gradients() && step.turn.micro_batch > 0;
        if walk.tables.buckets[bucket].last != step.unit || walk.tables.buckets[bucket].elements == 0 || held {
            return;
        }
        if self.is_due_in_slot_of(walk, bucket) {
            // If there are few buckets, its slot may still have a sum that is on its way.
            self.finish(walk, ops);
            *self = Self::NEW;
        }
        if let Some(sum) = self.unsubtotalled
            && walk.tables.config.sums_on_hosts(Axis::Zero)
            && shares_staging(&walk.tables.buckets[sum.bucket], &walk.tables.buckets[bucket])
        {
            self.unsubtotalled = None;
            self.subtotal(walk, sum, ops);
        }
        if let Some(sum) = self.unsettled
            && !walk.tables.config.sums_on_hosts(Axis::Zero)
            && shares_staging(&walk.tables.buckets[sum.bucket], &walk.tables.buckets[bucket])
        {
            self.unsettled = None;
            self.settle(walk, sum, ops);
        }
        ops.push(Op::Claim { bucket });
        if walk.tables.config.offloads_gradients() && step.turn.micro_batch > 0 {
            // The sum so far is there when the bucket is summed, which is one bucket later.
            ops.push(Op::FetchSums { bucket, round: step.turn.micro_batch });
        }
    }

    /// Whether the slot for the sums of a bucket has those of one that is due.
    const fn is_due_in_slot_of(&self, walk: &PipelineStageWalk, bucket: usize) -> bool {
        let Some(slot) = walk.tables.buckets[bucket].sums else { return false };
        let due = [self.unsubtotalled, self.unsettled, self.uncombined];
        let mut phase = 0;
        while phase < due.len() {
            if let Some(sum) = due[phase]
                && has_slot(walk, sum.bucket, slot)
            {
                return true;
            }
            phase += 1;
        }
        matches!(self.unspread, Some(bucket) if has_slot(walk, bucket, slot))
    }

    /// Reduces the bucket that a step has completed, and settles the one before it.
    pub const fn reduce(&mut self, walk: &PipelineStageWalk, step: WalkStep, ops: &mut Ops) {
        let config = walk.tables.config;
        let bucket = walk.tables.placements[step.unit].bucket;
        let is_last = step.turn.micro_batch + 1 == config.micro_batches;
        if walk.tables.buckets[bucket].first != step.unit
            || walk.tables.buckets[bucket].elements == 0
            || config.holds_gradients() && !is_last
        {
            return;
        }
        let round = if config.holds_gradients() { 0 } else { step.turn.micro_batch };
        if let Some(sum) = self.unsettled
            && sum.bucket == bucket
        {
            // If there are few buckets, its last reduction may still be on its way.
            self.unsettled = None;
            self.settle(walk, sum, ops);
        }
        ops.push(Op::Reduce { bucket, round });
        let sum = Reduction { bucket, round };
        if config.sums_on_hosts(Axis::Zero) {
            self.is_offered_to_host(walk, sum, ops);
        } else {
            self.is_on_its_way(walk, sum, ops);
        }
    }

    /// Sums the bucket before this one over the host, now that this one has been offered completely.
    const fn is_offered_to_host(&mut self, walk: &PipelineStageWalk, sum: Reduction, ops: &mut Ops) {
        if let Some(before) = self.unsubtotalled.replace(sum) {
            self.subtotal(walk, before, ops);
        }
    }

    const fn subtotal(&mut self, walk: &PipelineStageWalk, sum: Reduction, ops: &mut Ops) {
        let Reduction { bucket, round } = sum;
        if walk.tables.config.sums_on_hosts(Axis::Replica) {
            self.combine_in_place_of(walk, bucket, ops);
            ops.push(Op::Subtotal { bucket, round, axis: Axis::Replica });
            self.is_on_its_way_to_replicas(walk, sum, ops);
            return;
        }
        if let Some(before) = self.unsettled
            && shares_partial(walk, before.bucket, bucket)
        {
            // Otherwise its terms would be overwritten.
            self.unsettled = None;
            self.settle(walk, before, ops);
        }
        ops.push(Op::Subtotal { bucket, round, axis: Axis::Zero });
        self.is_on_its_way(walk, sum, ops);
    }

    /// Combines a bucket that is due if its terms lie in the place that another bucket needs.
    const fn combine_in_place_of(&mut self, walk: &PipelineStageWalk, bucket: usize, ops: &mut Ops) {
        if let Some(before) = self.uncombined
            && shares_partial(walk, before.bucket, bucket)
        {
            self.uncombined = None;
            self.combine(walk, before, ops);
        }
    }

    /// Combines the bucket before this one, which has been offered to all other replicas.
    const fn is_on_its_way_to_replicas(&mut self, walk: &PipelineStageWalk, sum: Reduction, ops: &mut Ops) {
        if let Some(before) = self.uncombined.replace(sum) {
            self.combine(walk, before, ops);
        }
    }

    /// Settles the bucket before this one, whose terms have all been offered.
    const fn is_on_its_way(&mut self, walk: &PipelineStageWalk, sum: Reduction, ops: &mut Ops) {
        if let Some(before) = self.unsettled.replace(sum) {
            self.settle(walk, before, ops);
        }
    }

    /// Runs all phases that are due.
    pub const fn finish(&mut self, walk: &PipelineStageWalk, ops: &mut Ops) {
        if let Some(sum) = self.unsubtotalled
            && walk.tables.config.sums_on_hosts(Axis::Zero)
        {
            self.subtotal(walk, sum, ops);
        }
        if let Some(sum) = self.unsettled {
            self.settle(walk, sum, ops);
        }
        if let Some(sum) = self.unsubtotalled
            && walk.tables.config.sums_on_hosts(Axis::Replica)
        {
            self.subtotal(walk, sum, ops);
        }
        if let Some(sum) = self.uncombined {
            self.combine(walk, sum, ops);
        }
        if let Some(bucket) = self.unspread {
            spread(walk, bucket, ops);
        }
        if let Some(unit) = self.unjoined {
            ops.push(Op::Receive { parcel: Parcel::TiedGradients, unit, micro_batch: 0, slot: 0 });
            spread(walk, walk.tables.placements[unit].bucket, ops);
        }
    }

    const fn settle(&mut self, walk: &PipelineStageWalk, sum: Reduction, ops: &mut Ops) {
        let Reduction { bucket, round } = sum;
        let sums_replicas_on_hosts = walk.tables.config.sums_on_hosts(Axis::Replica);
        if let Some(before) = self.unsubtotalled
            && sums_replicas_on_hosts
            && shares_partial(walk, before.bucket, bucket)
        {
            // Otherwise its sum over the replica would be overwritten.
            self.unsubtotalled = None;
            self.subtotal(walk, before, ops);
        }
        self.combine_in_place_of(walk, bucket, ops);
        ops.push(Op::Settle { bucket, round });
        if walk.tables.config.mesh.replica == 1 {
            self.summed(walk, sum, ops);
        } else if sums_replicas_on_hosts {
            self.is_offered_to_host(walk, sum, ops);
        } else {
            self.is_on_its_way_to_replicas(walk, sum, ops);
        }
    }

    const fn combine(&mut self, walk: &PipelineStageWalk, sum: Reduction, ops: &mut Ops) {
        ops.push(Op::Combine { bucket: sum.bucket, round: sum.round });
        self.summed(walk, sum, ops);
    }

    /// Takes sums to their tier, if they are kept there. After the last reduction of a bucket: adds up gradients of tied
    /// parameters, and spreads the bucket before.
    const fn summed(&mut self, walk: &PipelineStageWalk, sum: Reduction, ops: &mut Ops) {
        let tables = walk.tables;
        let is_last = sum.round + 1 == tables.config.reductions();
        if tables.config.offloads_gradients() && !(is_last && tables.config.mesh.replica > 1) {
            ops.push(Op::StoreSums { bucket: sum.bucket, round: sum.round });
        }
        if !is_last {
            return;
        }
        let Bucket { first, last, .. } = tables.buckets[sum.bucket];
        if tables.units[last].is_tied(last) {
            if tables.placements[last].holds {
                ops.push(Op::Send { parcel: Parcel::TiedGradients, unit: last, micro_batch: 0 });
            }
            return;
        }
        let mut unit = first;
        while unit <= last {
            if walk.mirror_of(unit).is_some() {
                // No turn may wait for the mirror's pipeline stage here: it may send only after turns that wait for
                // these.
                self.unjoined = Some(unit);
                return;
            }
            if let Some(tied) = tables.tied_to(unit)
                && tables.placements[tied].padded > 0
            {
                ops.push(Op::Fold { unit: tied });
            }
            unit += 1;
        }
        if let Some(before) = self.unspread.replace(sum.bucket) {
            spread(walk, before, ops);
        }
    }
}

/// Whether two buckets take turns with one place for partial sums.
const fn shares_partial(walk: &PipelineStageWalk, a: usize, b: usize) -> bool {
    walk.tables.buckets[a].partial == walk.tables.buckets[b].partial
}

/// Whether two buckets overlap in staging.
const fn shares_staging(a: &Bucket, b: &Bucket) -> bool {
    a.staging < b.staging + b.elements && b.staging < a.staging + a.elements
}

/// Whether the sums of a bucket are made in this slot.
const fn has_slot(walk: &PipelineStageWalk, bucket: usize, slot: usize) -> bool {
    matches!(walk.tables.buckets[bucket].sums, Some(other) if other == slot)
}

const fn spread(walk: &PipelineStageWalk, bucket: usize, ops: &mut Ops) {
    let config = walk.tables.config;
    if config.mesh.replica > 1 {
        ops.push(Op::Spread { bucket, axis: Axis::Replica });
        if config.offloads_gradients() {
            // Only now is the shard whole.
            ops.push(Op::StoreSums { bucket, round: config.reductions() - 1 });
        }
    }
    if !config.shards_optimizer() {
        ops.push(Op::Spread { bucket, axis: Axis::Zero });
    }
}
