//! Keys: the settings of DeepSpeed and accelerate, one row each: the values that a setting may have, and its fate.
//! Names are from their documentation and sources; the reasons are our own. Never reads a value.

mod accelerate;
mod deepspeed;

/// A key of a configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyRow {
    /// Its dotted path.
    pub path: &'static str,
    pub expects: Expects,
    pub meaning: Meaning,
}

/// The values of a key. An empty value is allowed for every key, and `"auto"` for every key that has no keys of its own.
#[derive(Debug, Clone, Copy)]
pub(super) enum Expects {
    /// Keys with rows of their own.
    Section,
    /// A section or, as in older files, a flag.
    Switch,
    /// A whole number in a range.
    Whole(u64, u64),
    /// A number of ranks; 0 and -1 mean no group.
    Group,
    Flag,
    /// Any word.
    Name,
    /// One of these, in any case.
    Word(&'static [&'static str]),
    /// Any value that the framework accepts.
    Anything,
}

/// The fate of a setting.
#[derive(Debug, Clone, Copy)]
pub(super) enum Meaning {
    /// It is part of the spec.
    Used,
    /// A spec has no equivalent, for this reason. If the setting is turned off, nothing is lost.
    Lost(&'static str),
    /// The setting always has this value here. The other value has no counterpart, for this reason.
    Always(bool, &'static str),
    /// It tunes what is a constant of the plan, which is this.
    Planned(&'static str),
    /// It affects neither memory nor order, so it is an argument of the binary.
    Argument(&'static str),
}

use Expects::{Whole, Word};
use Meaning::{Argument, Lost, Planned};

pub(super) use accelerate::ACCELERATE;
pub(super) use deepspeed::DEEPSPEED;

const fn row(path: &'static str, expects: Expects, meaning: Meaning) -> KeyRow {
    KeyRow { path, expects, meaning }
}

/// Larger than any count of parameters, and exact in the numbers of JSON.
const MANY: u64 = 1 << 53;
const COUNT: Expects = Whole(1, u32::MAX as u64);
const RANKS: Expects = Whole(1, zero_plan::spec::RANKS_MAX as u64);
const STEPS: Expects = Whole(1, zero_plan::bounds::MICRO_BATCHES_MAX as u64);
const DTYPE: Expects = Word(&["fp32", "bf16", "fp16"]);

/// Where a state is kept, in DeepSpeed's words.
const TIER: Expects = Word(&["none", "cpu", "nvme"]);
const FOLDER_OF_STATES: Meaning = Argument("`--offload FOLDER`, where states are kept on a disk");
const WINDOW: Meaning = Planned(
    "states travel in pieces of `offload.piece` bytes, directly between their tier and `offload.prefetch` + 2 slots",
);
const SHARDS: Meaning = Planned("a shard is fetched whole, into one of two slots, from where its unit is gathered");
const PARTLY: Meaning = Lost("a state is kept in one tier as a whole, which a ratio of 1 also means");
const SPECULATIVE: Meaning =
    Lost("it updates before the norm is known and takes updates back inexactly; here an update waits for the norm");
const LATE: Meaning = Lost("it updates from gradients of earlier steps, which gives other results");
const HOST_UPDATE: Meaning = Lost(ON_THE_DEVICE);
const ON_THE_DEVICE: &str =
    "an update is an op of the device, unless `offload: (update_on: Host)` has `--threads` of the host do it";
const LOGGING: Meaning = Lost("it configures logging; a run prints its plan, losses and times without it");
const LAUNCHING: Meaning =
    Lost("it configures how processes start: the binary starts them, or torchrun, srun or mpirun does");
const LOADING: Meaning = Lost("a rank creates, reads and writes only the states that it stores, without a switch");
const DATA: Meaning = Lost("training data is an argument of the binary, `--data`");
const OF_THE_OPTIMIZER: Meaning = Argument(ARGUMENTS_OF_THE_OPTIMIZER);
/// The optimizer's settings that are arguments of the binary, and its kind, which is not.
pub(super) const ARGUMENTS_OF_THE_OPTIMIZER: &str =
    "`--lr`, `--beta1`, `--beta2`, `--momentum`, `--epsilon`, `--weight-decay`; the optimizer is AdamW, or Muon";
const CLIPPING: Meaning = Argument("`--clip NORM`; 1 by default, and 0 turns it off");
const QUANTIZED: Meaning = Lost("nothing is quantized: the narrowest type is BF16");
const NO_COMPILER: Meaning = Lost("there is no graph at run time to compile: the model is compiled with the plan");
const SCALING: Meaning = Lost("BF16 has the range of f32, so no loss is scaled");
const OTHER_TRAINING: Meaning = Lost("it changes the computation, and no layer or key does the same here");
const MEAN: Meaning = Lost("gradients are the mean over all tokens of a step, summed in f32 in a fixed order");
const CHECKPOINTING: Meaning =
    Lost("it has no effect unless the model calls checkpointing; `recompute: Every(1)` recomputes every unit");
const TENSOR_AXIS: Meaning =
    Lost("there is no axis for tensors, sequences or experts: ranks lie along `replica`, `pipeline` and `zero`");
const UNITS: Meaning = Lost("units are the fields of the struct under `#[zero]`");
const TUNING: Meaning =
    Lost("it tunes how a framework copies, fuses or groups at run time; here these are constants of the plan");
const UNITS_ARE_FLAT: Meaning = Lost("a unit is sharded as one flat buffer, small tensors with it");
