//! Spec: the parallelism spec as types, with a doc, a unit and a default on every field. Values that come out of
//! [`parse`] or [`parse_inline`] have been checked; a value built or deserialized in another way has not. Never reads a
//! file and never sees a model: what depends on sizes is decided elsewhere.

mod check;
mod inline;
mod keys;
mod locate;
mod parse;
mod report;
mod size;
mod tokens;

use serde::{Deserialize, Serialize};

use crate::config::Config;

pub use crate::config::Transport;
pub use inline::{disagreements, parse_inline};
pub use keys::{INLINE, KEYS, Key};
pub use locate::{KeySpans, locate};
pub use parse::parse;
pub use size::Size;

/// The most ranks an axis may have.
pub const RANKS_MAX: u32 = 4096;

/// Everything that shapes the memory or the order of a training step. In RON each section is a parenthesised group:
/// `(mesh: (zero: 2), zero: (stage: 3))`.
// The reader names a section by its type in lower case (`Zero` is `zero`), so a section's type is called like its key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The model that the command line builds with this spec. No unit; default: none, as the attribute form needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Model>,
    /// The ranks along each axis. Unit: ranks; default: 2 along `zero`.
    #[serde(default)]
    pub mesh: Mesh,
    /// What is sharded and how it travels. No default: the stage is a choice.
    pub zero: Zero,
    /// What one rank works on in a step. Unit: see [`Batch`]; default: 1 micro-batch of 4 sequences of 256 tokens.
    #[serde(default)]
    pub batch: Batch,
    /// How ranks reach each other. No unit; default: [`Transport::Shm`].
    #[serde(default)]
    pub transport: Transport,
    /// The most memory a rank may plan for. Unit: bytes per rank; default: none, no budget is enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
}

impl Spec {
    /// The constants that layout and schedule are computed from.
    pub fn config(&self) -> Config {
        Config {
            stage: self.zero.stage.get(),
            mesh: crate::mesh::Mesh::of_zero(self.mesh.zero as usize),
            prefetch: self.zero.prefetch() as usize,
            bucket_bytes: self.zero.bucket.bytes() as usize,
            sequences: self.batch.sequences as usize,
            length: self.batch.length as usize,
            micro_batches: self.batch.micro_batches as usize,
            transport: self.transport,
            memory_bytes: self.memory.map(|size| size.bytes() as usize),
            ..Config::PLAIN
        }
    }
}

/// Where the command line finds the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Model {
    /// An example of this workspace, by name.
    Example(String),
    /// A package of the user's workspace, by name.
    Package(String),
}

/// How many ranks lie along each axis of the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mesh {
    /// Ranks that share one copy of the sharded states. Unit: ranks, 1 to [`RANKS_MAX`]; default: 2.
    pub zero: u32,
}

impl Default for Mesh {
    fn default() -> Self {
        Self { zero: 2 }
    }
}

/// What the ranks along the `zero` axis shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zero {
    /// What is sharded. Unit: a stage, 0 to 3; no default.
    pub stage: Stage,
    /// How many units ahead of the computation parameters are gathered, as given. Unit: units; default: none, which
    /// [`Zero::prefetch`] resolves. Only stage 3 gathers ahead, so a value at any other stage is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<u32>,
    /// Gradients that travel in one collective. Unit: bytes; default: 25 MiB.
    #[serde(default = "Zero::default_bucket")]
    pub bucket: Size,
}

impl Zero {
    /// Units gathered ahead of the computation: as given, else 1 at stage 3 and 0 below, where nothing is gathered ahead.
    pub const fn prefetch(&self) -> u32 {
        match self.prefetch {
            Some(units) => units,
            None => (self.stage.get() == 3) as u32,
        }
    }

    const fn default_bucket() -> Size {
        Size::MiB(25)
    }
}

/// A ZeRO stage: 0 shards nothing, 1 the optimizer state, 2 the gradients too, 3 the parameters too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Stage(u8);

impl Stage {
    /// The stage of that number; none above 3.
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Batch {
    /// Sequences in a micro-batch. Unit: sequences per rank, at least 1; default: 4.
    pub sequences: u32,
    /// Length of a sequence. Unit: tokens, at least 1; default: 256.
    pub length: u32,
    /// Forwards and backwards before an update. Unit: micro-batches per step, at least 1; default: 1.
    pub micro_batches: u32,
}

impl Default for Batch {
    fn default() -> Self {
        Self { sequences: 4, length: 256, micro_batches: 1 }
    }
}
