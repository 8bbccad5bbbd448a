//! The keys of a spec: what each expects, in words, and what it is called in an attribute. Never holds a value.

/// A key of the spec and what may stand there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Where it is, as a dotted path: `zero.prefetch`.
    pub path: &'static str,
    /// What it expects, to be read after "expected".
    pub expects: &'static str,
}

/// All keys, sections included.
pub const KEYS: &[Key] = &[
    key("model", "`Example(\"name\")` or `Package(\"name\")`"),
    key("mesh", "a section such as `(zero: 2)`"),
    key("mesh.nodes", "a number of nodes from 1 to 4096"),
    key("mesh.ranks_per_node", "a number of ranks from 1 to 4096"),
    key("mesh.replica", "a number of ranks from 1 to 4096"),
    key("mesh.pipeline", "a number of ranks from 1 to 4096"),
    key("mesh.zero", "a number of ranks from 1 to 4096"),
    key("mesh.within_node", "a list of `Zero`, `Replica` and `Pipeline`"),
    key("zero", "a section such as `(stage: 3)`"),
    key("zero.stage", "0, 1, 2 or 3"),
    key("zero.prefetch", "a number of units from 0 to 4294967295"),
    key("zero.bucket", "a size from `B(1)` up, such as `MiB(25)`"),
    key("zero.gather", "`PerMicroBatch` or `PerStep`"),
    key("zero.reduce", "`PerMicroBatch` or `PerStep`"),
    key("pipeline", "a section such as `(schedule: OneFOneB)`"),
    key("pipeline.schedule", "`GPipe`, `OneFOneB` or `Interleaved(chunks: 2)`"),
    key("pipeline.schedule.chunks", "a number of chunks from 2 to 4294967295"),
    key("pipeline.units", "`Balanced`, `Even` or `Split([3, 4])`"),
    key("batch", "a section such as `(sequences: 4, length: 256)`"),
    key("batch.sequences", "a number of sequences from 1 to 4294967295"),
    key("batch.length", "a number of tokens from 1 to 4294967295"),
    key("batch.micro_batches", "a number of micro-batches from 1 to 4294967295"),
    key("precision", "a section such as `(params: BF16)`"),
    key("precision.compute", "`F32` or `BF16`"),
    key("precision.params", "`F32` or `BF16`"),
    key("precision.reduce", "`F32` or `BF16`"),
    key("precision.master", "`F32` or `BF16`"),
    key("precision.moments", "`F32` or `BF16`"),
    key("recompute", "`Every(2)` or another number from 1 up, or `Fields([\"blocks\"])` with at least one field"),
    key("transport", "`Local` or `Shm`"),
    key("memory", "a size from `B(1)` up, such as `GiB(1)`"),
];

/// The options of the attribute `#[zero(...)]` and the paths that they stand for. The rest of a spec is for files: the
/// model, which the struct is, and what would need a section of its own to be named well.
pub const INLINE: &[(&str, &str)] = &[
    ("stage", "zero.stage"),
    ("prefetch", "zero.prefetch"),
    ("bucket", "zero.bucket"),
    ("gather", "zero.gather"),
    ("reduce", "zero.reduce"),
    ("ranks", "mesh.zero"),
    ("replica", "mesh.replica"),
    ("pipeline", "mesh.pipeline"),
    ("nodes", "mesh.nodes"),
    ("ranks_per_node", "mesh.ranks_per_node"),
    ("within_node", "mesh.within_node"),
    ("schedule", "pipeline.schedule"),
    ("units", "pipeline.units"),
    ("sequences", "batch.sequences"),
    ("length", "batch.length"),
    ("micro_batches", "batch.micro_batches"),
    ("params", "precision.params"),
    ("master", "precision.master"),
    ("moments", "precision.moments"),
    ("recompute", "recompute"),
    ("transport", "transport"),
    ("memory", "memory"),
];

const fn key(path: &'static str, expects: &'static str) -> Key {
    Key { path, expects }
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
pub(crate) fn closest<'a>(found: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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
        let option = INLINE.iter().find(|(_, whole)| within(path, whole));
        match (self, option) {
            // What lies in the value of an option is called after it: `schedule.chunks`.
            (Self::Inline, Some((option, whole))) => format!("{option}{}", &path[whole.len()..]),
            _ => path.to_owned(),
        }
    }
}
