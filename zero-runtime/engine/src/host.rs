//! Host: makes a device carry states between the memory of its host and the window, where the plan keeps states there, or
//! where they pass on their way to a disk.
//! Never decides what travels, or when.
#![allow(unsafe_code)]

use zero_plan::place::Place;
use zero_plan::{Op, Pass, Stream};

use super::Engine;
use zero_core::device::Device;
use zero_core::tier::Direction;
use zero_core::transport::Transport;

impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    /// Copies all that an op moves to the device or back, whole blocks, in the entered queue.
    ///
    /// # Safety
    /// The op is the next of this rank's table, which has been proven.
    pub(super) unsafe fn carry_all(&mut self, pass: Pass, op: Op) {
        let direction = if op.traits().stream == Stream::Fetch { Direction::Fetch } else { Direction::Store };
        if let Some(tier) = &self.tier {
            tier.begin_op(pass);
            // SAFETY: by the caller's promise.
            unsafe { tier.relay(&self.ranks.device, direction, op) };
        }
        let places = self.arena.places();
        for trip in places.trips(op).filter(|(kept, _)| !places.is_relayed(*kept)) {
            // SAFETY: by the caller's promise, ops that conflict with this one wait for it.
            unsafe { self.carry(direction, trip) };
            let bytes = match direction {
                Direction::Fetch => &mut self.carried.read,
                Direction::Store => &mut self.carried.written,
            };
            *bytes += trip.1.len_bytes;
        }
    }

    /// Copies between a place that the host keeps and one in the window, in the entered queue.
    ///
    /// # Safety
    /// Until the queue has done it, nobody else uses the place in the window, and nobody writes the other one.
    pub(super) unsafe fn carry(&self, direction: Direction, (kept, window): (Place, Place)) {
        let (from, to) = match direction {
            Direction::Fetch => (kept, window),
            Direction::Store => (window, kept),
        };
        // SAFETY: two regions of this rank; the caller promises the rest.
        unsafe { self.ranks.device.copy(self.arena.bytes_mut(to), self.arena.bytes(from)) };
    }
}
