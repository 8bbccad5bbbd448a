//! Clock: how much of each stream of each rank is known to be done. Never knows what was done.

use crate::schedule::Stream;

/// A stream of a rank, as a unique number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamChain(u32);

impl StreamChain {
    pub fn of(rank: usize, stream: Stream) -> Self {
        Self((rank * Stream::ALL.len() + stream as usize) as u32)
    }
}

/// An op in a chain. Its number counts the ops of its rank from 1, over all passes.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpNumber {
    pub chain: StreamChain,
    pub number: u32,
    /// Its rank, pass and place in the table.
    pub rank: u32,
    pub pass: u32,
    pub op: u32,
}

/// For each chain, the number of its last op that is known to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownDone(Vec<u32>);

impl KnownDone {
    /// The clock for this many ranks before anything is done.
    pub fn new(ranks: usize) -> Self {
        Self(vec![0; ranks * Stream::ALL.len()])
    }

    /// Adds everything that another clock knows.
    pub fn join(&mut self, other: &Self) {
        for (known, &other) in self.0.iter_mut().zip(&other.0) {
            *known = (*known).max(other);
        }
    }

    /// Adds an op, and with it all ops before it in its chain.
    pub fn pass(&mut self, moment: OpNumber) {
        self.0[moment.chain.0 as usize] = moment.number;
    }

    /// Whether an op is known to be done.
    pub fn knows(&self, moment: OpNumber) -> bool {
        self.0[moment.chain.0 as usize] >= moment.number
    }
}
