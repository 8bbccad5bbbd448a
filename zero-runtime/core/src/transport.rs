//! Transport: the contract between the engine and the code that delivers other ranks' bytes to it. Never says how.
//!
//! A new transport is an `unsafe impl` of [`Transport`] beside `zero-runtime/ranks/src/transport/shared.rs`, and a
//! value of [`zero_plan::TransportKind`] that says whether its gathers need slots. A transport that sends bytes starts
//! in the `begin` of `Gather`, `Reduce` and `Send`, finds the bytes by their places, and returns received bytes from
//! [`Transport::peer`]. It adds no numbers, so sums stay in the order of the plan.
#![allow(unsafe_code)]

use std::ops::{Add, Sub};
use std::sync::Arc;
use std::time::Duration;

use zero_plan::place::{Place, Position};
use zero_plan::{Moved, Op};

use crate::arena::Arena;
use crate::device::Device;
use crate::lost::Lost;
use crate::view::{View, ViewMut};
use crate::watchdog::Watchdog;

/// How long a rank waits for another one before it gives up, unless [`Transport::set_timeout`] says otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// Bytes exchanged between one rank and the ranks of other hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crossed {
    /// Bytes that the rank has begun to send.
    pub sent_bytes: usize,
    /// Bytes that the rank has begun to receive, except the numbers that all ranks exchange.
    pub taken_bytes: usize,
}

impl Add for Crossed {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { sent_bytes: self.sent_bytes + other.sent_bytes, taken_bytes: self.taken_bytes + other.taken_bytes }
    }
}

impl Sub for Crossed {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self { sent_bytes: self.sent_bytes - before.sent_bytes, taken_bytes: self.taken_bytes - before.taken_bytes }
    }
}

/// The offset between the clock of a host and that of rank 0's host, at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockLook {
    /// The moment, in nanoseconds of the clock of this host.
    pub at_ns: u64,
    /// The time by which the other clock was ahead.
    pub offset_ns: i64,
    /// The largest possible error of the offset.
    pub error_ns: u64,
}

/// The communication of a schedule. The engine calls `begin` before and `end` after each op that other ranks take part
/// in, or that touches bytes that other ranks read.
///
/// # Safety
/// A caller of an unsafe method promises: this rank's ops are those of its schedule, in its order, and the same holds
/// for every other rank; each schedule has passed its check; an op reads and writes the places that the plan assigns to
/// it; and a view of [`Transport::peer`] is not used after the end of the op. Otherwise a rank may write what another
/// rank reads. The engine keeps this promise.
///
/// An implementation promises what the engine's views rely on: after `begin` has returned and until the op is ended
/// (for a gather, until its release), nobody, on any rank, writes bytes that the op reads, or reads or writes bytes
/// that the op writes. And `exchange` returns only when all ranks have called it.
#[expect(clippy::missing_safety_doc, reason = "one promise for all calls, which the trait states")]
pub unsafe trait Transport<'p, D: Device> {
    /// The arena of this rank.
    fn arena(&self) -> &Arc<Arena<'p, D>>;

    /// From here on, a wait that takes longer than `timeout` ends in [`Lost`]. The time is counted in sleeps, so that
    /// time in which this rank itself was stopped does not count.
    fn set_timeout(&mut self, timeout: Duration);

    /// The watchdog that reports and ends waits of this rank, also in threads that have no transport.
    /// [`Transport::set_timeout`] has been called before.
    fn watchdog(&self) -> Arc<dyn Watchdog + 'p>;

    /// Signals to other ranks that this rank has come to an op, and waits for everything that the op needs from them.
    /// If the device has queues, it does both in the queue that it was last told to enter.
    unsafe fn begin(&mut self, device: &D, op: Op, position: &Position) -> Result<(), Lost>;

    /// Signals to other ranks that this rank has done an op. An update ended before the first step publishes first values.
    unsafe fn end(&mut self, device: &D, op: Op, position: &Position);

    /// The bytes of `rank` at a place that the op reads: where they lie, or where the transport has put them.
    unsafe fn peer(&self, rank: usize, place: Place) -> View<'_, D, u8>;

    /// Gathers the numbers in `mine` of every rank into `all`, equally many of each, in the order of ranks. No rank
    /// returns before all have called.
    ///
    /// # Panics
    /// On every rank, unless all ranks have passed the same `call`, a number that stands for the reason of the call.
    unsafe fn exchange(&mut self, device: &D, call: u64, mine: View<D, f64>, all: ViewMut<D, f64>) -> Result<(), Lost>;

    /// The phase of the next pass over a schedule: which of the transport's own places the pass uses. Two passes of the
    /// same phase ask a device for the same work, except for counts.
    fn phase(&self) -> u64 {
        0
    }

    /// Ends a pass over a schedule: the current queue waits for everything that is sent to other ranks.
    fn end_pass(&mut self, device: &D) {
        let _ = device;
    }

    /// During a rehearsal, passes the device what it needs to know of an op, in place of [`Transport::begin`].
    unsafe fn rehearse(&mut self, device: &D, op: Op, position: &Position) {
        let _ = (device, op, position);
    }

    /// Waits until the device has done all that it was asked for, its own waits included.
    fn await_device(&mut self, device: &D) -> Result<(), Lost>;

    /// Tells other ranks that the device of this rank has failed, and ends its waits.
    fn give_up_device(&mut self, device: &D) {
        let _ = device;
    }

    /// Bytes that the transport itself has copied from other ranks so far, counted where they were copied. The engine
    /// counts the bytes that it reads through [`Transport::peer`].
    fn moved(&self) -> Moved;

    /// The offset between this host's clock and that of rank 0's host. If there are several hosts, the first rank of
    /// each returns it. All ranks call it, after an exchange and before anything else.
    fn compare_clocks(&mut self) -> Result<Option<ClockLook>, Lost> {
        Ok(None)
    }

    /// Bytes exchanged between this rank and the ranks of other hosts so far, counted when each message was passed to
    /// its communicator. Received bytes also count as moved.
    fn crossed(&self) -> Crossed {
        Crossed::default()
    }
}
