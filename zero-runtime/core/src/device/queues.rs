//! Queues: the order of ops on a device that runs them after their calls have returned. Never says what an op does.

use std::sync::atomic::AtomicU32;

use super::DeviceError;

/// The queues of a device, and the events between them. What a device without queues does here is nothing: each op is done when
/// its call returns.
pub trait Queues {
    /// Whether ops run after their calls have returned, in queues of the device. The device then waits and tells for
    /// its rank.
    const QUEUES: bool = false;

    /// What waits and tells in the queues, if there are any.
    fn counts(&self) -> Option<&dyn Counts> {
        None
    }

    /// Makes the events of [`Queues::record`] and [`Queues::wait`], before the first step, and keeps those that exist
    /// already.
    ///
    /// # Errors
    /// If the device does not have that many.
    fn prepare(&self, events: usize) -> Result<(), DeviceError> {
        let _ = events;
        Ok(())
    }

    /// From here on, ops go to this queue of the device; the first has number 0. A device that runs each op at once has
    /// one queue.
    fn enter(&self, queue: usize) {
        let _ = queue;
    }

    /// Records an event after everything that the entered queue has been asked for so far.
    fn record(&self, event: usize) {
        let _ = event;
    }

    /// Makes everything that the entered queue is asked for from here on wait for the last record of the event.
    fn wait(&self, event: usize) {
        let _ = event;
    }

    /// Begins a pass that is repeated: with the same key, it has the same ops each time, on the same places and in the
    /// same queues; only staged data, counts, and the words that tell them differ. A device with queues may keep the
    /// pass and run it as one. Ops go to the first queue until another is entered, and all queues that are entered wait
    /// for the first queue beforehand.
    fn begin_repeated(&self, key: u64) {
        let _ = key;
    }

    /// Ends the pass that [`Queues::begin_repeated`] began, if there is one. The first queue then continues after all
    /// of the pass, and has waited for the others. The device may leave all of the pass undone until then.
    fn end_repeated(&self) {}

    /// From here on until [`Queues::ready`], ops have no effect; the device only learns what they need. A device that
    /// needs only its program is not asked.
    fn rehearse(&self) {}

    /// Prepares what the ops of the rehearsal need, so that they need not wait for it later; ends the rehearsal.
    fn ready(&self) {}

    /// Whether all ops so far have ended, successful or not; sends from queues that no stream of a plan has do not
    /// count.
    fn is_idle(&self) -> bool {
        true
    }
}

/// Counts that queues set, and wait for.
pub trait Counts {
    /// Sets a count, which only this rank sets and others wait for, once all ops so far of the queue are done.
    fn tell(&self, word: &AtomicU32, count: u32);

    /// Delays all later ops of the queue until a count, which wraps around, has reached `target`.
    fn await_count(&self, word: &AtomicU32, target: u32);
}
