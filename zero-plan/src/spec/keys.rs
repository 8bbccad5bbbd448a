//! The keys of a spec, one row each. The rows decide how a value is read, its default, the expectations in messages,
//! the names of an attribute's options, and the tables in the documentation. Never holds a value.

use std::ops::RangeInclusive;

use ron::error::Error;

use super::Spec;
use super::locate::{Section, locate};
use super::value::Readable;

/// A key of the spec and its possible values.
#[derive(Debug, Clone)]
pub struct Key {
    /// Where it is, as a dotted path: `zero.prefetch`.
    pub path: &'static str,
    /// Its name in `#[zero(...)]`; none if only a file can have it.
    pub option: Option<&'static str>,
    /// The values that it expects, range included, to be read after "expected".
    pub expects: &'static str,
    /// The unit of its value; empty if the value is not a number.
    pub unit: &'static str,
    /// The default.
    pub default: KeyDefault,
    /// Its effect, in one sentence.
    pub about: &'static str,
    /// The numbers that it accepts.
    range: RangeInclusive<u64>,
    /// Its value in a spec; none if it is a section.
    at: Option<fn(&mut Spec) -> &mut dyn Readable>,
    /// The value that applies if it is not given, where that follows from other keys.
    pub(super) follows: Option<fn(&Spec) -> String>,
    /// The name in front of the parentheses around keys within its value.
    opening: Option<&'static str>,
    /// Whether its value can be followed by keys within the same parentheses.
    leads: bool,
}

/// The default of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyDefault {
    /// Nothing: it must be given.
    Required,
    /// This value, as it would be written.
    Value(&'static str),
    /// No value; the text says what applies then.
    Absent(&'static str),
    /// For a section: the defaults of its keys.
    OfItsKeys,
}

use KeyDefault::{Absent, OfItsKeys, Required, Value};

/// Keys that a spec no longer has, and the reasons.
const FORMER: &[(&str, &str)] =
    &[("attention", "gone: cuDNN's attention was slower than zero's own, which is the only one now")];

/// The reason why the key or option of this name is gone; none if there never was one.
pub(super) fn former(name: &str) -> Option<&'static str> {
    FORMER.iter().find(|(former, _)| *former == name).map(|(_, reason)| *reason)
}

/// The values that a key may have.
struct Expected {
    words: &'static str,
    unit: &'static str,
    range: RangeInclusive<u64>,
}

/// A value that the words describe completely, without a unit or range.
const fn any(words: &'static str) -> Expected {
    Expected { words, unit: "", range: 0..=u64::MAX }
}

/// A value of at least 1, in a unit.
const fn some(unit: &'static str, words: &'static str) -> Expected {
    Expected { words, unit, range: 1..=u64::MAX }
}

/// A size in a range.
const fn sizes(words: &'static str, range: RangeInclusive<u64>) -> Expected {
    Expected { words, unit: "bytes", range }
}

macro_rules! size {
    ($example:literal) => {
        some("bytes", concat!("a size from `B(1)` up, such as `", $example, "`"))
    };
}

macro_rules! number {
    ($unit:literal from $least:literal to $most:literal) => {{
        let words = concat!("a number of ", $unit, " from ", $least, " to ", $most);
        Expected { words, unit: $unit, range: $least..=$most }
    }};
}

/// The row of a key. The field that stores its value has the key's name. In an attribute the section is left out.
macro_rules! key {
    ($section:ident . $key:ident, $expected:expr, $default:expr) => {
        key(concat!(stringify!($section), ".", stringify!($key)), $expected, $default)
            .at(|spec| &mut spec.$section.$key)
            .option(stringify!($key))
    };
    ($key:ident, $expected:expr, $default:expr) => {
        key(stringify!($key), $expected, $default).at(|spec| &mut spec.$key).option(stringify!($key))
    };
}

/// The row of a part of the model's size.
macro_rules! part {
    ($part:ident, $unit:literal, $about:literal) => {
        key(concat!("model.", stringify!($part)), number!($unit from 1 to 4294967295), Absent("as in the size"))
            .at(|spec| &mut spec.size.$part)
            .about($about)
    };
}

/// All keys, sections included.
///
/// A file can have all of them. Keys that are not options of an attribute are only for files: the model, which is the
/// struct itself, and keys whose names are only clear within a section.
pub const KEYS: &[Key] = &[
    key!(
        model,
        any("`Example(\"name\")` or `Package(\"name\")`, with `size` and its parts after the name"),
        Absent("the struct under `#[zero]`")
    )
    .only_in_files()
    .leads()
    .about(
        "The package that `cargo zero` builds with this spec, `Example(\"name\")` or `Package(\"name\")`. The size of its \
            model follows the name: `Example(\"llama\", size: \"3.1-8B\")`.",
    ),
    key("model.size", any("the name of a size, such as `\"3.1-8B\"`"), Absent("the first size of the model"))
        .at(|spec| &mut spec.size.size)
        .about("Which of the model's sizes is built."),
    part!(layers, "layers", "Layers, instead of those of the size; so are the next keys."),
    part!(width, "elements", "Elements of the residual stream."),
    part!(heads, "heads", "Heads of an attention."),
    part!(key_heads, "heads", "Heads of keys and values, where queries share them."),
    part!(inner, "elements", "Elements between the two matrices of an MLP, where the model lets it be chosen."),
    part!(vocab, "ids", "Ids of the vocabulary."),
    section("zero", "Zero", "a section such as `(stage: 3)`", Required).about("What is sharded, and how it is sent."),
    key!(zero.stage, any("0, 1, 2 or 3"), Required)
        .about("The ZeRO stage: 0 shards nothing, 1 the optimizer state, 2 the gradients too, 3 the parameters too."),
    key!(zero.prefetch, number!("units" from 0 to 4294967295), Value("1"))
        .follows(|spec| spec.zero.prefetch().to_string())
        .about("How many units ahead stage 3 gathers parameters."),
    key!(zero.bucket, size!("MiB(25)"), Value("MiB(25)")).about("How many bytes of gradients one collective sends."),
    key!(zero.gather, any("`PerMicroBatch` or `PerStep`"), Value("PerMicroBatch"))
        .about("How often stage 3 gathers parameters for use."),
    key!(zero.reduce, any("`PerMicroBatch` or `PerStep`"), Value("PerMicroBatch"))
        .about("How often gradients are reduced, if there are two or more micro-batches."),
    section("mesh", "Mesh", "a section such as `(zero: 2)`", OfItsKeys)
        .about("The ranks along each axis, and how they lie on nodes."),
    key!(mesh.zero, number!("ranks" from 1 to 4096), Value("2"))
        .option("ranks")
        .about("Ranks that share one copy of what is sharded."),
    key!(mesh.replica, number!("ranks" from 1 to 4096), Value("1"))
        .about("Copies of what is sharded, each with data of its own."),
    key!(mesh.pipeline, number!("ranks" from 1 to 4096), Value("1"))
        .about("Pipeline stages; all axes together have at most 4096 ranks."),
    key!(mesh.nodes, number!("nodes" from 1 to 4096), Value("1"))
        .follows(|spec| spec.mesh.nodes().to_string())
        .about("Nodes, with the same number of ranks on each; computed if only `ranks_per_node` is given."),
    key!(mesh.ranks_per_node, number!("ranks" from 1 to 4096), Absent("all ranks divided by `nodes`"))
        .follows(|spec| spec.mesh.ranks_per_node().to_string())
        .about("Ranks on each node."),
    key!(mesh.within_node, any("a list of `Zero`, `Replica` and `Pipeline`"), Absent("no axis"))
        .about("Axes whose ranks must be on one node: ranks are numbered along them first."),
    section("pipeline", "Pipeline", "a section such as `(schedule: OneFOneB)`", OfItsKeys)
        .about("How pipeline stages share a step, if there are two or more."),
    key!(pipeline.schedule, any("`GPipe`, `OneFOneB` or `Interleaved(chunks: 2)`"), Value("OneFOneB"))
        .opening("Interleaved")
        .about("The order of micro-batches on each pipeline stage."),
    key("pipeline.schedule.chunks", number!("chunks" from 2 to 4294967295), Required)
        .at(|spec| spec.pipeline.schedule.chunks_mut())
        .unit("chunks per rank")
        .about("Chunks of the model on each rank, in `Interleaved`."),
    key!(pipeline.units, any("`Balanced`, `Even` or `Split([3, 4])`"), Value("Balanced"))
        .unit("units")
        .about("The assignment of units to pipeline stages: `Split` has an entry for each chunk of the model."),
    section("batch", "Batch", "a section such as `(sequences: 4, length: 256)`", OfItsKeys)
        .about("What one rank works on in a step."),
    key!(batch.sequences, number!("sequences" from 1 to 4294967295), Value("4"))
        .unit("sequences per rank")
        .about("Sequences in a micro-batch."),
    key!(batch.length, number!("tokens" from 1 to 4294967295), Value("256")).about("Length of a sequence."),
    key!(batch.micro_batches, number!("micro-batches" from 1 to 8192), Value("1"))
        .unit("micro-batches per step")
        .about("Forward and backward passes before an update."),
    section("precision", "Precision", "a section such as `(params: BF16)`", OfItsKeys)
        .about("What each kind of state is stored and sent in."),
    key!(precision.compute, any("`F32` or `BF16`"), Value("F32")).about(
        "What layers read and write: activations, their gradients, values saved for backward, and parameters as layers \
         read them. Sums, losses and statistics are f32.",
    ),
    key!(precision.params, any("`F32` or `BF16`"), Value("F32"))
        .about("Parameters, as they are stored for computation and sent."),
    key!(precision.reduce, any("`F32` or `BF16`"), Value("F32"))
        .only_in_files()
        .about("Gradients, as they are stored and sent."),
    key!(precision.master, any("`F32` or `BF16`"), Value("F32"))
        .about("Parameters, as the optimizer updates them: no narrower than `params`."),
    key!(precision.moments, any("`F32` or `BF16`"), Value("F32")).about("The two moments of the optimizer."),
    key!(
        recompute,
        some("units", "`Every(2)` or another number from 1 up, or `Fields([\"blocks\"])` with at least one field"),
        Absent("nothing is recomputed")
    )
    .about(
        "Units that keep only their input, and run forward again before backward: one in every so many, but never the \
            last, or all units of some fields.",
    ),
    section("checkpoint", "Checkpoint", "a section such as `(snapshot: true)`", OfItsKeys)
        .about("How a checkpoint of a run is written."),
    key!(checkpoint.snapshot, any("`true` or `false`"), Value("false")).about(
        "Whether each rank has room for a copy of the states that it writes, and trains on while the copy is written; \
            otherwise ranks write and wait.",
    ),
    key!(device, any("`Cpu` or `Cuda`"), Value("Cpu")).about(
        "What ranks compute on. An attribute can also name a type of your own that implements \
            `zero_runtime::device::Device`, which overrides the file: `device = crate::naive::Naive`.",
    ),
    key!(
        transport,
        any("`Local`, `Shm`, `Peer`, `Nccl` or `Cluster`"),
        Absent("`Shm`, or `Peer` where the device is `Cuda`")
    )
    .follows(|spec| format!("{:?}", spec.transport()))
    .about(
        "How ranks reach one another: as threads, as processes that share memory, as processes whose devices copy \
                from one another, as processes that send between devices by NCCL, or as processes that send between \
                hosts by MPI. With `Nccl` and `Cluster` there is one host for each node of the mesh.",
    ),
    key!(optimizer, any("`AdamW` or `Muon`"), Value("AdamW")).about(
        "What updates the matrices of hidden layers: AdamW, or Muon, which makes their momentum orthogonal. AdamW updates \
            all other parameters: embeddings, heads, gains and biases.",
    ),
    key!(memory, size!("GiB(1)"), Absent("no budget"))
        .unit("bytes per rank")
        .about("The memory budget of a rank: a plan that needs more does not compile."),
    section("offload", "Offload", "a section such as `(optimizer: Disk)`", OfItsKeys)
        .about("What is kept outside the memory of the device, and comes to it in pieces."),
    key!(offload.optimizer, any("`Device`, `Host` or `Disk`"), Value("Device"))
        .only_in_files()
        .about("Where the moments of the optimizer and its copy of the parameters are kept."),
    key!(offload.gradients, any("`Device`, `Host` or `Disk`"), Value("Device"))
        .only_in_files()
        .about("Where the summed gradients are kept from the backward to the update."),
    key!(offload.parameters, any("`Device`, `Host` or `Disk`"), Value("Device"))
        .only_in_files()
        .about("Where each rank's shard of the parameters is kept, at stage 3."),
    key!(offload.activations, any("`Device`, `Host` or `Disk`"), Value("Device"))
        .only_in_files()
        .about("Where the activations of a unit are kept from its forward to its backward."),
    key!(offload.prefetch, number!("pieces" from 0 to 16), Value("1"))
        .only_in_files()
        .about(
            "Pieces that are fetched ahead of the one that is updated, and units whose activations are fetched ahead. Memory has \
             room for two more.",
        ),
    key!(offload.piece, sizes("a size from `KiB(8)` to `GiB(1)`, such as `MiB(4)`", 8 << 10..=1 << 30), Value("MiB(4)"))
        .only_in_files()
        .about("How much of one state travels at once, in whole blocks of 2048 elements."),
    key!(offload.update, any("`AfterStep` or `AtUse`"), Value("AfterStep"))
        .only_in_files()
        .about(
            "When parameters are updated: at the end of a step, or each unit just before its first use in the next step, while \
             the units before it compute.",
        ),
    key!(offload.update_on, any("`Device` or `Host`"), Value("Device"))
        .only_in_files()
        .about(
            "What updates parameters whose optimizer states are in host memory: the device, to which the states come, or the \
             cores of the host, to which the gradients come. Both compute the same bits.",
        ),
    key!(host, size!("GiB(64)"), Absent("no budget"))
        .only_in_files()
        .unit("bytes per rank")
        .about("The budget of a rank for host memory, in which it keeps what `offload` says: a plan that needs more does not compile."),
    key!(disk, size!("GB(40)"), Absent("no budget"))
        .only_in_files()
        .unit("bytes per rank")
        .about("The budget of a rank for its file, in which it keeps what `offload` says: a plan that needs more does not compile."),
    section("publish", "Publish", "a section such as `(dtype: BF16)`", Absent("nothing is published"))
        .about("What each rank copies of its parameters after a step, for readers outside of the run."),
    key!(publish.dtype, any("`F32` or `BF16`"), Absent("nothing is published"))
        .only_in_files()
        .about("The type in which parameters are published, rounded once."),
    key!(publish.copies, number!("copies" from 1 to 16), Value("2"))
        .only_in_files()
        .follows(|spec| spec.publish.copies().to_string())
        .about(
            "Copies that a rank has room for. With one, training waits for readers, up to `--publish-timeout`; with two or more it \
             does not wait, and the oldest copy is given up.",
        ),
    section("serve", "Serve", "a section such as `(slots: 8)`", OfItsKeys)
        .about(
            "What a worker of `cargo zero serve` has room for. It does not train, and of the other keys it reads `model`, \
             `batch.length`, `precision.compute`, `device`, `memory` and `host`.",
        ),
    key!(serve.slots, number!("slots" from 1 to 64), Value("8"))
        .only_in_files()
        .about("Sequences that a worker decodes at a time, each with a cache of its own."),
    key!(serve.staged, any("`true` or `false`"), Value("true"))
        .only_in_files()
        .about("Whether a worker has room for newer parameters beside those in use, which they replace between two tokens."),
];

const fn key(path: &'static str, expected: Expected, default: KeyDefault) -> Key {
    let Expected { words: expects, unit, range } = expected;
    Key {
        path,
        option: None,
        expects,
        unit,
        default,
        about: "",
        range,
        at: None,
        follows: None,
        opening: None,
        leads: false,
    }
}

const fn section(path: &'static str, opening: &'static str, expects: &'static str, default: KeyDefault) -> Key {
    key(path, any(expects), default).opening(opening)
}

impl Key {
    const fn at(self, at: fn(&mut Spec) -> &mut dyn Readable) -> Self {
        Self { at: Some(at), ..self }
    }

    const fn follows(self, follows: fn(&Spec) -> String) -> Self {
        Self { follows: Some(follows), ..self }
    }

    const fn opening(self, opening: &'static str) -> Self {
        Self { opening: Some(opening), ..self }
    }

    const fn leads(self) -> Self {
        Self { leads: true, ..self }
    }

    const fn option(self, option: &'static str) -> Self {
        Self { option: Some(option), ..self }
    }

    const fn only_in_files(self) -> Self {
        Self { option: None, ..self }
    }

    const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }
}

impl Key {
    /// Reads a value of this key into `spec`.
    pub fn read(&self, spec: &mut Spec, value: &str) -> Result<(), Error> {
        match self.at {
            Some(at) => at(spec).read(value, &self.range),
            None => Err(Error::ExpectedStructLike),
        }
    }

    /// Whether a section begins like one with keys of this one: without a name, or with `opening`, or with a value.
    pub(super) fn opens(&self, section: &Section) -> bool {
        match section.name.as_deref() {
            _ if section.leading.is_some() => self.leads,
            None => self.at.is_none(),
            name => name == self.opening,
        }
    }

    /// Whether it has no value but those of its keys.
    pub(super) fn is_section(&self) -> bool {
        self.at.is_none()
    }

    /// The value in `spec` as it would be written; none if it is neither given nor has a default.
    pub fn value_in(&self, spec: &Spec) -> Option<String> {
        if let Some(follows) = self.follows {
            return Some(follows(spec));
        }
        let text = spec.to_string();
        let spans = locate(&text, self.path)?;
        Some(text[spans.value].to_owned())
    }

    /// Whether two specs have the same value, in any spelling.
    pub(super) fn agree(&self, a: &Spec, b: &Spec) -> bool {
        let number = |spec: &Spec| self.at.and_then(|at| at(&mut spec.clone()).number());
        let said = |spec| number(spec).map(|number| number.to_string()).or_else(|| self.value_in(spec));
        said(a) == said(b)
    }
}

/// The options of the attribute `#[zero(...)]`, each with the key that it stands for, in the order of [`KEYS`].
pub fn options() -> impl Iterator<Item = (&'static str, &'static Key)> + Clone {
    KEYS.iter().filter_map(|key| Some((key.option?, key)))
}

/// The row of the key at `path`; none if there is no such key.
pub(super) fn row(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

/// The keys that lie in the section at `path` itself, each with its row.
pub(super) fn keys_in(path: &str) -> impl Iterator<Item = (&'static str, &'static Key)> {
    let keys = KEYS.iter().map(|row| (split(row.path), row));
    keys.filter(move |((section, _), _)| *section == path).map(|((_, key), row)| (key, row))
}

/// The section that `path` lies in (empty for the spec itself), and its last part.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('.').unwrap_or(("", path))
}

/// `key` inside of `section`, as a path.
pub(super) fn join(section: &str, key: &str) -> String {
    match section {
        "" => key.to_owned(),
        _ => format!("{section}.{key}"),
    }
}

/// Whether `path` is `section`, or a key in it.
pub(super) fn within(path: &str, section: &str) -> bool {
    path.strip_prefix(section).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// The form of the text that is being read, which decides the names of its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A RON file: a key is called by its path.
    File,
    /// An attribute: a key is called by its option.
    Inline,
}

impl Form {
    /// The name of the key at `path` in this form.
    pub fn name(self, path: &str) -> String {
        let option = options().find(|(_, key)| within(path, key.path));
        match (self, option) {
            // A key in the value of an option is named after the option: `schedule.chunks`.
            (Self::Inline, Some((option, key))) => format!("{option}{}", &path[key.path.len()..]),
            _ => path.to_owned(),
        }
    }
}
