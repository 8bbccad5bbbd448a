//! Host peers: ranks of a host that share the traffic between hosts along an axis: how they wait for one another, and
//! each for its counterparts on other hosts. Never moves a byte.

use zero_plan::Axis;

use super::Lost;
use super::control::Count;
use super::shared::Shared;
use zero_core::device::Device;

impl<D: Device> Shared<'_, D> {
    /// Waits until every rank that gathers with this one has released what this rank has released: shared slots, or data in
    /// this rank's inbox, which they read or compute on.
    pub(super) fn await_released(&mut self, device: &D) -> Result<(), Lost> {
        let (released, gatherers) = (self.told(Count::Released), self.arena.plan().config.gatherers());
        self.await_those(device, Axis::Zero, Count::Released, released, |own, _, index| {
            index / gatherers == own / gatherers
        })
    }

    /// Waits until a count of every other rank of this host along an axis has reached `target`.
    pub(super) fn await_host_peers(&mut self, device: &D, axis: Axis, count: Count, target: u32) -> Result<(), Lost> {
        self.await_those(device, axis, count, target, |own, peers, index| index / peers == own / peers)
    }

    /// Waits until a count of every counterpart on other hosts along an axis has reached `target`.
    pub(super) fn await_counterparts(&mut self, device: &D, axis: Axis, count: Count, target: u32) -> Result<(), Lost> {
        self.await_those(device, axis, count, target, |own, peers, index| index % peers == own % peers)
    }

    fn await_those(
        &mut self,
        device: &D,
        axis: Axis,
        count: Count,
        target: u32,
        is_one: impl Fn(usize, usize, usize) -> bool,
    ) -> Result<(), Lost> {
        let (config, own) = (self.arena.plan().config, self.arena.coordinates().along(axis));
        for index in (0..config.mesh.len(axis)).filter(|&index| index != own) {
            if is_one(own, config.ranks_per_host(axis), index) {
                self.await_count(device, self.arena.along(axis, index), count, target)?;
            }
        }
        Ok(())
    }

    /// Waits until the terms of a bucket's sum along an axis are there: sums of other hosts, or a term of each rank.
    pub(super) fn await_terms(&mut self, device: &D, axis: Axis, count: Count, target: u32) -> Result<(), Lost> {
        if self.arena.plan().config.sums_on_hosts(axis) {
            self.await_counterparts(device, axis, count, target)
        } else {
            self.await_peers(device, axis, count, target)
        }
    }

    /// Waits until others have read this rank's terms of a sum along an axis: its host peers, if they sum them for the
    /// host; otherwise all ranks, which raise another count for that.
    pub(super) fn await_read(&mut self, device: &D, axis: Axis, count: Count, target: u32) -> Result<(), Lost> {
        if self.arena.plan().config.sums_on_hosts(axis) {
            // Buckets are summed over a host in the order in which they are offered.
            self.await_host_peers(device, axis, Count::Subtotalled, target)
        } else {
            self.await_peers(device, axis, count, target)
        }
    }

    /// Waits until the terms of all ranks of this host for a bucket along an axis are there, and until the older sums
    /// in the place of the new ones have left.
    pub(super) fn await_host_offers(&mut self, device: &D, bucket: usize, axis: Axis) -> Result<(), Lost> {
        let (offered, read, offer) = match axis {
            Axis::Zero => (Count::Offered, Count::Settled, self.sums.offer(bucket)),
            _ => (Count::Settled, Count::Combined, self.sums.settles[bucket]),
        };
        self.await_host_peers(device, axis, offered, offer)?;
        let slot = self.arena.plan().buckets[bucket].partial_slot();
        match self.sums.subtotals[slot].replace(offer) {
            Some(before) => self.await_counterparts(device, axis, read, before),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "host_peers_tests.rs"]
mod tests;
