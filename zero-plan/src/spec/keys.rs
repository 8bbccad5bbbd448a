//! The keys of a spec, one row each: the source of what messages expect, of what an attribute's options are called, and of
//! the tables in the documentation. Never holds a value.

/// A key of the spec and what may stand there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Where it is, as a dotted path: `zero.prefetch`.
    pub path: &'static str,
    /// What it is called in `#[zero(...)]`; none where only a file can have it.
    pub option: Option<&'static str>,
    /// What it expects, range included, to be read after "expected".
    pub expects: &'static str,
    /// What a number there counts; empty where there is none.
    pub unit: &'static str,
    /// What holds where it is not given.
    pub default: KeyDefault,
    /// What it decides, in one sentence.
    pub about: &'static str,
}

/// What holds where a key is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyDefault {
    /// Nothing: it must be given.
    Required,
    /// This value, as it would be written.
    Value(&'static str),
    /// No value, which means this.
    Absent(&'static str),
    /// The defaults of the keys in it: it is a section.
    OfItsKeys,
}

use KeyDefault::{Absent, OfItsKeys, Required, Value};

/// All keys, sections included.
///
/// A file has all of them. The rest beside an attribute's options is for files: the model, which the struct is, and what
/// would need a section of its own to be named well.
pub const KEYS: &[Key] = &[
    key("model", "`Example(\"name\")` or `Package(\"name\")`", Absent("the struct under `#[zero]`"))
        .about("The package that `cargo zero` builds with this spec."),
    key("zero", "a section such as `(stage: 3)`", Required).about("What is sharded, and how it travels."),
    key("zero.stage", "0, 1, 2 or 3", Required)
        .option("stage")
        .about("The ZeRO stage: 0 shards nothing, 1 the optimizer state, 2 the gradients too, 3 the parameters too."),
    key("zero.prefetch", "a number of units from 0 to 4294967295", Value("1"))
        .option("prefetch")
        .unit("units")
        .about("How far ahead of the computation parameters are gathered, which only stage 3 does."),
    key("zero.bucket", "a size from `B(1)` up, such as `MiB(25)`", Value("MiB(25)"))
        .option("bucket")
        .unit("bytes")
        .about("How much of the gradients travels in one collective."),
    key("zero.gather", "`PerMicroBatch` or `PerStep`", Value("PerMicroBatch"))
        .option("gather")
        .about("How often parameters are gathered, which only stage 3 does for use."),
    key("zero.reduce", "`PerMicroBatch` or `PerStep`", Value("PerMicroBatch"))
        .option("reduce")
        .about("How often gradients are reduced, of two or more micro-batches."),
    key("mesh", "a section such as `(zero: 2)`", OfItsKeys)
        .about("The ranks along each axis, and how they lie on nodes."),
    key("mesh.zero", "a number of ranks from 1 to 4096", Value("2"))
        .option("ranks")
        .unit("ranks")
        .about("Ranks that share one copy of what is sharded."),
    key("mesh.replica", "a number of ranks from 1 to 4096", Value("1"))
        .option("replica")
        .unit("ranks")
        .about("Copies of what is sharded, each with data of its own."),
    key("mesh.pipeline", "a number of ranks from 1 to 4096", Value("1"))
        .option("pipeline")
        .unit("ranks")
        .about("Pipeline stages; all axes together have at most 4096 ranks."),
    key("mesh.nodes", "a number of nodes from 1 to 4096", Value("1"))
        .option("nodes")
        .unit("nodes")
        .about("Nodes with equally many ranks on each; where only `ranks_per_node` is given, they follow from it."),
    key("mesh.ranks_per_node", "a number of ranks from 1 to 4096", Absent("all ranks divided by `nodes`"))
        .option("ranks_per_node")
        .unit("ranks")
        .about("Ranks on each node."),
    key("mesh.within_node", "a list of `Zero`, `Replica` and `Pipeline`", Absent("no axis"))
        .option("within_node")
        .about("Axes whose ranks must be on one node: ranks are numbered along them first."),
    key("pipeline", "a section such as `(schedule: OneFOneB)`", OfItsKeys)
        .about("How pipeline stages share a step, where there are two or more."),
    key("pipeline.schedule", "`GPipe`, `OneFOneB` or `Interleaved(chunks: 2)`", Value("OneFOneB"))
        .option("schedule")
        .about("The order of micro-batches on each pipeline stage."),
    key("pipeline.schedule.chunks", "a number of chunks from 2 to 4294967295", Required)
        .unit("chunks per rank")
        .about("Chunks of the model on each rank, in `Interleaved`."),
    key("pipeline.units", "`Balanced`, `Even` or `Split([3, 4])`", Value("Balanced"))
        .option("units")
        .unit("units")
        .about("Which units lie on which pipeline stage: `Split` has an entry for each chunk of the model."),
    key("batch", "a section such as `(sequences: 4, length: 256)`", OfItsKeys)
        .about("What one rank works on in a step."),
    key("batch.sequences", "a number of sequences from 1 to 4294967295", Value("4"))
        .option("sequences")
        .unit("sequences per rank")
        .about("Sequences in a micro-batch."),
    key("batch.length", "a number of tokens from 1 to 4294967295", Value("256"))
        .option("length")
        .unit("tokens")
        .about("Length of a sequence."),
    key("batch.micro_batches", "a number of micro-batches from 1 to 8192", Value("1"))
        .option("micro_batches")
        .unit("micro-batches per step")
        .about("Forwards and backwards before an update."),
    key("precision", "a section such as `(params: BF16)`", OfItsKeys)
        .about("What each kind of state is stored and sent in."),
    key("precision.compute", "`F32` or `BF16`", Value("F32")).about("What layers compute in: `F32` is all there is."),
    key("precision.params", "`F32` or `BF16`", Value("F32"))
        .option("params")
        .about("Parameters, as they are held for computation and travel."),
    key("precision.reduce", "`F32` or `BF16`", Value("F32")).about("Gradients, as they are held and travel."),
    key("precision.master", "`F32` or `BF16`", Value("F32"))
        .option("master")
        .about("Parameters, as the optimizer updates them: no narrower than `params`."),
    key("precision.moments", "`F32` or `BF16`", Value("F32"))
        .option("moments")
        .about("The two moments of the optimizer."),
    key(
        "recompute",
        "`Every(2)` or another number from 1 up, or `Fields([\"blocks\"])` with at least one field",
        Absent("nothing is recomputed"),
    )
    .option("recompute")
    .unit("units")
    .about(
        "Units that keep only their input for backward, and run forward again before it: every so many one, but never \
            the last, or all of some fields.",
    ),
    key("transport", "`Local` or `Shm`", Value("Shm"))
        .option("transport")
        .about("How ranks reach one another: as threads, or as processes that share memory."),
    key("memory", "a size from `B(1)` up, such as `GiB(1)`", Absent("no budget"))
        .option("memory")
        .unit("bytes per rank")
        .about("The most that a rank may plan for: a plan that needs more does not compile."),
];

const fn key(path: &'static str, expects: &'static str, default: KeyDefault) -> Key {
    Key { path, option: None, expects, unit: "", default, about: "" }
}

impl Key {
    const fn option(self, option: &'static str) -> Self {
        Self { option: Some(option), ..self }
    }

    const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }
}

/// The options of the attribute `#[zero(...)]`, each with the path that it stands for, in the order of [`KEYS`].
pub fn options() -> impl Iterator<Item = (&'static str, &'static str)> + Clone {
    KEYS.iter().filter_map(|key| Some((key.option?, key.path)))
}

/// What the key at `path` expects; none where there is no such key.
pub(super) fn expects(path: &str) -> Option<&'static str> {
    let key = KEYS.iter().find(|key| key.path == path)?;
    Some(key.expects)
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

/// The candidate that `found` is most likely a slip for: at most a third of it wrong, as rustc has it; case is free.
pub fn closest<'a>(found: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let found = found.to_lowercase();
    candidates
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&found, &name.to_lowercase()), name))
        .filter(|&(distance, name)| distance <= name.len().max(3) / 3)
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, name)| name)
}

/// How the text that is being read was written, and so what its keys are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A RON file: a key is called by its path.
    File,
    /// An attribute: a key is called by its option.
    Inline,
}

impl Form {
    /// What the key at `path` is called in this form.
    pub fn name(self, path: &str) -> String {
        let option = options().find(|(_, whole)| within(path, whole));
        match (self, option) {
            // What lies in the value of an option is called after it: `schedule.chunks`.
            (Self::Inline, Some((option, whole))) => format!("{option}{}", &path[whole.len()..]),
            _ => path.to_owned(),
        }
    }
}
