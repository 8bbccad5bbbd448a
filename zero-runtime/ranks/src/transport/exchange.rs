//! Exchange: all ranks write numbers for one another and read those of the others, for a reason that must be the same on
//! all. Never knows what the numbers are.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use super::Lost;
use super::control::Count;
use super::shared::Shared;
use zero_core::device::Device;
use zero_core::view::{View, ViewMut};

impl<D: Device> Shared<'_, D> {
    /// Where a rank keeps the reason for this exchange, and its numbers.
    fn numbers(&self, rank: usize, len: usize) -> (&AtomicU64, &[AtomicU64]) {
        assert!(len <= self.arena.plan().agreed_values(), "{len} numbers are more than ranks agree on");
        let round = self.told(Count::Entered);
        // SAFETY: room for the reason and `len` numbers, aligned since it starts on a page and holds words of this
        // size, zero at first, and used as atomics by hosts; a device writes its numbers before it tells so, and reads
        // those of others after they have told so.
        let words = unsafe { core::slice::from_raw_parts(self.arena.numbers(rank, round).cast(), 1 + len) };
        let (reason, numbers) = words.split_first().expect("a reason at least");
        (reason, numbers)
    }

    /// Waits for all other ranks, which must come for the same reason. This rank has already written its own numbers.
    ///
    /// # Panics
    /// On every rank, if one has come for another reason.
    fn meet(&self, call: u64, len: usize, mut met: impl FnMut(usize, &[AtomicU64])) -> Result<(), Lost> {
        let mut others = None;
        for rank in 0..self.arena.plan().config.mesh.ranks() {
            self.await_on_host(rank, Count::Entered, self.told(Count::Entered))?;
            let (reason, numbers) = self.numbers(rank, len);
            if reason.load(Ordering::Relaxed) != call {
                others.get_or_insert(rank);
            }
            met(rank, numbers);
        }
        // If ranks went on, one of them might update what another is still reading.
        if let Some(other) = others {
            panic!(
                "rank {other} makes another call than rank {}: all ranks of a run must make the same calls of their \
                 engines, in the same order",
                self.rank()
            );
        }
        Ok(())
    }

    /// Signals that this rank has entered an exchange, for a reason, with `len` of its own numbers.
    fn enter(&mut self, call: u64, len: usize) -> Result<(), Lost> {
        self.await_leaving()?;
        self.told[Count::Entered.index()] = self.next(Count::Entered);
        let (reason, numbers) = self.numbers(self.rank(), len);
        reason.store(call, Ordering::Relaxed);
        for (to, number) in numbers.iter().zip(&self.mine) {
            to.store(number.to_bits(), Ordering::Relaxed);
        }
        self.own().signal(Count::Entered).raise();
        // SAFETY: all that was sent has left; ranks of this host read what others left two exchanges ago before they
        // entered the last, for which this one has waited.
        unsafe { self.post_numbers() };
        Ok(())
    }

    /// [`Transport::exchange`] if the host knows the numbers of its rank as soon as it asks for them.
    pub(super) fn exchange_on_host(
        &mut self,
        device: &D,
        call: u64,
        mine: View<D, f64>,
        mut all: ViewMut<D, f64>,
    ) -> Result<(), Lost> {
        let len = mine.len();
        device.read(mine, &mut self.mine[..len]);
        self.enter(call, len)?;
        self.meet(call, len, |rank, numbers| {
            device.stage(all.reborrow().part(rank * len, len), |to| {
                for (number, from) in to.iter_mut().zip(numbers) {
                    *number = f64::from_bits(from.load(Ordering::Relaxed));
                }
            });
        })
    }

    /// [`Self::exchange_on_host`] without a wait for the device: hosts compare the reason, and devices exchange the numbers.
    pub(super) fn exchange_on_device(
        &mut self,
        device: &D,
        call: u64,
        mine: View<D, f64>,
        mut all: ViewMut<D, f64>,
    ) -> Result<(), Lost> {
        let len = mine.len();
        // Numbers go another way: messages to other hosts carry the reason, but only room for the numbers.
        self.enter(call, 0)?;
        self.meet(call, len, |_, _| {})?;
        if self.carried.is_some() {
            // SAFETY: all ranks have come for the same reason, with equally many numbers.
            unsafe { self.carry_numbers(device, mine, all) }?;
            // Signal this only now: otherwise a rank that stopped in between would owe nothing.
            let target = self.tell(device, Count::Exchanged);
            return self.await_all(device, Count::Exchanged, target);
        }
        // SAFETY: room for this rank's numbers, which only its device writes. Others have finished reading those of two
        // exchanges ago: each signalled its numbers of the last exchange after that, and this device waited for it.
        let own = unsafe { ViewMut::from_raw(self.numbers_on(device, self.rank(), len), len) };
        device.copy(own, mine);
        let target = self.tell(device, Count::Exchanged);
        for rank in 0..self.arena.plan().config.mesh.ranks() {
            // Its own numbers are there: they were copied in this queue. A wait for itself would look like one for
            // another rank.
            if rank != self.rank() {
                self.await_count(device, rank, Count::Exchanged, target)?;
            }
            // SAFETY: the numbers of a rank that has told them, which are written again only after this device has told
            // its next.
            let numbers = unsafe { View::from_raw(self.numbers_on(device, rank, len), len) };
            device.copy(all.reborrow().part(rank * len, len), numbers);
        }
        Ok(())
    }

    /// Where the device finds the numbers of a rank.
    fn numbers_on(&self, device: &D, rank: usize, len: usize) -> *mut f64 {
        let numbers = self.numbers(rank, len).1;
        device.reach(numbers.as_ptr().cast::<f64>().cast_mut())
    }
}
