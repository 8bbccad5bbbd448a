//! Parse: RON text in, a checked spec or all of its mistakes out. `ron` stops at the first mistake, so an entry that
//! holds one is noted, blanked out and the rest read again; offsets stay what they were. Never reads a file.

use std::ops::Range;

use ron::extensions::Extensions;
use serde::de::IgnoredAny;

use super::Spec;
use super::check::check;
use super::keys::{Form, join, split, within};
use super::locate::{Section, root};
use super::report::{Mistake, Report};
use crate::diagnostic::Diagnostic;

/// Reads and checks a spec.
///
/// # Errors
///
/// One `Z0101` where the text is not RON, or no section; otherwise every mistake in it, `Z0102` to `Z0108` and `Z0111` to `Z0115`,
/// in the order of the text.
pub fn parse(text: &str) -> Result<Spec, Vec<Diagnostic>> {
    parse_as(text, Form::File, Vec::new())
}

/// What has been read from a text.
pub(super) struct Reading {
    /// The spec without a check of its values, with defaults in place of what could not be read; none where the text as a
    /// whole cannot be read.
    pub spec: Option<Spec>,
    pub problems: Vec<Diagnostic>,
    /// Paths that a problem is about: no other mistake is made of their values.
    pub settled: Vec<String>,
}

/// [`parse`], with keys called what `form` calls them, and some paths that a mistake is known about.
pub(super) fn parse_as(text: &str, form: Form, settled: Vec<String>) -> Result<Spec, Vec<Diagnostic>> {
    let Reading { spec, mut problems, settled } = read(text, form, settled);
    if let Some(spec) = &spec {
        problems.extend(check(spec, text, form, settled));
    }
    problems.sort_by_key(|problem| problem.span.as_ref().map(|span| span.start));
    match spec {
        Some(spec) if problems.is_empty() => Ok(spec),
        _ => Err(problems),
    }
}

/// Reads a spec without checking its values.
pub(super) fn read(text: &str, form: Form, settled: Vec<String>) -> Reading {
    let report = Report { text, form };
    let unreadable = |error, settled| Reading { spec: None, problems: vec![report.syntax(&error)], settled };
    if let Err(error) = ron().from_str::<IgnoredAny>(text) {
        return unreadable(error, settled);
    }
    let mut reader = Reader { report, work: text.to_owned(), problems: Vec::new(), settled };
    if let Some(root) = root(text) {
        reader.drop_duplicates(&root, "");
    }
    loop {
        match ron().from_str(&reader.work) {
            Ok(spec) => return Reading { spec: Some(spec), problems: reader.problems, settled: reader.settled },
            Err(error) if reader.settle(&error).is_some() => {}
            // Not a spec from the outside, so what was found inside says nothing.
            Err(error) => return unreadable(error, reader.settled),
        }
    }
}

/// RON as specs are written in it: `memory: GiB(1)` needs no `Some`.
pub(super) fn ron() -> ron::Options {
    ron::Options::default().with_default_extension(Extensions::IMPLICIT_SOME)
}

struct Reader<'t> {
    report: Report<'t>,
    /// The text, with blanks where a mistake was.
    work: String,
    problems: Vec<Diagnostic>,
    /// Paths that a noted mistake is about: that they are missing afterwards is no second one.
    settled: Vec<String>,
}

impl Reader<'_> {
    fn drop_duplicates(&mut self, section: &Section, path: &str) {
        for (index, entry) in section.entries.iter().enumerate() {
            let path = join(path, &entry.key);
            let mut before = section.entries[..index].iter();
            if let Some(first) = before.find(|first| first.key == entry.key) {
                let problem = self.report.duplicate(&path, &first.spans, &entry.spans);
                self.problems.push(problem);
                self.blank(entry.extent());
                self.settled.push(path);
            } else if let Some(inside) = &entry.section {
                self.drop_duplicates(inside, &path);
            }
        }
    }

    /// Notes the mistake behind `error` and changes the work so that reading gets past it; none where it has no entry.
    /// Each time there is one entry less or one key more, so reading ends.
    fn settle(&mut self, error: &ron::error::SpannedError) -> Option<()> {
        let root = root(&self.work)?;
        match self.report.mistake(error, &root)? {
            Mistake::Missing { path } => {
                let excused = self.settled.iter().any(|settled| within(settled, &path));
                if !excused {
                    let problem = self.report.missing(&path, &root);
                    self.problems.push(problem);
                }
                match split(&path).0 {
                    // A variant without its key is no value: the default takes its place.
                    outer @ "pipeline.schedule" => {
                        let extent = root.find(outer)?.extent();
                        self.settled.push(outer.to_owned());
                        self.blank(extent);
                    }
                    _ => self.supply(&path, &root),
                }
            }
            Mistake::Entry { problem, extent, about } => {
                self.problems.push(problem);
                self.settled.extend(about);
                self.blank(extent);
            }
        }
        Some(())
    }

    fn blank(&mut self, extent: Range<usize>) {
        let blank = |byte| if byte == b'\n' { '\n' } else { ' ' };
        let blanks: String = self.work[extent.clone()].bytes().map(blank).collect();
        self.work.replace_range(extent, &blanks);
    }

    /// Puts a stage in the place of the missing one, or a section in that of the missing `zero`. It goes to the very end,
    /// together with the rest of its section, which has been read without a mistake by then: all other places stay what
    /// they were. It is stage 3, where every option has an effect.
    fn supply(&mut self, path: &str, root: &Section) {
        let mut inside = "stage: 3,".to_owned();
        let (section, _) = split(path);
        if let Some(entry) = root.find(section)
            && let Some(section) = &entry.section
        {
            inside += &self.work[section.span.start + 1..section.span.end - 1];
            self.blank(entry.extent());
        }
        let open = match root.entries.last() {
            Some(last) if !last.comma && last.key != section => ", ",
            _ => "",
        };
        let close = root.span.end - 1;
        self.work.insert_str(close, &format!("{open}zero: ({inside})"));
    }
}

#[cfg(test)]
mod tests;
