//! Checkpoint: reads the bytes of each state that this rank writes, in place or from a copy, and sets states when a run
//! is resumed. Never touches a file.
#![allow(unsafe_code)]

use std::sync::Arc;

use zero_plan::Plan;
use zero_plan::place::{Kept, Place, Places, State, Stretch};

use super::Engine;
use super::parameters::pieces;
use zero_core::arena::Arena;
use zero_core::device::Device;
use zero_core::lost::Lost;
use zero_core::states::{PIECE_ELEMENTS, RankStates, Saved};
use zero_core::transport::Transport;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = PIECE_ELEMENTS * size_of::<f32>();

/// The stretches that a rank writes to a checkpoint, state by state and within a state unit by unit, with their places
/// and the places of their copies.
fn saved<'a>(places: Places<'a>) -> impl Iterator<Item = (Saved, Place, Option<Place>)> + 'a {
    let pairs =
        State::ALL.into_iter().flat_map(move |state| (0..places.tables.units.len()).map(move |unit| (state, unit)));
    pairs.filter_map(move |(state, unit)| {
        let (stretch, place) = places.checkpointed(state, unit)?;
        // Without the padding at the end of the buffer.
        let len = places.tables.units[unit].params.saturating_sub(stretch.start).min(stretch.len);
        let without = |place: Place| place.first(place.len_bytes / stretch.len * len);
        let copy = places.snapshot(state, unit).filter(|_| places.tables.config.snapshot);
        let saved = Saved { state, unit, stretch: Stretch { len, ..stretch } };
        (len > 0).then(|| (saved, without(place), copy.map(without)))
    })
}

/// Calls `each` with the bytes of places of this rank, one after another, in pieces.
///
/// # Safety
/// Nobody writes the places meanwhile.
unsafe fn read<D: Device, E>(
    (arena, device): (&Arena<D>, &D),
    places: impl Iterator<Item = Place>,
    mut each: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut bytes = vec![0; PIECE_BYTES];
    for place in places {
        for start in (0..place.len_bytes).step_by(PIECE_BYTES) {
            let len = PIECE_BYTES.min(place.len_bytes - start);
            // SAFETY: by the caller's promise.
            device.read(unsafe { arena.bytes(place.cut(start, len)) }, &mut bytes[..len]);
            each(&bytes[..len])?;
        }
    }
    Ok(())
}

/// A copy of the bytes that a rank writes to a checkpoint. Another thread may read it while the rank continues to train.
pub struct Snapshot<'p, D: Device> {
    arena: Arc<Arena<'p, D>>,
    /// The device of the thread that reads it.
    device: D,
    /// The engine makes no other copy while this reference is held.
    _held: Arc<()>,
}

impl<D: Device> Snapshot<'_, D> {
    /// Calls `each` with all bytes, in the order of [`Engine::saved`], in pieces.
    ///
    /// # Errors
    /// The first error of `each`, which ends the call.
    pub fn read<E>(&self, each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let copies = saved(self.arena.places()).filter_map(|(_, _, copy)| copy);
        // SAFETY: only `Engine::snapshot` writes to the region of snapshots, which is private to this rank, and not
        // while this snapshot is held.
        unsafe { read((&self.arena, &self.device), copies, each) }
    }
}

impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    /// The stretches that this rank writes to a checkpoint: all ranks together write every element of every state once.
    pub fn saved(&self) -> Vec<Saved> {
        saved(self.arena.places()).map(|(saved, ..)| saved).collect()
    }

    /// The stretch of a unit's flat buffer that this rank stores of a state, without padding; `None` if it stores none.
    /// The rank also stores parameters of units of other pipeline stages that are mirrored here.
    pub fn stored(&self, state: State, unit: usize) -> Option<Stretch> {
        let held = if state == State::Parameters { self.held_as(unit)? } else { unit };
        let (stretch, _) = self.arena.places().state(state, held)?;
        let len = self.plan.units[unit].params.saturating_sub(stretch.start).min(stretch.len);
        Some(Stretch { len, ..stretch })
    }

    /// Calls `each` with the stored bytes of everything that [`Engine::saved`] lists, in that order, in pieces.
    ///
    /// # Errors
    /// The first error of `each`, which ends the call.
    pub fn read_saved<E>(&self, mut each: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        self.require_finished(Kept::State(State::Parameters));
        saved(self.arena.places()).try_for_each(|(Saved { state, unit, stretch }, ..)| {
            let here = |place, _| {
                // SAFETY: between steps nobody writes the bytes that this rank stores.
                unsafe { read((&self.arena, &self.ranks.device), core::iter::once(place), &mut each) }
            };
            // SAFETY: as above, and no pass is under way.
            unsafe { self.in_memory((Kept::State(state), unit), stretch.elements(), false, here) }
        })
    }

    /// Copies everything that [`Engine::saved`] lists to the place that the plan reserves for it; returns `None` if
    /// there is no such place.
    ///
    /// # Panics
    /// If the last copy is still held.
    pub fn snapshot(&mut self) -> Option<Snapshot<'p, D>> {
        if !self.plan.config.snapshot {
            return None;
        }
        // `Arc::strong_count` would not do: it does not order the last holder's reads before the writes below.
        assert!(Arc::get_mut(&mut self.snapshot).is_some(), "the last snapshot is still being read");
        for (_, from, to) in saved(self.arena.places()) {
            let to = to.expect("a plan with snapshots");
            // SAFETY: between steps nobody writes the bytes that this rank stores; nobody reads the copy, as no snapshot is held.
            unsafe { self.ranks.device.copy(self.arena.bytes_mut(to), self.arena.bytes(from)) };
        }
        let (arena, device) = (Arc::clone(&self.arena), self.ranks.device.beside());
        Some(Snapshot { arena, device, _held: Arc::clone(&self.snapshot) })
    }

    /// Sets the part of a unit's state that this rank stores. `source(start, values)` fills `values` with the numbers
    /// of the unit's flat buffer from `start` on. It is called only for elements that this rank stores, once each and
    /// in order; padding becomes 0. Does nothing if the rank has no such state. Together with [`Engine::load_pieces`]
    /// and [`Engine::set_steps_done`] it resumes a run.
    ///
    /// # Errors
    /// The error of `source`.
    ///
    /// # Panics
    /// For parameters, which [`Engine::load_pieces`] sets; if a unit has no parameters yet; or after a step.
    pub fn set_state<E>(
        &mut self,
        state: State,
        unit: usize,
        mut source: impl FnMut(usize, &mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (loaded, units) = (self.loaded, self.plan.units.len());
        // Peers may read parameters as soon as they are loaded.
        assert_ne!(state, State::Parameters, "parameters are set by `load`");
        assert_eq!((loaded, self.steps_done), (units, 0), "states are set after all units and before the first step");
        let Some((stretch, _)) = self.arena.places().state(state, unit) else { return Ok(()) };
        let mut values = Vec::new();
        for piece in pieces(stretch.elements(), self.plan.units[unit].params) {
            values.resize(piece.len(), 0.0);
            source(piece.start, &mut values)?;
            // SAFETY: states of parameters are private to this rank, and no op is under way.
            unsafe { self.set((state, unit), piece, &values) };
        }
        Ok(())
    }
}

impl<'p, D: Device, T: Transport<'p, D>> RankStates for Engine<'p, D, T> {
    fn plan(&self) -> &Plan<'_> {
        self.plan()
    }

    fn rank(&self) -> usize {
        self.arena().rank()
    }

    fn saved(&self) -> Vec<Saved> {
        self.saved()
    }

    fn stored(&self, state: State, unit: usize) -> Option<Stretch> {
        self.stored(state, unit)
    }

    fn read_state(&self, state: State, unit: usize, each: impl FnMut(usize, &[f32])) -> Option<Stretch> {
        self.read_state(state, unit, each)
    }

    fn load_pieces<E>(&mut self, unit: usize, source: impl FnMut(usize, &mut [f32]) -> Result<(), E>) -> Result<(), E> {
        self.load_pieces(unit, source)
    }

    fn set_state<E>(
        &mut self,
        state: State,
        unit: usize,
        source: impl FnMut(usize, &mut [f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.set_state(state, unit, source)
    }

    fn set_steps_done(&mut self, steps: u64) {
        self.set_steps_done(steps);
    }

    fn gather_numbers(&mut self, mine: &[f64]) -> Result<&[f64], Lost> {
        self.gather_numbers(mine)
    }
}
