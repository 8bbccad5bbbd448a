//! Mates: where ranks of a host share what goes between hosts along `zero`, how they wait for one another, and each for its
//! counterparts on other hosts. Never moves a byte.

use zero_plan::Axis;

use super::Lost;
use super::control::Count;
use super::shared::Shared;
use crate::device::Device;

impl<D: Device> Shared<'_, D> {
    /// Waits until no mate needs any more what it has read or computed on where this rank has released it: in slots in common, or
    /// in this rank's inbox.
    pub(super) fn await_released(&mut self, device: &D) -> Result<(), Lost> {
        self.await_mates(device, Count::Released, self.told(Count::Released))
    }

    /// Waits until a count of every other rank of this host along `zero` has reached `target`.
    pub(super) fn await_mates(&mut self, device: &D, count: Count, target: u32) -> Result<(), Lost> {
        self.await_along_zero(device, count, target, |own, mates, zero| zero / mates == own / mates)
    }

    /// Waits until a count of every counterpart on other hosts has reached `target`.
    pub(super) fn await_counterparts(&mut self, device: &D, count: Count, target: u32) -> Result<(), Lost> {
        self.await_along_zero(device, count, target, |own, mates, zero| zero % mates == own % mates)
    }

    fn await_along_zero(
        &mut self,
        device: &D,
        count: Count,
        target: u32,
        is_one: impl Fn(usize, usize, usize) -> bool,
    ) -> Result<(), Lost> {
        let (config, own) = (self.arena.plan().config, self.arena.coordinates().zero);
        for zero in (0..config.mesh.zero).filter(|&zero| zero != own && is_one(own, config.mates(Axis::Zero), zero)) {
            self.await_count(device, self.arena.along(Axis::Zero, zero), count, target)?;
        }
        Ok(())
    }

    /// Waits until the local gradients of a bucket are there on all ranks of this host, and until the sums have left that lie
    /// where theirs are to go.
    pub(super) fn await_mates_offers(&mut self, device: &D, bucket: usize) -> Result<(), Lost> {
        let offer = self.sums.offers[bucket].expect("the schedule offers a bucket before it sums it over the host");
        self.await_mates(device, Count::Offered, offer)?;
        let slot = usize::from(self.arena.plan().buckets[bucket].partial > 0);
        match self.sums.subtotals[slot].replace(offer) {
            Some(before) => self.await_counterparts(device, Count::Settled, before),
            None => Ok(()),
        }
    }
}
