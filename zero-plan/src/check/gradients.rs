//! Rules of gradients: every bucket is reduced once in each of its rounds, after all its gradients are there, and its sum
//! goes where it is needed before the agreement.

use super::{BrokenRule, BucketList, Checker, StagingState, Subtotal};
use crate::mesh::Axis;

impl Checker<'_, '_> {
    const fn has_replicas(&self) -> bool {
        self.subject.tables.config.mesh.replica > 1
    }

    /// Whether all rounds of a bucket are summed, over the replica and over replicas.
    pub(super) const fn is_summed(&self, bucket: usize) -> bool {
        let state = &self.buckets[bucket];
        let rounds = self.subject.tables.config.reductions();
        state.settled == rounds && (!self.has_replicas() || state.combined == rounds)
    }

    /// Whether the gradients of a bucket go to the owner that its only unit is tied to.
    const fn is_of_tied(&self, bucket: usize) -> bool {
        let last = self.bucket(bucket).last;
        self.subject.tables.units[last].is_tied(last)
    }

    /// Whether the sum of a bucket is where updates read it.
    pub(super) const fn is_spread(&self, bucket: usize) -> bool {
        let state = &self.buckets[bucket];
        let is_wanted = !self.is_of_tied(bucket);
        state.spread_replica == (is_wanted && self.has_replicas())
            && state.spread_zero == (is_wanted && self.subject.tables.config.stage == 0)
    }

    const fn enter(&mut self, list: BucketList, bucket: usize) {
        self.buckets[bucket].next[list as usize] = self.first[list as usize];
        self.first[list as usize] = Some(bucket);
    }

    /// Takes a bucket out of a list, if it is there.
    const fn leave(&mut self, list: BucketList, bucket: usize) {
        let after = self.buckets[bucket].next[list as usize];
        let (mut before, mut at): (Option<usize>, _) = (None, self.first[list as usize]);
        while let Some(other) = at {
            if other == bucket {
                match before {
                    Some(before) => self.buckets[before].next[list as usize] = after,
                    None => self.first[list as usize] = after,
                }
                return;
            }
            before = Some(other);
            at = self.buckets[other].next[list as usize];
        }
    }

    pub(super) const fn claim(&mut self, bucket: usize) -> BrokenRule {
        rules! {
            matches!(self.buckets[bucket].staging, StagingState::Free) => "a claim of staging in use",
            self.bucket(bucket).elements > 0
                && self.buckets[bucket].settled < self.subject.tables.config.reductions() =>
                "a claim of staging that no gradient needs",
        }
        let mut staged = self.first[BucketList::Staged as usize];
        while let Some(other) = staged {
            let is_apart = !self.bucket(other).overlaps(self.bucket(bucket));
            rules! { is_apart => "a claim of staging that another bucket uses", }
            staged = self.buckets[other].next[BucketList::Staged as usize];
        }
        self.enter(BucketList::Staged, bucket);
        self.buckets[bucket].staging = StagingState::Claimed;
        self.buckets[bucket].writes = 0;
        None
    }

    pub(super) const fn reduce(&mut self, bucket: usize, round: usize) -> BrokenRule {
        let config = self.subject.tables.config;
        let state = &self.buckets[bucket];
        let micro_batches = if config.holds_gradients() { config.micro_batches } else { 1 };
        rules! {
            matches!(state.staging, StagingState::Claimed) => "a reduce of staging that is not claimed",
            state.writes == state.writers * micro_batches => "a reduce before all its gradients are there",
            state.settled == round => "a reduce of another round than the next",
        }
        self.buckets[bucket].staging = StagingState::Offered;
        self.buckets[bucket].offer = self.offered;
        self.offered += 1;
        None
    }

    pub(super) const fn subtotal(&mut self, bucket: usize, round: usize, axis: Axis) -> BrokenRule {
        let state = &self.buckets[bucket];
        let (is_there, next, offer) = match axis {
            Axis::Zero => (matches!(state.staging, StagingState::Offered), state.settled, state.offer),
            _ => (state.settled == state.combined + 1, state.combined, state.settle),
        };
        rules! {
            self.subject.tables.config.sums_on_hosts(axis) => "a sum over a host along an axis without such sums",
            is_there && matches!(state.subtotal, Subtotal::None) => "a sum over a host of terms that are not offered to it",
            next == round => "a sum over a host of another round than the next",
            // Host peers learn how many sums have been made, not which.
            offer == self.subtotalled => "a sum over a host before that of an earlier offer",
        }
        let mut waiting = self.first[BucketList::Subtotal as usize];
        while let Some(other) = waiting {
            rules! {
                self.bucket(other).partial != self.bucket(bucket).partial =>
                    "a sum over a host in the place of a sum that is still needed",
            }
            waiting = self.buckets[other].next[BucketList::Subtotal as usize];
        }
        self.enter(BucketList::Subtotal, bucket);
        match axis {
            Axis::Zero => {
                self.leave(BucketList::Staged, bucket);
                self.buckets[bucket].staging = StagingState::Free;
            }
            _ => self.leave(BucketList::Partial, bucket),
        }
        self.buckets[bucket].subtotal = Subtotal::Made;
        self.subtotalled += 1;
        None
    }

    /// Notes that the sum of a bucket over a host is no longer needed.
    const fn forget_subtotal(&mut self, bucket: usize) {
        self.leave(BucketList::Subtotal, bucket);
        self.buckets[bucket].subtotal = Subtotal::None;
    }

    pub(super) const fn settle(&mut self, bucket: usize, round: usize) -> BrokenRule {
        let state = &self.buckets[bucket];
        let is_there = if self.subject.tables.config.sums_on_hosts(Axis::Zero) {
            matches!(state.subtotal, Subtotal::Made)
        } else {
            matches!(state.staging, StagingState::Offered)
        };
        rules! {
            is_there => "a settle without a reduce",
            state.settled == round => "a settle of another round than the next",
            // Peers learn how many reductions are settled, not which.
            state.offer == self.settled => "a settle before that of an earlier reduce",
        }
        if self.has_replicas() && !self.subject.tables.config.reduces_in_place() {
            let mut waiting = self.first[BucketList::Partial as usize];
            while let Some(other) = waiting {
                rules! {
                    self.bucket(other).partial != self.bucket(bucket).partial =>
                        "a settle over a partial sum that other ranks still need",
                }
                waiting = self.buckets[other].next[BucketList::Partial as usize];
            }
            self.enter(BucketList::Partial, bucket);
        }
        if self.subject.tables.config.sums_on_hosts(Axis::Zero) {
            self.forget_subtotal(bucket);
        } else {
            self.leave(BucketList::Staged, bucket);
            self.buckets[bucket].staging = StagingState::Free;
        }
        self.buckets[bucket].settled += 1;
        self.buckets[bucket].settle = self.settled;
        self.settled += 1;
        if self.has_replicas() { None } else { self.sum_in_slot(bucket, round) }
    }

    pub(super) const fn combine(&mut self, bucket: usize, round: usize) -> BrokenRule {
        let (state, over_hosts) = (&self.buckets[bucket], self.subject.tables.config.sums_on_hosts(Axis::Replica));
        rules! {
            self.has_replicas() => "a sum over replicas where there are none",
            state.combined == round && state.settled == round + 1 => "a sum over replicas without a settle",
            state.settle == self.combined => "a sum over replicas before that of an earlier settle",
            !over_hosts || matches!(state.subtotal, Subtotal::Made) => "a sum over replicas without the sum over a host",
        }
        if over_hosts {
            self.forget_subtotal(bucket);
        } else {
            self.leave(BucketList::Partial, bucket);
        }
        self.buckets[bucket].combined += 1;
        self.combined += 1;
        self.sum_in_slot(bucket, round)
    }

    pub(super) const fn fold(&mut self, unit: usize) -> BrokenRule {
        let source = self.subject.tables.units[unit].source;
        rules! {
            source != unit && !self.at(unit).holds && self.at(unit).padded > 0 =>
                "a fold of a unit that is not tied to one of its own pipeline stage",
            self.is_summed(self.at(unit).bucket) => "a fold before the tied unit's gradients are summed",
        }
        self.units[unit].tied = true;
        self.join(source)
    }

    /// Adds the sum of tied gradients to the sum of their owner. No spread may come before it.
    pub(super) const fn join(&mut self, owner: usize) -> BrokenRule {
        let bucket = self.at(owner).bucket;
        rules! {
            !self.units[owner].tied => "tied gradients added a second time",
            self.is_summed(bucket) => "tied gradients added before their owner's are summed",
        }
        self.units[owner].tied = true;
        None
    }

    pub(super) const fn spread(&mut self, bucket: usize, axis: Axis) -> BrokenRule {
        rules! {
            self.is_summed(bucket) => "a spread before the last sum",
            !self.is_of_tied(bucket) => "a spread of gradients that go to an owner",
            self.has_joined(bucket) => "a spread before tied gradients are added",
            self.has_sums(bucket) => "a spread of sums that are not in their slot",
        }
        if self.subject.tables.config.spreads_directions(axis) {
            return self.spread_directions(bucket);
        }
        let (shards_optimizer, has_replicas) = (self.subject.tables.config.shards_optimizer(), self.has_replicas());
        let state = &mut self.buckets[bucket];
        match axis {
            Axis::Replica => {
                rules! {
                    has_replicas => "a spread over replicas where there are none",
                    !state.spread_replica => "a second spread of a bucket",
                }
                state.spread_replica = true;
            }
            Axis::Zero => {
                rules! {
                    !shards_optimizer => "a spread of gradients that stay sharded",
                    !has_replicas || state.spread_replica => "a spread of shards that are not whole",
                    !state.spread_zero => "a second spread of a bucket",
                }
                state.spread_zero = true;
            }
            Axis::Pipeline => return Some("a spread along the pipeline"),
        }
        None
    }

    pub(super) const fn momentum(&mut self, unit: usize) -> BrokenRule {
        rules! {
            self.agreed => "a momentum before the agreement, when gradients are not scaled",
            self.subject.tables.is_orthogonalized(unit) => "a momentum of a unit without matrices to orthogonalize",
            !self.units[unit].directed => "a second momentum of a unit",
        }
        self.units[unit].directed = true;
        None
    }

    /// Gathers all directions of a bucket, in its staging.
    const fn spread_directions(&mut self, bucket: usize) -> BrokenRule {
        rules! {
            self.has_any_directions(bucket) => "a spread of gradients that stay sharded",
            self.has_all_momenta(bucket) => "a spread before the directions of all its matrices are there",
            !self.buckets[bucket].spread_zero => "a second spread of a bucket",
        }
        let mut staged = self.first[BucketList::Staged as usize];
        while let Some(other) = staged {
            let is_apart = !self.bucket(other).overlaps(self.bucket(bucket));
            rules! { is_apart => "a spread over directions that updates still need", }
            staged = self.buckets[other].next[BucketList::Staged as usize];
        }
        self.enter(BucketList::Staged, bucket);
        self.buckets[bucket].spread_zero = true;
        None
    }

    /// Whether an update finds whole directions, if its unit has matrices to make orthogonal.
    pub(super) const fn has_directions(&self, unit: usize) -> bool {
        let is_whole = !self.subject.tables.config.spreads_directions(Axis::Zero)
            || self.buckets[self.at(unit).bucket].spread_zero;
        !self.subject.tables.is_orthogonalized(unit) || self.units[unit].directed && is_whole
    }

    /// Frees the place of a bucket's directions after the last update that needs them.
    pub(super) const fn free_directions(&mut self, unit: usize) {
        let bucket = self.at(unit).bucket;
        let mut unit = self.bucket(bucket).first;
        while unit <= self.bucket(bucket).last {
            if self.subject.tables.is_orthogonalized(unit) && !self.units[unit].updated {
                return;
            }
            unit += 1;
        }
        self.leave(BucketList::Staged, bucket);
    }

    const fn has_any_directions(&self, bucket: usize) -> bool {
        let mut unit = self.bucket(bucket).first;
        while unit <= self.bucket(bucket).last {
            if self.subject.tables.is_orthogonalized(unit) {
                return true;
            }
            unit += 1;
        }
        false
    }

    const fn has_all_momenta(&self, bucket: usize) -> bool {
        let mut unit = self.bucket(bucket).first;
        while unit <= self.bucket(bucket).last {
            if self.subject.tables.is_orthogonalized(unit) && !self.units[unit].directed {
                return false;
            }
            unit += 1;
        }
        true
    }

    /// Whether all gradients of ties in a bucket have been added.
    const fn has_joined(&self, bucket: usize) -> bool {
        let mut unit = self.bucket(bucket).first;
        while unit <= self.bucket(bucket).last {
            if self.is_in_tie(unit) && !self.units[unit].tied {
                return false;
            }
            unit += 1;
        }
        true
    }
}
