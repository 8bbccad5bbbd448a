//! Spec: the parallelism spec as types. Values from [`parse`] or [`parse_inline`] have been checked; a value built in
//! another way has not. Never reads a file and never sees a model: all that depends on sizes is decided elsewhere.
//!
//! A spec is RON, `(model: Example("gpt"), mesh: (zero: 4), zero: (stage: 3))`, with these keys, each of which is a row
//! of [`KEYS`]:
#![doc = include_str!("keys.md")]

mod changes;
mod check;
mod inline;
mod keys;
mod locate;
mod mesh;
mod model;
mod parse;
mod pipeline;
mod report;
mod sections;
mod size;
mod slip;
mod table;
mod text;
mod tokens;
mod value;

use core::fmt;

use serde::Serialize;

use crate::config::{self, Config, DeviceKind, Offload, OptimizerKind, Precision, Serve, TransportKind};

pub use changes::{KeyChange, changes};
pub use check::{SizeVariables, other_size, unknown_fields};
pub use inline::{disagreements, parse_inline};
pub use keys::{KEYS, Key, KeyDefault, options};
pub use locate::{KeySpans, locate};
pub use mesh::MeshKeys;
pub use model::{ModelSize, ModelSource};
pub use parse::parse;
pub use parse::ron as ron_options;
pub use parse::ron_text;
pub use pipeline::{Pipeline, Schedule, Units};
pub use report::key_called;
pub use sections::{Batch, CheckpointKeys, OffloadKeys, PublishKeys, RecomputedUnits, ServeKeys, Stage, ZeroKeys};
pub use size::Size;
pub use table::{keys_table, options_table};
pub use text::decode;

/// The most ranks that an axis may have, and that all axes may have together.
pub const RANKS_MAX: u32 = 4096;

/// Everything that shapes the memory or the order of a training step. In RON each section is a parenthesised group:
/// `(mesh: (zero: 2), zero: (stage: 3))`.
///
/// The default is blank: [`parse`] reads the defaults of keys from [`KEYS`].
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Spec {
    /// The model that the command line builds with this spec.
    #[serde(skip)]
    pub model: Option<ModelSource>,
    /// The size of that model, which is written in the same entry.
    #[serde(skip)]
    pub size: ModelSize,
    /// The ranks along each axis, and how they lie on nodes.
    pub mesh: MeshKeys,
    /// What is sharded and how it is sent.
    pub zero: ZeroKeys,
    /// How pipeline stages share a step.
    pub pipeline: Pipeline,
    /// What one rank works on in a step.
    pub batch: Batch,
    /// Widths in which states are stored and sent.
    pub precision: Precision,
    /// What is computed again instead of kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recompute: Option<RecomputedUnits>,
    /// How a checkpoint is written.
    pub checkpoint: CheckpointKeys,
    /// The device on which ranks compute.
    pub device: DeviceKind,
    /// How ranks reach each other; without it, as is usual for the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<TransportKind>,
    /// The optimizer of the matrices of hidden layers.
    pub optimizer: OptimizerKind,
    /// The most memory a rank may plan for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// What is kept outside the memory of the device.
    pub offload: OffloadKeys,
    /// The most bytes that a rank may plan to keep in the memory of its host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<Size>,
    /// The most bytes that a rank may plan for its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<Size>,
    /// What is published of parameters.
    #[serde(skip_serializing_if = "PublishKeys::is_none")]
    pub publish: PublishKeys,
    /// What a worker for the model has room for.
    pub serve: ServeKeys,
}

impl Spec {
    /// How ranks reach each other.
    pub fn transport(&self) -> TransportKind {
        self.transport.unwrap_or(self.device.transport())
    }

    /// The spec in which no key is given. The stage, which has no default, is 0.
    pub fn of_defaults() -> Self {
        let mut spec = Self::default();
        for key in KEYS {
            if let (KeyDefault::Value(default), None) = (key.default, key.follows) {
                key.read(&mut spec, default).expect("a default can be read");
            }
        }
        spec
    }

    /// The constants that layout and schedule are computed from. Lists in them are leaked, because constants live
    /// forever, so call it once for a spec.
    pub fn config(&self) -> Config {
        Config {
            mesh: self.mesh.grid(),
            stage: self.zero.stage.get(),
            prefetch: self.zero.prefetch() as usize,
            bucket_bytes: self.zero.bucket.bytes() as usize,
            gather: self.zero.gather,
            reduce: self.zero.reduce,
            order: self.pipeline.schedule.order(),
            split: self.pipeline.units.split(),
            recompute: self.recompute.as_ref().map_or(config::Recompute::None, RecomputedUnits::config),
            precision: self.precision,
            sequences: self.batch.sequences as usize,
            length: self.batch.length as usize,
            micro_batches: self.batch.micro_batches as usize,
            snapshot: self.checkpoint.snapshot,
            device: self.device,
            transport: self.transport(),
            optimizer: self.optimizer,
            memory_bytes: self.memory.map(|size| size.bytes() as usize),
            offload: if self.offload.is_none() { Offload::NONE } else { self.offload.config() },
            host_bytes: self.host.map(|size| size.bytes() as usize),
            disk_bytes: self.disk.map(|size| size.bytes() as usize),
            publish: self.publish.config(),
            serve: Serve::NONE,
        }
    }

    /// The constants of a worker for the model, which decodes and does not train.
    pub fn serving(&self) -> Config {
        self.config().serving(self.serve.config())
    }
}

/// RON, with every key and its value.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let others = parse::ron().to_string(self).expect("a spec can be written");
        match &self.model {
            // `serde` knows no value that is followed by keys.
            Some(model) => write!(f, "(model:{},{}", self.size.entry(model), &others[1..]),
            None => f.write_str(&others),
        }
    }
}
