//! Gathers: the accesses of ops that bring shards of parameters to where layers compute on them.

use super::OfOp;
use crate::layout::Kind;
use crate::mesh::Axis;

impl OfOp<'_, '_> {
    /// Puts this rank's own shard into a slot that it shares with its host peers.
    pub(super) fn give(&mut self, unit: usize, slot: usize) {
        let (own, zero) = (self.own, self.plan.config.mesh.zero);
        let (from, to) =
            (own.given_shard(unit, self.position.shard_slot()), own.computed_on(unit, slot).share(own.at.zero, zero));
        let is_updated = self.plan.config.updates_in(self.pass);
        self.parameters(own.at, unit, from, own.at.zero * from.len_bytes, is_updated);
        self.write_parameters(unit, to, own.at.zero * to.len_bytes, is_updated);
    }

    /// Reads every owner's shard, and writes it to its place here: below stage 3 in a replica, after the update. A
    /// shard that a host peer receives for the host is read at that host peer; in a shared slot it is already there.
    pub(super) fn gather(&mut self, unit: usize, slot: usize) {
        let (own, config) = (self.own, &self.plan.config);
        let zero = config.mesh.zero;
        let is_replica = !config.shards_parameters();
        let is_updated = is_replica || self.plan.config.updates_in(self.pass);
        let whole = if is_replica { own.flat(unit) } else { own.computed_on(unit, slot) };
        for index in 0..zero {
            let receiver = config.receiver(Axis::Zero, own.at.zero, index);
            if config.shares_slots() && (index == own.at.zero || receiver != own.at.zero) {
                continue;
            }
            let to = whole.share(index, zero);
            let (holder, from) = own.gathered_from(unit, index, slot);
            self.parameters(holder.at, unit, from, index * from.len_bytes, is_updated);
            // In all other cases layers read it where it lies.
            if whole.region != Kind::Parameters || is_replica && index != own.at.zero {
                self.write_parameters(unit, to, index * to.len_bytes, is_updated);
            }
        }
    }
}
