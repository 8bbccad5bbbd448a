//! Publish: copies what this rank offers of its parameters, and lets another thread read the copies. Never knows a reader.
#![allow(unsafe_code)]

use std::sync::{Arc, PoisonError, RwLock, TryLockError};

use zero_plan::{Pass, Plan};

use super::Engine;
use zero_core::arena::Arena;
use zero_core::device::Device;
use zero_core::lost::Lost;
use zero_core::published::PublishedCopies;
use zero_core::transport::Transport;

/// What each copy holds: the parameters after this many steps, if it holds any. Whoever reads or writes a copy holds its lock, for as
/// long as it takes to copy memory.
pub(super) type HeldVersions = Arc<[RwLock<Option<u64>>]>;

/// A lock for each copy of a plan.
pub(super) fn held_versions(plan: &Plan) -> HeldVersions {
    (0..plan.config.publish.copies).map(|_| RwLock::new(None)).collect()
}

/// The copies of a rank.
pub struct Copies<'p, D: Device> {
    arena: Arc<Arena<'p, D>>,
    /// The device of the thread that reads.
    device: D,
    held: HeldVersions,
}

impl<D: Device> PublishedCopies for Copies<'_, D> {
    fn bytes(&self) -> usize {
        self.arena.places().copy(0).len_bytes
    }

    fn read(&self, step: u64, start: usize, to: &mut [u8]) -> bool {
        let places = self.arena.places();
        for (copy, held) in self.held.iter().enumerate() {
            let held = match held.try_read() {
                Ok(held) => held,
                // It is being written.
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Poisoned(_)) => return false,
            };
            if *held == Some(step) {
                let place = places.copy(copy).cut(start, to.len());
                // SAFETY: the region is private to this rank, and only `Engine::publish` writes it, under this lock.
                self.device.read(unsafe { self.arena.bytes(place) }, to);
                return true;
            }
        }
        false
    }
}

impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    /// The copies of this rank, for a thread that serves them; `None` if the plan publishes nothing.
    pub fn copies(&self) -> Option<Copies<'p, D>> {
        let (arena, device) = (Arc::clone(&self.arena), self.ranks.device.beside());
        self.plan.config.publishes().then(|| Copies { arena, device, held: Arc::clone(&self.held_versions) })
    }

    /// Copies what this rank offers of the parameters after the last step, in place of the oldest copy, whose readers find that it is
    /// gone. Does the updates of that step, if they are due. Waits for no reader. Every rank must call it.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended, or the tier has failed.
    ///
    /// # Panics
    /// If the plan publishes nothing; and as [`Engine::step`].
    pub fn publish(&mut self) -> Result<(), Lost> {
        assert!(self.plan.config.publishes(), "a plan that publishes nothing");
        self.begin_walk();
        let versions = Arc::clone(&self.held_versions);
        let copy = self.publications % versions.len();
        self.publications += 1;
        let mut held = versions[copy].write().unwrap_or_else(PoisonError::into_inner);
        *held = None;
        let result = self.walk_publication(copy);
        if result.is_ok() {
            *held = Some(self.steps_done);
        }
        self.end(result)
    }

    fn walk_publication(&mut self, copy: usize) -> Result<(), Lost> {
        let mut walk = self.new_walk();
        self.ranks.position.copy = copy;
        self.awaited.begin_pass(self.plan, &self.ranks.device);
        for (index, &op) in self.arena.pipeline_stage().publication.iter().enumerate() {
            self.execute((Pass::Publish, index), op, &mut walk, &mut |_, _, _| ())?;
        }
        self.join_queues();
        self.end_pass_of_tier()?;
        self.finish()?;
        self.end_updates();
        Ok(())
    }

    /// Copies what this rank offers of a unit, in the type in which it is published.
    pub(super) fn offer(&self, unit: usize) {
        let (places, position) = (self.arena.places(), &self.ranks.position);
        let [from, to] = [places.offered_from(unit, position.shard_slot()), places.published(unit, position.copy)];
        // SAFETY: between steps nobody writes the parameters that this rank stores; the caller holds the lock of the copy.
        unsafe { self.ranks.device.convert(self.arena.stored_mut(to), self.arena.stored(from)) };
    }
}
