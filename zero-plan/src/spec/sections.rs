//! Sections: the types of a spec's smaller sections and of its single values. Never rejects a value: `check` does.

use serde::{Deserialize, Serialize};

use super::Size;
use crate::config::{self, Offload, Often, Publish, Serve, TierKind, UpdatePlace, UpdateTime, Width};

/// What the ranks along the `zero` axis shard, and how it is sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ZeroKeys {
    /// What is sharded.
    pub stage: Stage,
    /// How many units ahead of the computation parameters are gathered, as given; [`ZeroKeys::prefetch`] fills it in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<u32>,
    /// Gradients that travel in one collective.
    pub bucket: Size,
    /// How often parameters are gathered.
    pub gather: Often,
    /// How often gradients are reduced.
    pub reduce: Often,
}

impl ZeroKeys {
    /// Units gathered ahead: as given, otherwise 1 at stage 3 and 0 below, where nothing is gathered ahead.
    pub const fn prefetch(&self) -> u32 {
        match self.prefetch {
            Some(units) => units,
            None => (self.stage.get() == 3) as u32,
        }
    }
}

/// A ZeRO stage: 0 shards nothing, 1 the optimizer state, 2 the gradients too, 3 the parameters too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Stage(u8);

impl Stage {
    /// The stage with that number; none above 3.
    pub const fn new(stage: u8) -> Option<Self> {
        if stage <= 3 { Some(Self(stage)) } else { None }
    }

    /// The stage's number, 0 to 3.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl TryFrom<u8> for Stage {
    type Error = String;

    fn try_from(stage: u8) -> Result<Self, String> {
        Self::new(stage).ok_or_else(|| format!("stage {stage} does not exist"))
    }
}

impl From<Stage> for u8 {
    fn from(stage: Stage) -> Self {
        stage.0
    }
}

/// What one rank works on in a step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Batch {
    /// Sequences in a micro-batch.
    pub sequences: u32,
    /// Length of a sequence.
    pub length: u32,
    /// Forward and backward passes before an update.
    pub micro_batches: u32,
}

/// How a checkpoint is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CheckpointKeys {
    /// Whether ranks copy the states first, and train on while the copy is written.
    pub snapshot: bool,
}

/// What is kept outside the memory of the device, and how it travels.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OffloadKeys {
    /// Where the moments and the master copy are kept.
    pub optimizer: TierKind,
    /// Where summed gradients are kept.
    pub gradients: TierKind,
    /// Where shards of parameters are kept.
    pub parameters: TierKind,
    /// Where activations are kept.
    pub activations: TierKind,
    /// Pieces that are fetched ahead of the one that is updated, and units whose activations are fetched ahead.
    pub prefetch: u32,
    /// How much of one state travels at once.
    pub piece: Size,
    /// When parameters are updated.
    pub update: UpdateTime,
    /// What updates them.
    pub update_on: UpdatePlace,
}

impl OffloadKeys {
    /// Whether nothing is kept elsewhere.
    pub fn is_none(&self) -> bool {
        self.config().is_none()
    }

    /// The constants that these keys stand for.
    pub fn config(&self) -> Offload {
        let Self { optimizer, gradients, parameters, activations, prefetch, piece, update, update_on } = *self;
        let (prefetch, piece_bytes) = (prefetch as usize, piece.bytes() as usize);
        Offload { optimizer, gradients, parameters, activations, prefetch, piece_bytes, update, update_on }
    }
}

/// What is published of parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PublishKeys {
    /// The type in which they are published; without it, nothing is.
    pub dtype: Option<Width>,
    /// Copies that there is room for, as given; [`PublishKeys::copies`] fills it in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
}

impl PublishKeys {
    /// Whether nothing is published.
    pub fn is_none(&self) -> bool {
        self.dtype.is_none()
    }

    /// Copies that there is room for: as given, otherwise 2, so that training does not wait for readers.
    pub fn copies(&self) -> u32 {
        self.copies.unwrap_or(2)
    }

    /// The constants that these keys stand for.
    pub fn config(&self) -> Publish {
        self.dtype.map_or(Publish::NONE, |dtype| Publish { dtype, copies: self.copies() as usize })
    }
}

/// What a worker for the model has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ServeKeys {
    /// Sequences at a time.
    pub slots: u32,
    /// Whether newer parameters arrive beside those in use.
    pub staged: bool,
}

impl ServeKeys {
    /// The constants that these keys stand for.
    pub fn config(&self) -> Serve {
        Serve { slots: self.slots as usize, staged: self.staged }
    }
}

impl Default for ServeKeys {
    fn default() -> Self {
        Self { slots: 8, staged: true }
    }
}

/// The units that keep only their input for backward, and run forward again before it: [`config::Recompute`], as it is
/// written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecomputedUnits {
    /// One in every so many units, but never the last of the model.
    Every(u32),
    /// All units of these fields of the model, by name.
    Fields(Vec<String>),
}

impl RecomputedUnits {
    /// The constant that it stands for. Leaks a list of fields, because a constant lives forever.
    pub fn config(&self) -> config::Recompute {
        match self {
            Self::Every(units) => config::Recompute::Every(*units as usize),
            Self::Fields(fields) => {
                let names = fields.iter().map(|field| &*field.clone().leak());
                config::Recompute::Fields(names.collect::<Vec<_>>().leak())
            }
        }
    }
}
