//! Publish: copies what this rank offers of its parameters, and lets another thread read the copies. Never knows a reader.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock, TryLockError};

use zero_plan::{Pass, Plan, Stream};

use super::Engine;
use zero_core::arena::Arena;
use zero_core::device::Device;
use zero_core::lost::Lost;
use zero_core::published::PublishedCopies;
use zero_core::transport::Transport;

/// What each copy holds. Whoever reads or writes a copy holds its lock, for as long as it takes to copy memory.
pub(super) type HeldVersions = Arc<[RwLock<Option<HeldVersion>>]>;

/// The parameters in a copy.
#[derive(Clone, Copy)]
pub(super) struct HeldVersion {
    /// Steps done.
    step: u64,
    /// Its number among all publications, from 1: a device says how many have arrived.
    number: u32,
}

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

    fn is_coming(&self, step: u64) -> bool {
        let is_it = |held: &HeldVersion| held.step == step && !self.has_arrived(*held);
        self.held.iter().any(|held| held.try_read().is_ok_and(|held| held.as_ref().is_some_and(is_it)))
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
            if held.is_some_and(|held| held.step == step && self.has_arrived(held)) {
                let place = places.copy(copy).cut(start, to.len());
                // SAFETY: the region is private to this rank, and only a publication writes it, which begins under this lock.
                let bytes = unsafe { self.arena.bytes(place) };
                if D::QUEUES {
                    // SAFETY: it is in the memory of the host, where the device has written it.
                    to.copy_from_slice(unsafe { core::slice::from_raw_parts(bytes.address(), to.len()) });
                } else {
                    self.device.read(bytes, to);
                }
                return true;
            }
        }
        false
    }
}

impl<D: Device> Copies<'_, D> {
    /// Whether all of a copy is there.
    fn has_arrived(&self, held: HeldVersion) -> bool {
        // Counts wrap around.
        !D::QUEUES || arrived(&self.arena).load(Ordering::Acquire).wrapping_sub(held.number).cast_signed() >= 0
    }
}

/// How many copies a device with queues has taken to the memory of its host.
fn arrived<'a, D: Device>(arena: &'a Arena<D>) -> &'a AtomicU32 {
    // SAFETY: an aligned word in the memory of the host, which the arena keeps, and which nobody uses otherwise.
    unsafe { &*arena.bytes_mut(arena.places().stored_copies()).address().cast() }
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
            *held = Some(HeldVersion { step: self.steps_done, number: self.publications as u32 });
        }
        self.end(result)
    }

    fn walk_publication(&mut self, copy: usize) -> Result<(), Lost> {
        if D::QUEUES {
            // What the last publication takes to the host leaves the window first.
            self.join_queues();
        }
        let mut walk = self.new_walk();
        self.ranks.position.copy = copy;
        self.awaited.begin_pass(self.plan, &self.ranks.device);
        for (index, &op) in self.arena.pipeline_stage().publication.iter().enumerate() {
            self.execute((Pass::Publish, index), op, &mut walk, &mut |_, _, _| ())?;
        }
        if D::QUEUES {
            let device = &self.ranks.device;
            device.enter(Stream::Store as usize);
            let counts = device.counts().expect("the counts of a device with queues");
            counts.tell(arrived(&self.arena), self.publications as u32);
            self.awaited.end_publication(self.plan, device);
            self.ranks.transport.end_pass(device);
        } else {
            self.join_queues();
        }
        self.end_pass_of_tier()?;
        if self.plan.config.fetches_published() || !D::QUEUES {
            self.finish()?;
        }
        self.end_updates();
        self.require_device()
    }

    /// Copies what this rank offers of a unit, in the type in which it is published.
    pub(super) fn offer(&self, unit: usize) {
        let (places, position) = (self.arena.places(), &self.ranks.position);
        let [from, to] = [places.offered_from(unit, position.shard_slot()), places.offered_to(unit, position.copy)];
        // SAFETY: between steps nobody writes the parameters that this rank stores; the caller holds the lock of the copy.
        unsafe { self.ranks.device.convert(self.arena.stored_mut(to), self.arena.stored(from)) };
    }

    /// Takes what this rank offers of a unit to a copy in the memory of the host, in the entered queue.
    pub(super) fn store_offered(&self, unit: usize) {
        let (places, copy) = (self.arena.places(), self.ranks.position.copy);
        let [from, to] = [places.offered_to(unit, copy), places.published(unit, copy)];
        // SAFETY: two regions of this rank. The next offer of the unit comes after this, and readers use the copy once it has arrived.
        unsafe { self.ranks.device.copy(self.arena.bytes_mut(to), self.arena.bytes(from)) };
    }
}
