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
    key("mesh.zero", "a number of ranks from 1 to 4096"),
    key("zero", "a section such as `(stage: 3)`"),
    key("zero.stage", "0, 1, 2 or 3"),
    key("zero.prefetch", "a number of units from 0 to 4294967295"),
    key("zero.bucket", "a size from `B(1)` up, such as `MiB(25)`"),
    key("batch", "a section such as `(sequences: 4, length: 256)`"),
    key("batch.sequences", "a number of sequences from 1 to 4294967295"),
    key("batch.length", "a number of tokens from 1 to 4294967295"),
    key("batch.micro_batches", "a number of micro-batches from 1 to 4294967295"),
    key("transport", "`Local` or `Shm`"),
    key("memory", "a size from `B(1)` up, such as `GiB(1)`"),
];

/// The options of the attribute `#[zero(...)]` and the paths that they stand for.
pub const INLINE: &[(&str, &str)] = &[
    ("stage", "zero.stage"),
    ("prefetch", "zero.prefetch"),
    ("bucket", "zero.bucket"),
    ("ranks", "mesh.zero"),
    ("sequences", "batch.sequences"),
    ("length", "batch.length"),
    ("micro_batches", "batch.micro_batches"),
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

/// The candidate that `found` is most likely a slip for: at most a third of it wrong, as rustc has it; case is free.
pub(super) fn closest<'a>(found: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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
    pub fn name(self, path: &str) -> &str {
        let option = INLINE.iter().find(|(_, inline)| *inline == path);
        match (self, option) {
            (Self::Inline, Some((option, _))) => option,
            _ => path,
        }
    }
}
