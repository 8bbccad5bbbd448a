//! Sums: the accesses of ops that add up gradients over ranks, spread the sums, and agree on their norm.

use super::{Access, Content, Gradients, OfOp};
use crate::mesh::{Axis, Coordinates};
use crate::place::{Kept, Place};
use crate::plan::Plan;
use crate::subtrees::Subtree;

impl OfOp<'_, '_> {
    /// The byte of a unit's flat buffer at which a shard of its gradients begins, or, if given, the part of the shard
    /// that the rank at `replica` sums.
    pub(super) fn gradient_bytes(&self, at: Coordinates, shard: Place, replica: Option<usize>) -> usize {
        let within = replica.map_or(0, |replica| self.own.part(shard, replica).offset_bytes - shard.offset_bytes);
        at.zero * shard.len_bytes + within
    }

    /// The term of the rank at `index` along an axis in the sum of the rank at `of`.
    fn term(&mut self, axis: Axis, unit: usize, round: usize, index: usize, of: usize) {
        let (config, peer) = (&self.plan.config, self.own.along(axis, index));
        let content = match axis {
            Axis::Zero => {
                // The newest micro-batch whose gradients are in the term.
                let round = if config.holds_gradients() { config.micro_batches - 1 } else { round };
                Content::Gradients { unit, round, of: Gradients::Of(peer.at.data_rank(&config.mesh)) }
            }
            _ => Content::Gradients { unit, round, of: Gradients::OfReplica(index) },
        };
        let place = peer.term(axis, unit, of);
        self.note(peer.at, place, content, self.summed_part(axis, of) * place.len_bytes, false);
    }

    /// The part of a flat buffer that the rank at `of` along an axis sums.
    fn summed_part(&self, axis: Axis, of: usize) -> usize {
        self.own.at.with(axis, of).summed_part(&self.plan.config.mesh, axis)
    }

    /// For each host, sums this host's terms of the part that is summed by this rank's counterpart there.
    pub(super) fn subtotal(&mut self, bucket: usize, round: usize, axis: Axis) {
        let (own, per_host) = (self.own, self.plan.config.ranks_per_host(axis));
        let index = own.at.along(axis);
        for unit in self.units_of(bucket) {
            for host in 0..self.plan.config.hosts_along(axis) {
                let of = host * per_host + index % per_host;
                for subtree in self.plan.config.subtrees(axis).of_host(index / per_host) {
                    (subtree.first..subtree.end).for_each(|index| self.term(axis, unit, round, index, of));
                    let to = own.subtotal(axis, unit, host, subtree.first);
                    let start = self.summed_part(axis, of) * to.len_bytes;
                    self.note(own.at, to, self.summed_over(axis, unit, round, subtree), start, true);
                }
            }
        }
    }

    fn summed_over(&self, axis: Axis, unit: usize, round: usize, subtree: Subtree) -> Content {
        let of = match axis {
            Axis::Zero => Gradients::OfSubtree { replica: self.own.at.replica, subtree },
            _ => Gradients::OfReplicas(subtree),
        };
        Content::Gradients { unit, round, of }
    }

    /// Reads the numbers that are added up along an axis: the terms of all ranks, or the sums of all hosts.
    fn terms(&mut self, axis: Axis, unit: usize, round: usize) {
        let (own, config) = (self.own, &self.plan.config);
        if !config.sums_on_hosts(axis) {
            let of = own.at.along(axis);
            return (0..config.mesh.len(axis)).for_each(|index| self.term(axis, unit, round, index, of));
        }
        let subtrees = config.subtrees(axis);
        for [left, right] in subtrees.joins() {
            [left, right].into_iter().for_each(|subtree| self.sum_over(axis, unit, round, subtree));
            let (to, both) = (own.joined(axis, unit, left.first), Subtree { first: left.first, end: right.end });
            let start = self.summed_part(axis, own.at.along(axis)) * to.len_bytes;
            self.note(own.at, to, self.summed_over(axis, unit, round, both), start, true);
        }
        let (number, block) = subtrees.blocks();
        (0..number).for_each(|number| self.sum_over(axis, unit, round, block(number)));
    }

    fn sum_over(&mut self, axis: Axis, unit: usize, round: usize, subtree: Subtree) {
        let (index, from) = self.own.summed_over(axis, unit, subtree);
        let (holder, content) = (self.own.along(axis, index), self.summed_over(axis, unit, round, subtree));
        let start = self.summed_part(axis, self.own.at.along(axis)) * from.len_bytes;
        self.note(holder.at, from, content, start, false);
    }

    pub(super) fn sum(&mut self, axis: Axis, bucket: usize, round: usize) {
        let (own, mesh) = (self.own, &self.plan.config.mesh);
        let is_of_replica = axis == Axis::Zero && mesh.replica > 1;
        let of = if is_of_replica { Gradients::OfReplica(own.at.replica) } else { Gradients::OfAll };
        for unit in self.units_of(bucket) {
            let to = own.sum(axis, unit);
            let start = self.summed_part(axis, own.at.along(axis)) * to.len_bytes;
            self.terms(axis, unit, round);
            if round > 0 && !is_of_replica {
                self.note(own.at, to, Content::Gradients { unit, round: round - 1, of }, start, false);
            }
            self.note(own.at, to, Content::Gradients { unit, round, of }, start, true);
        }
    }

    /// The content that an update of a unit finds in the place of its sums.
    pub(super) fn updates_by(&self, unit: usize) -> Content {
        if self.plan.config.updates_at_use() {
            return sums_of_last_step(self.plan, unit);
        }
        if self.plan.tables().is_orthogonalized(unit) { Content::Direction { unit } } else { self.summed(unit) }
    }

    /// The sum of a unit's gradients over all ranks.
    pub(super) fn summed(&self, unit: usize) -> Content {
        summed(self.plan, unit)
    }

    /// Adds a part of the sum of a tied unit, on the rank at `from`, to the sum of its owner on this rank.
    pub(super) fn fold(&mut self, tied: usize, from: Coordinates) {
        let (own, owner) = (self.own, self.owner(tied));
        let (there, here) = (self.plan.places(from), own.reduced(owner));
        let start = self.gradient_bytes(own.at, here, Some(own.at.replica));
        let round = self.plan.config.reductions() - 1;
        let content = |unit| Content::Gradients { unit, round, of: Gradients::OfAll };
        self.note(from, there.part(there.reduced(tied), own.at.replica), content(tied), start, false);
        let to = own.part(here, own.at.replica);
        self.note(own.at, to, content(owner), start, false);
        self.note(own.at, to, self.summed(owner), start, true);
    }

    /// Reads the sums of each rank along an axis, or the directions made of them. A part that a host peer receives for
    /// the host is read at that host peer.
    pub(super) fn spread(&mut self, bucket: usize, axis: Axis) {
        let (own, tables) = (self.own, self.plan.tables());
        let spreads_directions = self.plan.config.spreads_directions(axis);
        for unit in self.units_of(bucket).filter(|&unit| tables.is_spread(unit, axis)) {
            let content = if spreads_directions { self.updates_by(unit) } else { self.summed(unit) };
            for index in 0..self.plan.config.mesh.len(axis) {
                let peer = own.along(axis, index);
                let whole = peer.reduced(unit);
                let (holder, from, to) = own.spread_from(unit, axis, index);
                let start = self.gradient_bytes(peer.at, whole, (axis == Axis::Replica).then_some(index));
                self.note(holder.at, from, content, start, false);
                // If sums are made in place, this rank's own sum is already in its place.
                if peer.at != own.at || from != to {
                    self.note(own.at, to, content, start, true);
                }
            }
        }
    }

    /// Reads the sums of this rank, for their squares.
    pub(super) fn agree(&mut self) {
        let own = self.own;
        for unit in 0..self.plan.units.len() {
            if self.plan.units[unit].params > 0 && self.plan.placements[unit].pipeline_stage == own.at.pipeline {
                let whole = own.reduced(unit);
                let start = self.gradient_bytes(own.at, whole, Some(own.at.replica));
                self.note(own.at, own.part(whole, own.at.replica), self.summed(unit), start, false);
            }
        }
    }
}

/// The sums of the step before, as a step that updates parameters at their use finds them.
fn sums_of_last_step(plan: &Plan, unit: usize) -> Content {
    Content::Gradients { unit, round: plan.config.reductions() - 1, of: Gradients::OfLastStep }
}

/// Accesses that read the sums of a rank between two steps, where parameters are updated at their use: those of the step
/// before, or, at the end of a step, its own.
pub(crate) fn sums_between_steps(plan: &Plan, at: Coordinates, is_end: bool) -> Vec<Access> {
    let own = plan.places(at);
    let of_unit = |unit: usize| {
        let is_here = plan.placements[unit].pipeline_stage == at.pipeline && plan.units[unit].params > 0;
        if !is_here || !plan.config.updates_at_use() {
            return None;
        }
        let (stretch, place) = own.kept(Kept::Sums, unit).unwrap_or_else(|| (own.owned(unit), own.sums(unit)));
        let content = if is_end { summed(plan, unit) } else { sums_of_last_step(plan, unit) };
        let from_byte = place.region.bytes(&plan.config, stretch.start);
        Some(Access { at, place, content, from_byte, writes: false })
    };
    (0..plan.units.len()).filter_map(of_unit).collect()
}

/// The sum of a unit's gradients over all ranks.
fn summed(plan: &Plan, unit: usize) -> Content {
    let has_tied = plan.tables().tied_to(unit).is_some() && plan.placements[unit].padded > 0;
    let of = if has_tied { Gradients::OfTie } else { Gradients::OfAll };
    Content::Gradients { unit, round: plan.config.reductions() - 1, of }
}
