//! Config: what of a spec decides layout and order, as plain constants. Never parses and never rejects: `spec` did.

use serde::{Deserialize, Serialize};

/// How a transport hands out the gathered parameters of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gather {
    /// Shards are copied into a slot of the rank's own arena.
    Copied,
    /// All shards lie contiguous in one mapping: the gather is a wait and a view, and needs no slot.
    Mapped,
}

/// What ranks are, and what carries bytes between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Transport {
    /// Threads of one process that behave as if memory were not shared.
    Local,
    /// Processes of one host over a shared mapping.
    #[default]
    Shm,
}

impl Transport {
    /// How this transport gathers.
    pub const fn gather(self) -> Gather {
        match self {
            Transport::Local => Gather::Copied,
            Transport::Shm => Gather::Mapped,
        }
    }
}

/// The constants that layout, schedule and memory are computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// ZeRO stage, 0 to 3.
    pub stage: u8,
    /// Ranks along the `zero` axis.
    pub ranks: usize,
    /// Gathers kept in flight ahead of the unit that computes (stage 3).
    pub prefetch: usize,
    /// Consecutive units share a bucket until their gradients exceed this many bytes.
    pub bucket_bytes: usize,
    /// Sequences in one micro-batch of one rank.
    pub sequences: usize,
    /// Tokens in a sequence.
    pub length: usize,
    /// Micro-batches whose gradients one step accumulates.
    pub micro_batches: usize,
    /// What carries bytes between ranks.
    pub transport: Transport,
    /// The most an arena may take, where the spec sets a budget.
    pub memory_bytes: Option<usize>,
}

impl Config {
    /// Whether a rank keeps only 1/N of the optimizer state.
    pub const fn shards_optimizer(&self) -> bool {
        self.stage >= 1
    }

    /// Whether a rank keeps only 1/N of the gradients, so that buckets share a few staging slots.
    pub const fn shards_gradients(&self) -> bool {
        self.stage >= 2
    }

    /// Whether a rank keeps only 1/N of the parameters and gathers a unit for each use.
    pub const fn shards_parameters(&self) -> bool {
        self.stage >= 3
    }

    /// Whether the sum over ranks overwrites the rank's own slice of its local gradients. It may when those are kept
    /// for every unit and no later micro-batch writes them again.
    pub const fn reduces_in_place(&self) -> bool {
        !self.shards_gradients() && self.micro_batches == 1
    }

    /// Tokens in one micro-batch of one rank.
    pub const fn tokens(&self) -> usize {
        self.sequences * self.length
    }

    /// The same configuration at another stage, for comparing what stages need.
    pub const fn at_stage(mut self, stage: u8) -> Self {
        self.stage = stage;
        self
    }
}
