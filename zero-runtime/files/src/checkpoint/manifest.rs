//! Manifest: a checkpoint's description of itself: the model, the progress of the run, everything that the run depends on,
//! and the hashes of all files. Never reads a file.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use zero_plan::OptimizerKind;

use crate::weights::{Exported, NamedTensor};

/// Its name in the folder of a checkpoint.
pub const MANIFEST: &str = "manifest.jsonl";
/// The version of the format that is written and read.
pub const FORMAT: u32 = 1;
/// Bytes of a file that one hash covers. The last chunk of a file may be shorter.
pub const CHUNK_BYTES: usize = 1 << 20;

/// A checkpoint's description of itself. Its file has one line of JSON, and a second line with the hash of the
/// first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The version of the format: [`FORMAT`].
    pub format: u32,
    /// Steps that were done.
    pub step: u64,
    /// The seed of initial values and of the order of data.
    pub seed: u64,
    /// The name of the model.
    pub model: String,
    /// All tensors of the model except tied ones, in the order of units and of their flat buffers.
    pub tensors: Vec<TensorInfo>,
    /// The model's own configuration, as `config.json` would have it; null if the model declares none.
    pub config: Value,
    /// The arguments of the run.
    pub arguments: Map<String, Value>,
    /// The data that was trained on, and how much of it was drawn.
    pub data: DataPosition,
    /// The spec that the binary was compiled from.
    pub spec: SpecInfo,
    /// The plan of the run.
    pub plan: PlanInfo,
    /// The loss of the last step, if there was one.
    pub loss: Option<f64>,
    /// The norm of the gradient of the last step, if there was one.
    pub gradient_norm: Option<f64>,
    /// The program that wrote it.
    pub versions: WriterVersions,
    /// When it was written: RFC 3339, in UTC.
    pub written_at: String,
    /// The files of the ranks, in their order, and those that lie beside the tensors of an export.
    pub files: Vec<FileSums>,
    /// The tensors of an export; none in a checkpoint of a program that did not record them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Exported>,
}

impl Manifest {
    /// The number of files that ranks wrote.
    pub fn rank_files(&self) -> usize {
        self.files.iter().zip(0..).take_while(|(sums, rank)| sums.name == shard_name(*rank)).count()
    }
}

/// A tensor of the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorInfo {
    /// Its published name.
    pub name: String,
    /// Its dims in the model.
    pub shape: Vec<usize>,
    /// Whether it is published transposed.
    pub transposed: bool,
    /// The unit whose flat buffer has it.
    pub unit: usize,
    /// Its first element there.
    pub start: usize,
}

impl TensorInfo {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether a tensor of a model has the same elements.
    pub(super) fn is_at(&self, named: &NamedTensor) -> bool {
        (self.unit, self.start, self.elements()) == (named.unit, named.start, named.elements())
    }
}

/// The data that was trained on, and how much of it was drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataPosition {
    /// A hash of the data.
    pub fingerprint: String,
    /// Sequences that were drawn so far, by all ranks.
    pub sequences_drawn: u64,
    /// A description of the data, for a person.
    pub description: String,
}

/// The spec that a binary was compiled from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpecInfo {
    /// The path of its file, or `#[zero]` where the options of the attribute are the spec.
    pub path: String,
    /// Its text, if the binary has it.
    pub text: Option<String>,
}

/// The parts of a run's plan that a person may ask about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanInfo {
    /// The fingerprint of the plan.
    pub fingerprint: String,
    /// Ranks, each of which wrote a file.
    pub ranks: usize,
    /// Ranks that have sequences of their own.
    pub data_ranks: usize,
    /// The ZeRO stage.
    pub stage: u8,
    /// A description of the mesh, for a person.
    pub mesh: String,
    /// Sequences of a micro-batch.
    pub sequences: usize,
    /// Tokens of a sequence.
    pub length: usize,
    /// Micro-batches of a step.
    pub micro_batches: usize,
    /// Parameters of the model.
    pub params: usize,
    /// The width in which layers computed.
    pub compute_width: String,
    /// The width of parameters.
    pub params_width: String,
    /// The width of sums of gradients.
    pub reduce_width: String,
    /// The width of the numbers that the optimizer updated.
    pub master_width: String,
    /// The width of moments.
    pub moments_width: String,
    /// The optimizer of the matrices of hidden layers.
    #[serde(default, skip_serializing_if = "OptimizerKind::is_usual")]
    pub optimizer: OptimizerKind,
}

/// The program that wrote a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriterVersions {
    /// The version of zero.
    pub zero: String,
    /// The version of the format.
    pub format: u32,
    /// The machine that the binary was compiled for.
    pub target: String,
    /// The features of the processor by which kernels were chosen; none for a GPU, or a program that did not record them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
}

/// The length of a file, and the BLAKE3 of each of its chunks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileSums {
    /// Its name in the folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// The hash of each chunk of [`CHUNK_BYTES`], in hexadecimal digits, header included.
    pub chunks: Vec<String>,
}

/// The name of the file of a rank.
pub fn shard_name(rank: usize) -> String {
    format!("rank-{rank:05}.safetensors")
}

/// The name of the file with the sums that a rank leaves beside its shard until all ranks are done.
pub fn sums_name(rank: usize) -> String {
    format!("rank-{rank:05}.sums")
}
