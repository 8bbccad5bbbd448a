//! Host: makes a device carry pieces of states between the memory of its host and the window, where the plan keeps
//! states there. Never decides what travels, or when.
#![allow(unsafe_code)]

use zero_plan::{Op, Piece};

use super::Engine;
use zero_core::device::Device;
use zero_core::transport::Transport;

impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    /// Copies a piece of each state to the window if `op` is a fetch, otherwise back: whole blocks, in the entered queue.
    ///
    /// # Safety
    /// The op is the next of this rank's table, which has been proven.
    pub(super) unsafe fn carry(&mut self, op: Op, unit: usize, piece: Piece) {
        let is_fetch = matches!(op, Op::Fetch { .. });
        for part in self.arena.places().states_of(unit, piece) {
            let (kept, window) = part.blocks();
            let (from, to) = if is_fetch { (kept, window) } else { (window, kept) };
            // SAFETY: two regions, and by the caller's promise ops that conflict with this one wait for it.
            unsafe { self.ranks.device.copy(self.arena.bytes_mut(to), self.arena.bytes(from)) };
            let bytes = if is_fetch { &mut self.carried.read } else { &mut self.carried.written };
            *bytes += to.len_bytes;
        }
    }
}
