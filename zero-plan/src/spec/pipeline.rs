//! Pipeline: the section `pipeline`: the order of micro-batches, and where units lie. Never knows the number of units.

use serde::{Deserialize, Serialize};

use crate::config::{self, Order};

/// How pipeline stages share a step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Pipeline {
    /// The order of micro-batches on each pipeline stage.
    pub schedule: Schedule,
    /// The assignment of units to pipeline stages.
    pub units: Units,
}

/// The order of micro-batches on each pipeline stage: [`Order`], as it is written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum Schedule {
    /// All forward passes, then all backward passes.
    GPipe,
    /// One forward, one backward as soon as the pipeline is full.
    #[default]
    OneFOneB,
    /// The same with several chunks of the model on each rank.
    Interleaved {
        /// Chunks of the model on each rank.
        chunks: u32,
    },
}

impl Schedule {
    /// Chunks of the model on each rank.
    pub const fn chunks(self) -> u32 {
        match self {
            Self::GPipe | Self::OneFOneB => 1,
            Self::Interleaved { chunks } => chunks,
        }
    }

    /// A mutable reference to them, for reading a text. Makes `self` an `Interleaved`, which alone stores them.
    pub(super) fn chunks_mut(&mut self) -> &mut u32 {
        if !matches!(self, Self::Interleaved { .. }) {
            *self = Self::Interleaved { chunks: 0 };
        }
        let Self::Interleaved { chunks } = self else { unreachable!("it has been made one") };
        chunks
    }

    /// The constant that it stands for.
    pub const fn order(self) -> Order {
        match self {
            Self::GPipe => Order::GPipe,
            Self::OneFOneB => Order::OneFOneB,
            Self::Interleaved { chunks } => Order::Interleaved { chunks: chunks as usize },
        }
    }
}

/// The assignment of units to pipeline stages: [`config::Split`], as it is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Units {
    /// Cuts where the most expensive chunk is cheapest.
    #[default]
    Balanced,
    /// The same number of units in each chunk.
    Even,
    /// Units of each chunk, in the order of forward.
    Split(Vec<u32>),
}

impl Units {
    /// The constant that it stands for. Leaks an explicit list, because a constant lives forever.
    pub fn split(&self) -> config::Split {
        match self {
            Self::Balanced => config::Split::Balanced,
            Self::Even => config::Split::Even,
            Self::Split(units) => {
                config::Split::Units(units.iter().map(|units| *units as usize).collect::<Vec<_>>().leak())
            }
        }
    }
}
