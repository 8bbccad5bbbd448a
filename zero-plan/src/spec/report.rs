//! Report: turns errors of `ron` into diagnostics in the words of a spec. Never changes the text or checks a value.

use std::ops::Range;

use ron::error::{Error, Position, SpannedError};

use super::keys::{Form, KEYS, Key, former, join, keys_in, options, row, split};
use super::locate::{KeySpans, KeyValue, Section};
use super::slip::{self, Slip};
use super::tokens::{TokenKind, tokens};
use crate::diagnostic::{Diagnostic, closest, offset};

/// The longest value that a message quotes in full, in characters.
const QUOTED_CHARS_MAX: usize = 40;

/// Makes the diagnostics for one text.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpecDiagnostics<'t> {
    pub text: &'t str,
    pub form: Form,
}

impl SpecDiagnostics<'_> {
    /// Z0101, Z0117 or Z0119: the text is not RON, or nests too deeply to be read.
    pub fn syntax(&self, error: &SpannedError) -> Diagnostic {
        // `ron` starts the span before blanks and ends it where it gave up, which is after a name.
        let at = match error.code {
            Error::ExpectedDifferentStructName { .. } => place(self.text, error.span.start),
            _ => place(self.text, error.span.end),
        };
        if let Some((format, line)) = slip::other_format(self.text) {
            let message = format!("this looks like {format}, but a spec is RON");
            return Diagnostic::new("Z0117", "", message).at(line, "it begins here").help(slip::EXAMPLE);
        }
        let width = self.text[at..].chars().next().map_or(0, char::len_utf8);
        if error.code == Error::ExceededRecursionLimit {
            let problem = Diagnostic::new("Z0119", "", "the spec cannot be read: it nests too deep");
            return problem.at(at..at + width, "reading stops here").help(slip::EXAMPLE);
        }
        let slip = slip::find(self.text, at).filter(|_| error.code != Error::UnclosedBlockComment);
        match slip {
            Some(Slip { span, what, label, help }) => {
                let message = format!("the spec cannot be read: {what}");
                Diagnostic::new("Z0101", "", message).at(first_line(self.text, &span), label).help(help)
            }
            None => {
                let message = format!("the spec cannot be read: {}", reason(&error.code));
                Diagnostic::new("Z0101", "", message).at(at..at + width, "reading stops here").help(slip::EXAMPLE)
            }
        }
    }

    /// Z0102: a key without a default is missing in a section, which is the value of `holder` or the whole spec.
    pub fn missing(&self, key: &str, row: &Key, section: &Section, holder: Option<&KeyValue>) -> Diagnostic {
        let path = split(row.path).0;
        let (place, span) = match holder {
            Some(entry) => (format!("`{path}`"), entry.spans.key.clone()),
            None => ("the spec".to_owned(), section.span.start..section.span.start + 1),
        };
        let place = match (self.form, self.form.name(path)) {
            (Form::Inline, name) if name != path => format!("`{name}`"),
            (Form::Inline, _) => "`#[zero(...)]`".to_owned(),
            (Form::File, _) => place,
        };
        Diagnostic::new("Z0102", row.path, format!("missing key `{key}` in {place}"))
            .at(span, format!("`{key}` has no default"))
            .help(format!("`{key}` expects {}", row.expects))
    }

    /// Z0104: a key is given twice.
    pub fn duplicate(&self, path: &str, first: &KeySpans, second: &KeySpans) -> Diagnostic {
        let message = format!("duplicate key `{}`", self.form.name(path));
        let mut problem =
            Diagnostic::new("Z0104", path, message).at(second.key.clone(), "given again").help("remove one of the two");
        problem.also = Some((first.key.clone(), "first given here".to_owned()));
        problem
    }

    /// Z0103, Z0105 or Z0106: the value is not one that the key expects.
    pub fn value(&self, error: &Error, row: &Key, value: &Range<usize>) -> Diagnostic {
        let (path, expected) = (row.path, row.expects);
        match error {
            Error::IntegerOutOfBounds | Error::Message(_) if path == "zero.stage" => {
                let message = format!("stage {} does not exist", quote(&self.text[value.clone()]));
                Diagnostic::new("Z0105", path, message)
                    .at(value.clone(), format!("expected {expected}"))
                    .help("stage 0 shards nothing, 1 the optimizer state, 2 the gradients too, 3 the parameters too")
            }
            // The value is of the right kind, but not in the range that the key expects.
            Error::IntegerOutOfBounds => {
                let (name, found) = (self.form.name(path), quote(&self.text[value.clone()]));
                Diagnostic::new("Z0106", path, format!("`{name}` is out of range: `{found}`"))
                    .at(value.clone(), format!("expected {expected}"))
            }
            Error::NoSuchEnumVariant { expected: variants, found, .. } => {
                let name = self.form.name(path);
                let message = format!("unknown variant `{found}` for `{name}`, expected {expected}");
                // `F16` is another format of numbers, not a slip for `BF16`.
                let near = closest(found, variants.iter().copied()).filter(|_| !found.eq_ignore_ascii_case("F16"));
                let label = match near {
                    Some(variant) => format!("did you mean `{variant}`?"),
                    None => format!("expected {expected}"),
                };
                Diagnostic::new("Z0103", path, message).at(self.word(found, value), label)
            }
            _ => {
                let (name, found) = (self.form.name(path), quote(&self.text[value.clone()]));
                let message = format!("`{name}` expects {expected}, found `{found}`");
                Diagnostic::new("Z0103", path, message).at(first_line(self.text, value), format!("expected {expected}"))
            }
        }
    }

    /// Where a name stands in a value; the whole value if it does not contain the name.
    fn word(&self, name: &str, value: &Range<usize>) -> Range<usize> {
        let words = tokens(&self.text[value.clone()]).into_iter().filter(|token| token.kind == TokenKind::Word);
        let mut spans = words.map(|token| value.start + token.span.start..value.start + token.span.end);
        spans.find(|span| &self.text[span.clone()] == name).unwrap_or(value.clone())
    }

    /// Z0107: there is no such key in this section. Also returns the paths that the entry may have been meant for.
    pub fn unknown(&self, path: &str, entry: &KeyValue, section: &Section) -> (Diagnostic, Vec<String>) {
        let (around, key) = split(path);
        let place = if around.is_empty() { "the spec".to_owned() } else { format!("`{}`", self.form.name(around)) };
        let problem = Diagnostic::new("Z0107", path, format!("unknown key `{key}` in {place}"));
        if let Some(reason) = former(path) {
            return (problem.at(entry.spans.key.clone(), reason).help(format!("remove `{key}`")), Vec::new());
        }
        let expected: Vec<_> = keys_in(around).map(|(key, _)| key).collect();
        let near = closest(key, expected.iter().copied());
        let (label, meant) = match (near, elsewhere(path)) {
            (Some(near), _) => (format!("did you mean `{near}`?"), vec![join(around, near)]),
            (None, Some(path)) => (format!("did you mean `{}`?", self.form.name(path)), vec![path.to_owned()]),
            // The other keys of the mesh were meant for a mesh with that axis.
            (None, None) if ["mesh.tensor", "mesh.tp"].contains(&path) => {
                ("no such axis: ranks lie along `replica`, `pipeline` and `zero`".to_owned(), vec!["mesh".to_owned()])
            }
            (None, None) if ARGUMENTS.contains(&key) => {
                ("not part of a spec: it is an argument of the binary, which `--help` lists".to_owned(), Vec::new())
            }
            // It may have been meant for any key that is missing.
            (None, None) => {
                let absent = expected.iter().filter(|key| section.find(key).is_none()).map(|key| join(around, key));
                (format!("not a key of {place}"), absent.collect())
            }
        };
        let help = format!("the keys of {place} are {}", list(&expected));
        (problem.at(entry.spans.key.clone(), label).help(help), meant)
    }
}

/// The names that keys have in other tools, with the section if the name alone would not be clear.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("pipeline.stages", "mesh.pipeline"),
    ("pp", "mesh.pipeline"),
    ("dp", "mesh.replica"),
    ("world_size", "mesh.zero"),
    ("batch.size", "batch.sequences"),
    ("batch_size", "batch.sequences"),
    ("micro_batch_size", "batch.sequences"),
    ("train_batch_size", "batch.sequences"),
    ("per_device_train_batch_size", "batch.sequences"),
    ("seq_len", "batch.length"),
    ("seq_length", "batch.length"),
    ("max_seq_length", "batch.length"),
    ("block_size", "batch.length"),
    ("gradient_accumulation_steps", "batch.micro_batches"),
    ("activation_checkpointing", "recompute"),
    ("gradient_checkpointing", "recompute"),
    ("dtype", "precision.params"),
    ("bf16", "precision.compute"),
    ("mixed_precision", "precision.compute"),
    ("num_processes", "mesh.zero"),
    ("nproc_per_node", "mesh.zero"),
    ("nnodes", "mesh.nodes"),
    ("num_nodes", "mesh.nodes"),
];

/// Arguments of the binary, which are not keys because they shape neither memory nor order.
const ARGUMENTS: &[&str] = &[
    "lr",
    "learning_rate",
    "steps",
    "seed",
    "data",
    "warmup",
    "clip",
    "weight_decay",
    "beta1",
    "beta2",
    "momentum",
    "threads",
];

/// The key that other tools, the attribute or a spec call `name`, in which `-` is as good as `_`.
pub fn key_called(name: &str) -> Option<&'static Key> {
    let name = name.replace('-', "_");
    let of_other = OTHER_NAMES.iter().find(|(other, _)| *other == name).and_then(|(_, path)| row(path));
    let is_called = |key: &&Key| split(key.path).1 == name || key.option == Some(&name);
    of_other.or_else(|| KEYS.iter().find(is_called))
}

/// The key that an unknown `path` was meant for, if the key is in another section or `path` is its option's name.
fn elsewhere(path: &str) -> Option<&'static str> {
    let other = OTHER_NAMES.iter().find(|(name, _)| *name == path || *name == split(path).1);
    if let Some((_, path)) = other {
        return Some(path);
    }
    let names = KEYS.iter().map(|key| (split(key.path).1, key)).chain(options());
    let near = closest(split(path).1, names.clone().map(|(name, _)| name))?;
    names.clone().find(|(name, _)| *name == near).map(|(_, key)| key.path)
}

/// Names for a message: "`stage`, `prefetch`, `bucket`".
pub(super) fn list<'a>(names: impl IntoIterator<Item = &'a &'a str>) -> String {
    let quoted: Vec<_> = names.into_iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// The message of `ron`, as part of a sentence.
pub(super) fn reason(error: &Error) -> String {
    let reason = error.to_string();
    let first = reason.chars().next().map_or(0, char::len_utf8);
    reason[..first].to_lowercase() + &reason[first..]
}

/// A value as a message quotes it: on one line, and cut if it is long.
fn quote(value: &str) -> String {
    let words: Vec<_> = value.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((cut, _)) => format!("{}...", &line[..cut]),
        None => line,
    }
}

/// The part of `span` that is on its first line, so that carets stay on one.
fn first_line(text: &str, span: &Range<usize>) -> Range<usize> {
    let len = text[span.clone()].lines().next().map_or(0, str::len);
    span.start..span.start + len
}

fn place(text: &str, position: Position) -> usize {
    offset(text, position.line, position.col)
}
