//! Transport: the contract between the engine and what brings it the bytes of other ranks. Never says how they come.
//!
//! Another one is an `unsafe impl` of [`Transport`] beside `zero-runtime/ranks/src/transport/shared.rs`, and a value of
//! [`zero_plan::TransportKind`] that says whether its gathers need slots. One that sends bytes starts in the `begin` of
//! `Gather`, `Reduce` and `Send`, finds the bytes by their places, and tells in [`Transport::peer`] where it put those
//! that arrived. It adds nothing, so sums stay in the order of the plan.
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

/// Bytes that have gone between one rank and those of other hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crossed {
    /// Bytes that it has begun to send them.
    pub sent_bytes: usize,
    /// Bytes that it has begun to take from them, except the numbers that all ranks exchange.
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

/// How far the clock of a host is from that of rank 0's, at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockLook {
    /// The moment, in nanoseconds of the clock of this host.
    pub at_ns: u64,
    /// The time by which the other clock was ahead.
    pub offset_ns: i64,
    /// The most by which that may be wrong.
    pub error_ns: u64,
}

/// The communication of a schedule. An op that other ranks take part in, or that touches bytes that they read, is begun
/// before the engine does it and ended after.
///
/// # Safety
/// A caller of an unsafe method promises that: this rank's ops are those of its schedule, in its order, and so are those of
/// every other rank; each has passed its check; what an op reads and writes are the places that the plan gives it; and a view
/// of [`Transport::peer`] is not used after the end of the op. Otherwise a rank may write what another one reads.
/// The engine keeps that promise.
///
/// An implementation promises what the engine's views rely on: `begin` returns only when nobody, on any rank, writes
/// what the op reads, or reads or writes what it writes, until the op is ended; for a gather, until its release. And
/// `exchange` returns only when all ranks have called it.
#[expect(clippy::missing_safety_doc, reason = "one promise for all calls, which the trait states")]
pub unsafe trait Transport<'p, D: Device> {
    /// The arena of this rank.
    fn arena(&self) -> &Arc<Arena<'p, D>>;

    /// From here on, a wait that takes longer than `timeout` ends in [`Lost`]. The time is counted in sleeps, so that
    /// time in which this rank itself was stopped does not count.
    fn set_timeout(&mut self, timeout: Duration);

    /// What reports and ends waits of this rank, also of threads that have no transport. [`Transport::set_timeout`] has
    /// been called before.
    fn watchdog(&self) -> Arc<dyn Watchdog + 'p>;

    /// Tells the others that this rank has come to an op, and waits for what the op needs of them; or has the device do so in
    /// the queue that it was last told to enter, if it has queues.
    unsafe fn begin(&mut self, device: &D, op: Op, position: &Position) -> Result<(), Lost>;

    /// Tells the others that this rank has done an op. An update ended before the first step publishes first values.
    unsafe fn end(&mut self, device: &D, op: Op, position: &Position);

    /// The bytes of `rank` at a place that the op reads: where they lie, or where they were brought.
    unsafe fn peer(&self, rank: usize, place: Place) -> View<'_, D, u8>;

    /// Gathers as many numbers of each rank into `all` as `mine` has, in the order of ranks. No rank returns before all
    /// have called.
    ///
    /// # Panics
    /// On every rank, unless all have called it for the same reason: `call`, a number that the caller gives it.
    unsafe fn exchange(&mut self, device: &D, call: u64, mine: View<D, f64>, all: ViewMut<D, f64>) -> Result<(), Lost>;

    /// Which of its own places the next pass over a schedule uses: two passes of the same phase ask a device for the
    /// same work, except for counts.
    fn phase(&self) -> u64 {
        0
    }

    /// Ends a pass over a schedule: the current queue waits for everything that leaves for other ranks.
    fn end_pass(&mut self, device: &D) {
        let _ = device;
    }

    /// Tells a device that rehearses what it needs to know of an op, in place of [`Transport::begin`].
    unsafe fn rehearse(&mut self, device: &D, op: Op, position: &Position) {
        let _ = (device, op, position);
    }

    /// Waits until the device has done all that it was asked for, its own waits included.
    fn await_device(&mut self, device: &D) -> Result<(), Lost>;

    /// Tells other ranks that the device of this rank has failed, and ends its waits.
    fn give_up_device(&mut self, device: &D) {
        let _ = device;
    }

    /// Bytes that the transport itself has brought from other ranks so far, counted where they were copied. The engine
    /// counts the bytes that it reads through [`Transport::peer`].
    fn moved(&self) -> Moved;

    /// How far the clock of this host is from that of rank 0's. If there are several hosts, the first rank of each
    /// knows it. All ranks call it, after an exchange and before anything else.
    fn compare_clocks(&mut self) -> Result<Option<ClockLook>, Lost> {
        Ok(None)
    }

    /// Bytes that have gone between this rank and those of other hosts so far, counted when each message was given to
    /// its communicator. The bytes that it takes also count as moved.
    fn crossed(&self) -> Crossed {
        Crossed::default()
    }
}
