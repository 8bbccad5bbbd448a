//! Staged: newer parameters of a worker, which arrive beside those in use and replace them between two walks. Never knows where they
//! come from.
#![allow(unsafe_code)]

use super::Engine;
use zero_core::device::Device;
use zero_core::lost::Lost;
use zero_core::transport::Transport;

impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    /// Whether newer parameters can arrive. The first can in any worker, because nothing uses the room for them yet.
    pub fn can_stage(&self) -> bool {
        let serve = self.plan.config.serve;
        serve.staged || !serve.is_none() && self.loaded == 0
    }

    /// Keeps parameters of a unit's flat buffer, from `start` on, until [`Engine::use_staged`]. No walk uses them before.
    ///
    /// # Panics
    /// Unless [`Engine::can_stage`].
    pub fn stage(&mut self, unit: usize, start: usize, numbers: &[f32]) {
        assert!(self.can_stage(), "a plan without room for newer parameters");
        let places = self.arena.places();
        let place = if self.plan.config.serve.staged { places.staged(unit) } else { places.flat(unit) };
        // SAFETY: nobody else reads or writes the region of a worker, and no walk is under way.
        unsafe { self.write(place, start, numbers) };
    }

    /// Has the next walk use what was staged, in place of what is in use. What caches hold of earlier tokens stays as it is. The
    /// caller has staged all parameters.
    ///
    /// # Errors
    /// [`Lost`] if the device has failed.
    ///
    /// # Panics
    /// Unless [`Engine::can_stage`].
    pub fn use_staged(&mut self) -> Result<(), Lost> {
        assert!(self.can_stage(), "a plan without room for newer parameters");
        let places = self.arena.places();
        for unit in (0..self.plan.units.len()).filter(|&unit| self.plan.placements[unit].holds) {
            let [to, from] = [places.flat(unit), places.staged(unit)];
            if self.plan.config.serve.staged {
                // SAFETY: two regions of this rank, which nobody else reads or writes, and no walk is under way.
                unsafe { self.ranks.device.copy(self.arena.bytes_mut(to), self.arena.bytes(from)) };
            }
        }
        self.loaded = self.plan.units.len();
        self.finish()
    }
}
