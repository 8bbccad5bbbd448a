//! Streams: the queue of a device in which each op of a pass lies, and the ops of other queues that it waits for, as
//! tables of the plan. Plans whose ops all run one after another have no such tables. Never knows what an op does.
//!
//! An op is queued as a whole in its stream: first the events that it waits for, then its waits for other ranks, its
//! work, and last the counts that it signals to other ranks. `Spread` raises its count before it waits for the counts
//! of other ranks, and `Agree` as soon as it has read the sums. The host queues the ops of a pass in the order of its
//! table, so an event always belongs to an earlier op.
//!
//! The streams of a rank meet between passes: a pass begins in any of them only after everything that was queued
//! earlier is done in all. So no event reaches from one pass into the next, and a pass can be captured and launched
//! again. Within a pass any stream may wait for any other. An op has no event if what its stream has waited for before
//! already implies it, directly or through other streams.
//!
//! Conflicting accesses to one place must be in order: [`crate::prove()`] shows that from places alone, and shares
//! nothing with the rules (`rules`) that make these tables.

mod rules;

use serde::Serialize;

use crate::schedule::Stream;

pub use rules::{Seen, fill_queue};

/// Where an op is queued, and the op that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Queued {
    /// Its stream.
    pub stream: Stream,
    /// The op of another stream that must be done before this one begins, by its place in the same table; none if the
    /// stream's earlier waits already imply it. No op has to wait for more than one.
    pub after: Option<u32>,
}

impl Queued {
    /// An op of a stream that waits for no other stream.
    pub const fn of(stream: Stream) -> Self {
        Self { stream, after: None }
    }

    /// The op that it waits for.
    pub const fn waits_for(&self) -> Option<usize> {
        match self.after {
            Some(op) => Some(op as usize),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests;
