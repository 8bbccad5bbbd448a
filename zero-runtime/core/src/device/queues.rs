//! Queues: the order of ops on a device that runs them after their calls have returned. Never says what an op does.

use std::sync::atomic::AtomicU32;

use super::{DeviceError, HostCall};

/// The queues of a device, and the events between them. On a device without queues, all of this does nothing: each op
/// is done when its call returns.
pub trait Queues {
    /// Whether ops run after their calls have returned, in queues of the device. The device then waits and signals for
    /// its rank.
    const QUEUES: bool = false;

    /// The counts that the queues set and wait for, if there are queues.
    fn counts(&self) -> Option<&dyn Counts> {
        None
    }

    /// Makes the events of [`Queues::record`] and [`Queues::wait`], before the first step. Existing events are kept.
    ///
    /// # Errors
    /// If the device cannot make that many.
    fn prepare(&self, events: usize) -> Result<(), DeviceError> {
        let _ = events;
        Ok(())
    }

    /// Keeps the calls of [`Queues::call_host`], before the first step.
    fn keep_calls(&self, calls: Vec<HostCall>) {
        assert!(calls.is_empty(), "a device without queues calls its host itself");
    }

    /// Makes the host do one of the calls that were kept, after all ops that the entered queue has received so far. Later ops of
    /// the queue wait for its end. The host may not use the device in it.
    fn call_host(&self, call: usize) {
        unreachable!("call {call}: a device without queues calls its host itself");
    }

    /// From here on, ops go to this queue of the device; the first has number 0. A device that runs each op at once has
    /// one queue.
    fn enter(&self, queue: usize) {
        let _ = queue;
    }

    /// Records an event after all ops that the entered queue has received so far.
    fn record(&self, event: usize) {
        let _ = event;
    }

    /// Makes all later ops of the entered queue wait for the last record of the event.
    fn wait(&self, event: usize) {
        let _ = event;
    }

    /// Begins a repeated pass: with the same key, a pass has the same ops each time, on the same places and in the same
    /// queues; only staged data, counts, and the words of counts differ. A device with queues may keep the pass and run
    /// it as one. Ops go to the first queue until another is entered, and each queue that is entered waits for the
    /// first queue beforehand.
    fn begin_repeated(&self, key: u64) {
        let _ = key;
    }

    /// Ends the pass that [`Queues::begin_repeated`] began, if there is one. The first queue then continues after all
    /// of the pass, and has waited for the other queues. The device may defer the whole pass until then.
    fn end_repeated(&self) {}

    /// From here on until [`Queues::ready`], ops have no effect: the device only records what they need. A device that
    /// needs only its program does not rehearse.
    fn rehearse(&self) {}

    /// Ends the rehearsal, and prepares everything that its ops need, so that they need not wait for it later.
    fn ready(&self) {}

    /// Whether all ops so far have ended, successful or not. Sends from queues that belong to no stream of a plan do
    /// not count.
    fn is_idle(&self) -> bool {
        true
    }
}

/// Counts that queues set, and wait for.
pub trait Counts {
    /// Sets a count once all ops so far of the queue are done. Only this rank sets it; other ranks wait for it.
    fn tell(&self, word: &AtomicU32, count: u32);

    /// Delays all later ops of the queue until a count, which wraps around, has reached `target`.
    fn await_count(&self, word: &AtomicU32, target: u32);
}
