//! Report: what `ron` has to say, as diagnostics in the words of a spec. Never changes the text and never checks a value.

use std::ops::Range;

use ron::error::{Error, Position, SpannedError};

use super::keys::{Form, KEYS, closest, expects, join, split};
use super::locate::{Entry, KeySpans, Section};
use crate::diagnostic::{Diagnostic, offset};

/// The longest value that a message quotes in full, in characters.
const QUOTED_CHARS_MAX: usize = 40;

/// What is wrong, and what has to change for reading to go on.
pub(super) enum Mistake {
    /// The key at this path is not there and has no default.
    Missing { path: String },
    /// An entry is wrong; `about` are the paths that it may have been meant for.
    Entry { problem: Diagnostic, extent: Range<usize>, about: Vec<String> },
}

/// Makes the diagnostics for one text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Report<'t> {
    pub text: &'t str,
    pub form: Form,
}

impl Report<'_> {
    /// Z0101: the text is not RON.
    pub fn syntax(&self, error: &SpannedError) -> Diagnostic {
        // `ron` starts the span before blanks and ends it where it gave up, which for a name is after it.
        let at = match error.code {
            Error::ExpectedDifferentStructName { .. } => place(self.text, error.span.start),
            _ => place(self.text, error.span.end),
        };
        let width = self.text[at..].chars().next().map_or(0, char::len_utf8);
        let message = format!("the spec cannot be read: {}", reason(&error.code));
        Diagnostic::new("Z0101", "", message).at(at..at + width, "reading stops here")
    }

    /// Z0102: a key without a default is missing.
    pub fn missing(&self, path: &str, root: &Section) -> Diagnostic {
        let (section, key) = split(path);
        let (place, span) = match root.find(section) {
            Some(entry) => (format!("`{section}`"), entry.spans.key.clone()),
            None => ("the spec".to_owned(), root.span.start..root.span.start + 1),
        };
        let place = match self.form {
            Form::File => place,
            Form::Inline => "`#[zero(...)]`".to_owned(),
        };
        Diagnostic::new("Z0102", path, format!("missing key `{key}` in {place}"))
            .at(span, format!("`{key}` has no default"))
            .help(format!("`{key}` expects {}", expects(path).unwrap_or("a value")))
    }

    /// Z0104: a key is given twice.
    pub fn duplicate(&self, path: &str, first: &KeySpans, second: &KeySpans) -> Diagnostic {
        let message = format!("duplicate key `{}`", self.form.name(path));
        let mut problem =
            Diagnostic::new("Z0104", path, message).at(second.key.clone(), "given again").help("remove one of the two");
        problem.also = Some((first.key.clone(), "first given here".to_owned()));
        problem
    }

    /// What `error` means for the entry that it lies in; none where it lies in no entry of a spec. `root` is of a text with
    /// the same offsets as the report's.
    pub fn mistake(&self, error: &SpannedError, root: &Section) -> Option<Mistake> {
        if let Error::MissingStructField { field, outer } = &error.code {
            let section = outer.as_deref()?.to_lowercase();
            let section = if section == "spec" { "" } else { &section };
            return Some(Mistake::Missing { path: join(section, field) });
        }
        let mut around = root.around(place(self.text, error.span.start)).into_iter().rev();
        if let Error::NoSuchStructField { expected, found, .. } = &error.code {
            let (path, entry) = around.find(|(_, entry)| entry.key == *found)?;
            return Some(unknown(&path, entry, expected));
        }
        let (path, entry, expected) =
            around.find_map(|(path, entry)| expects(&path).map(|expected| (path, entry, expected)))?;
        Some(Mistake::Entry {
            problem: self.value(&error.code, &path, entry, expected),
            extent: entry.extent(),
            about: vec![path],
        })
    }

    /// Z0103, Z0105 or Z0106: the value is not one that the key expects.
    fn value(&self, error: &Error, path: &str, entry: &Entry, expected: &str) -> Diagnostic {
        let value = &entry.spans.value;
        match error {
            Error::IntegerOutOfBounds | Error::Message(_) if path == "zero.stage" => {
                let message = format!("stage {} does not exist", quote(&self.text[value.clone()]));
                Diagnostic::new("Z0105", path, message)
                    .at(value.clone(), format!("expected {expected}"))
                    .help("stage 0 shards nothing, 1 the optimizer state, 2 the gradients too, 3 the parameters too")
            }
            Error::IntegerOutOfBounds => self.out_of_range(path, value.clone(), expected),
            Error::NoSuchEnumVariant { expected: variants, found, .. } => {
                let name = self.form.name(path);
                let message = format!("unknown variant `{found}` for `{name}`, expected {expected}");
                let label = match closest(found, variants.iter().copied()) {
                    Some(variant) => format!("did you mean `{variant}`?"),
                    None => format!("expected {expected}"),
                };
                let len = if self.text[value.clone()].starts_with(found.as_str()) { found.len() } else { value.len() };
                Diagnostic::new("Z0103", path, message).at(value.start..value.start + len, label)
            }
            _ => {
                let (name, found) = (self.form.name(path), quote(&self.text[value.clone()]));
                let message = format!("`{name}` expects {expected}, found `{found}`");
                Diagnostic::new("Z0103", path, message).at(first_line(self.text, value), format!("expected {expected}"))
            }
        }
    }

    /// Z0106: the value is of the right kind, but not in the range that the key expects.
    pub fn out_of_range(&self, path: &str, value: Range<usize>, expected: &str) -> Diagnostic {
        let (name, found) = (self.form.name(path), quote(&self.text[value.clone()]));
        Diagnostic::new("Z0106", path, format!("`{name}` is out of range: `{found}`"))
            .at(value, format!("expected {expected}"))
    }
}

/// Z0107: there is no such key here.
fn unknown(path: &str, entry: &Entry, expected: &[&'static str]) -> Mistake {
    let (section, key) = split(path);
    let place = if section.is_empty() { "the spec".to_owned() } else { format!("`{section}`") };
    let near = closest(key, expected.iter().copied()).map(|near| join(section, near));
    let elsewhere = KEYS.iter().map(|known| known.path).find(|known| split(known).1 == key);
    let label = match (&near, elsewhere) {
        (Some(near), _) => format!("did you mean `{}`?", split(near).1),
        (None, Some(elsewhere)) => format!("did you mean `{elsewhere}`?"),
        (None, None) => format!("not a key of {place}"),
    };
    let problem = Diagnostic::new("Z0107", path, format!("unknown key `{key}` in {place}"))
        .at(entry.spans.key.clone(), label)
        .help(format!("the keys of {place} are {}", list(expected)));
    let meant = near.or(elsewhere.map(str::to_owned));
    Mistake::Entry { problem, extent: entry.extent(), about: meant.into_iter().collect() }
}

/// Names for a message: "`stage`, `prefetch`, `bucket`".
pub(super) fn list<'a>(names: impl IntoIterator<Item = &'a &'a str>) -> String {
    let quoted: Vec<_> = names.into_iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// What `ron` says, as part of a sentence.
pub(super) fn reason(error: &Error) -> String {
    let reason = error.to_string();
    let first = reason.chars().next().map_or(0, char::len_utf8);
    reason[..first].to_lowercase() + &reason[first..]
}

/// A value as a message quotes it: on one line, and cut where it is long.
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
