//! Tier: the contract between the engine and what keeps states where the device cannot reach them. A tier moves blocks
//! between the memory of its rank and a store of its own, in two queues that run beside the rank. Never decides what
//! travels, or when: the plan does. A device itself copies what its host keeps.
//!
//! A new tier is an `unsafe impl` of [`Tier`]. `zero-files` has the one that keeps states in a file.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use zero_plan::TierBytes;

use crate::device::Failure;

/// The most transfers of one order: one for each state of a piece.
pub const TRANSFERS_MAX: usize = 5;

/// A queue of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the tier to memory.
    Fetch,
    /// From memory to the tier.
    Store,
}

impl Direction {
    /// Both.
    pub const ALL: [Direction; 2] = [Direction::Fetch, Direction::Store];

    /// The other queue.
    pub const fn other(self) -> Self {
        match self {
            Direction::Fetch => Direction::Store,
            Direction::Store => Direction::Fetch,
        }
    }
}

/// Whole blocks that travel between a tier and memory.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Start in the tier, in bytes.
    pub offset: usize,
    /// Start in memory.
    pub memory: *mut u8,
    /// Length, in bytes.
    pub len: usize,
}

// SAFETY: an address and its purpose; the caller that gives an order promises that another thread may read or write its
// bytes.
unsafe impl Send for Transfer {}

/// What an order comes after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// This many orders of the other queue, which were given before it.
    Orders(u64),
    /// The request of a device, which then waits for the end of the order.
    Request(Request),
}

/// How a device and a tier wait for each other, by counts in host memory that wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The count that the device raises.
    pub asked: *const AtomicU32,
    /// The count that the tier sets.
    pub done: *const AtomicU32,
    /// The order begins once the first count has reached this number, and the second is set to it when the order has ended.
    pub number: u32,
}

// SAFETY: addresses of counts; the caller that gives an order promises that they stay until the tier quits.
unsafe impl Send for Request {}

impl Request {
    /// Whether the device has asked for it.
    ///
    /// # Safety
    /// The counts are there: the promise of [`Tier::order`].
    pub unsafe fn is_made(&self) -> bool {
        // SAFETY: by the caller's promise.
        let asked = unsafe { &*self.asked }.load(Ordering::Acquire);
        asked.wrapping_sub(self.number).cast_signed() >= 0
    }

    /// Whether the device has asked for something that is not done.
    ///
    /// # Safety
    /// As for [`Self::is_made`].
    pub unsafe fn is_open(&self) -> bool {
        // SAFETY: by the caller's promise.
        unsafe { (*self.asked).load(Ordering::Acquire) != (*self.done).load(Ordering::Acquire) }
    }

    /// Lets the device go on.
    ///
    /// # Safety
    /// As for [`Self::is_made`].
    pub unsafe fn answer(&self) {
        let behind = |done: u32| (done.wrapping_sub(self.number).cast_signed() < 0).then_some(self.number);
        // SAFETY: by the caller's promise. An answer that comes late lowers nothing.
        let _ = unsafe { &*self.done }.fetch_update(Ordering::Release, Ordering::Relaxed, behind);
    }
}

/// Why an order could not be carried out. All later orders of its queue fail with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedOrder {
    /// The queue.
    pub direction: Direction,
    /// The number of the order in its queue, from 1.
    pub number: u64,
    /// What went wrong, and the way out.
    pub failure: Failure,
}

/// What keeps states outside the memory of a device. Its bytes are 0 until they are stored.
///
/// # Safety
/// An implementation promises: from its start to its end, an order reads or writes no other bytes than those of its
/// transfers, and an order has ended when [`Tier::is_done`] says so, or when [`Tier::quit`] has returned true.
pub unsafe trait Tier {
    /// Bytes that it keeps.
    fn bytes(&self) -> usize;

    /// Orders at most [`TRANSFERS_MAX`] transfers. Orders of a queue are carried out one after another; this one begins
    /// once what it comes after is there.
    ///
    /// # Safety
    /// From its beginning to its end, nobody else writes the memory of its transfers, nor reads what a fetch writes. The counts of
    /// a request stay until the tier quits.
    unsafe fn order(&mut self, direction: Direction, transfers: &[Transfer], after: After);

    /// Whether the first `count` orders of a queue have ended, all of them without a failure. Waits for that, up to
    /// `patience`.
    fn is_done(&mut self, direction: Direction, count: u64, patience: Duration) -> bool;

    /// The first order that failed, if any has.
    fn failed(&self) -> Option<FailedOrder>;

    /// Bytes that have been read from the tier and written to it so far, counted when a transfer has ended.
    fn moved(&self) -> TierBytes;

    /// Carries out no further orders, and waits up to `patience` for the one that it is in. Returns whether that has
    /// ended: otherwise the memory of its transfers must stay.
    fn quit(&mut self, patience: Duration) -> bool;
}
