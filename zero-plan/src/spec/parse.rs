//! Parse: RON text in, a checked spec or all of its mistakes out. The text is cut into entries once, and each is read
//! by the row of its key, so a mistake in one does not keep another from being read. Never reads a file.

use ron::extensions::Extensions;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::Spec;
use super::check::check;
use super::keys::{Form, Key, KeyDefault, join, keys_in, row, within};
use super::locate::{KeyValue, Section, root};
use super::report::SpecDiagnostics;
use super::tokens::tokens;
use crate::diagnostic::Diagnostic;

/// Reads and checks a spec.
///
/// # Errors
///
/// One `Z0101` if the text is not RON, or not a section; otherwise every mistake in it, `Z0102` to `Z0108` and `Z0111`
/// to `Z0115`, in the order of the text.
pub fn parse(text: &str) -> Result<Spec, Vec<Diagnostic>> {
    parse_as(text, Form::File, Vec::new())
}

/// [`parse`], with the names that keys have in `form`, and with paths that already have a mistake.
pub(super) fn parse_as(text: &str, form: Form, settled: Vec<String>) -> Result<Spec, Vec<Diagnostic>> {
    let report = SpecDiagnostics { text, form };
    let root = outline(report).map_err(|problem| vec![*problem])?;
    let Reading { spec, mut problems, settled, .. } = read(report, &root, Spec::of_defaults(), settled);
    problems.extend(check(&spec, &root, report, settled));
    problems.sort_by_key(|problem| problem.span.as_ref().map(|span| span.start));
    if problems.is_empty() { Ok(spec) } else { Err(problems) }
}

/// The RON in which specs are written: `memory: GiB(1)` needs no `Some`.
pub fn ron() -> ron::Options {
    ron::Options::default().with_default_extension(Extensions::IMPLICIT_SOME)
}

/// A value as RON on several lines, in the form of specs and hardware files.
///
/// # Panics
/// If RON cannot express the value.
pub fn ron_text(value: &impl Serialize) -> String {
    let pretty = ron::ser::PrettyConfig::default().compact_structs(false).struct_names(false);
    ron().to_string_pretty(value, pretty).expect("it can be written as RON")
}

/// Any entries at all, to tell a text that is not a spec from a spec with mistakes.
#[derive(Deserialize)]
#[serde(rename = "Spec")]
struct Outline {}

/// The entries of a text, or the reason why it has none.
pub(super) fn outline(report: SpecDiagnostics) -> Result<Section, Box<Diagnostic>> {
    let root = root(report.text);
    let text = root.as_ref().map_or(report.text.to_owned(), |root| without_leading(report.text, root));
    let is_ron = ron().from_str::<IgnoredAny>(&text);
    match is_ron.and_then(|_| ron().from_str::<Outline>(&text)) {
        // A text that `ron` reads as a struct has entries, or is empty.
        Ok(_) => Ok(root.unwrap_or_default()),
        Err(error) => Err(Box::new(report.syntax(&error))),
    }
}

/// The text with blanks instead of each quoted text in front of keys, because `ron` has no such values. All else keeps
/// its line and column.
fn without_leading(text: &str, root: &Section) -> String {
    let sections = root.entries.iter().filter_map(|entry| entry.section.as_ref());
    let mut text = text.to_owned();
    // From the last to the first, because a character of several bytes becomes one blank.
    for section in sections.collect::<Vec<_>>().into_iter().rev() {
        let Some(leading) = &section.leading else { continue };
        let comma = tokens(&text[leading.end..]).first().map_or(0, |comma| comma.span.end);
        let with_comma = leading.start..leading.end + comma;
        let blank: String = text[with_comma.clone()].chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
        text.replace_range(with_comma, &blank);
    }
    text
}

/// The result of reading a text.
pub(super) struct Reading<'t> {
    report: SpecDiagnostics<'t>,
    /// The spec: values that could be read have replaced the earlier ones.
    pub spec: Spec,
    pub problems: Vec<Diagnostic>,
    /// The paths that problems are about. Their values, or their absence, cause no other mistake.
    pub settled: Vec<String>,
}

/// Reads the entries of a text into `spec`, without checking them together.
pub(super) fn read<'t>(report: SpecDiagnostics<'t>, root: &Section, spec: Spec, settled: Vec<String>) -> Reading<'t> {
    let mut reading = Reading { report, spec, problems: Vec::new(), settled };
    reading.section(root, "", None);
    reading
}

impl Reading<'_> {
    /// Reads the section at `path`, which is the value of `holder`, or the whole spec.
    fn section(&mut self, section: &Section, path: &str, holder: Option<&KeyValue>) {
        for (index, entry) in section.entries.iter().enumerate() {
            let path = join(path, &entry.key);
            let first = section.entries[..index].iter().find(|first| first.key == entry.key);
            match (first, row(&path)) {
                (Some(first), _) => self.note(self.report.duplicate(&path, &first.spans, &entry.spans)),
                (None, Some(row)) => self.entry(row, entry),
                (None, None) => {
                    let (problem, meant) = self.report.unknown(&path, entry, section);
                    self.note(problem);
                    self.settled.extend(meant);
                }
            }
        }
        let is_given = |key: &str| section.entries.iter().any(|entry| entry.key == key);
        for (key, row) in keys_in(path).filter(|(key, row)| row.default == KeyDefault::Required && !is_given(key)) {
            if !self.settled.iter().any(|settled| within(settled, row.path)) {
                self.note(self.report.missing(key, row, section, holder));
            }
        }
    }

    /// Reads the value of an entry, as the row of its key says.
    fn entry(&mut self, row: &'static Key, entry: &KeyValue) {
        if let Some(section) = entry.section.as_ref().filter(|section| row.opens(section)) {
            if let Some(leading) = &section.leading {
                let name = section.name.as_deref().unwrap_or_default();
                self.value(row, entry, &format!("{name}({})", &self.report.text[leading.clone()]));
            }
            return self.section(section, row.path, Some(entry));
        }
        self.value(row, entry, &self.report.text[entry.spans.value.clone()]);
    }

    /// Reads `text` as the value of an entry.
    fn value(&mut self, row: &'static Key, entry: &KeyValue, text: &str) {
        if let Err(error) = row.read(&mut self.spec, text) {
            self.note(self.report.value(&error, row, &entry.spans.value));
        }
    }

    fn note(&mut self, problem: Diagnostic) {
        self.settled.push(problem.key.clone());
        self.problems.push(problem);
    }
}

#[cfg(test)]
mod tests;
