//! Diagnostic: one mistake in a spec or an attribute, and the text that shows it. Never decides what is a mistake, and
//! never colours or prints.

mod codes;

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};

pub use codes::{CODES, Code, fill, find, nearest};

/// The candidate that `found` most likely misspells. As in rustc, at most a third of it may be wrong; case is ignored.
pub fn closest<'a>(found: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let found = found.to_lowercase();
    let (letters, most) = (found.chars().count(), |name: &str| name.len().max(3) / 3);
    candidates
        .into_iter()
        // The time and the memory of a comparison grow with both lengths, and a file may have a word of any length.
        .filter(|name| name.chars().count().abs_diff(letters) <= most(name))
        .map(|name| (strsim::damerau_levenshtein(&found, &name.to_lowercase()), name))
        .filter(|&(distance, name)| distance <= most(name))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, name)| name)
}

/// One mistake: what, where, expected and found, how to fix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// The stable code, `Z0107`; [`CODES`] explains each.
    pub code: &'static str,
    /// The key that is wrong: a dotted path such as `zero.prefetch`, or an attribute's option. Empty if it is not about
    /// a key.
    pub key: String,
    /// The mistake, in one line.
    pub message: String,
    /// Where: a byte range of the text. An attribute has no text, and so no range.
    pub span: Option<Range<usize>>,
    /// The label to show at that place, in a few words.
    pub label: String,
    /// A second place that explains the mistake, and its label.
    pub also: Option<(Range<usize>, String)>,
    /// How to fix it, where the label does not say so.
    pub help: Option<String>,
}

impl Diagnostic {
    /// A mistake without a place, a label or help.
    pub fn new(code: &'static str, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            code,
            key: key.into(),
            message: message.into(),
            span: None,
            label: String::new(),
            also: None,
            help: None,
        }
    }

    /// Sets its place, a byte range of the text, and a label to show there.
    pub fn at(mut self, span: Range<usize>, label: impl Into<String>) -> Self {
        self.span = Some(span);
        self.label = label.into();
        self
    }

    /// Adds how to fix it.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The mistake as rustc would show it: several lines of plain text without a newline at the end. Spans are ranges
    /// of `text`, which is shown under the name `file`.
    pub fn render(&self, file: &str, text: &str) -> String {
        let title = Level::ERROR.primary_title(&self.message).id(self.code);
        let mut group = Group::with_title(title);
        group = match &self.span {
            None => {
                let label = Some(&self.label).filter(|label| !label.is_empty());
                let note = label.map(|label| Level::NOTE.message(label));
                group.element(Origin::path(file)).elements(note)
            }
            Some(span) => {
                let primary = AnnotationKind::Primary.span(span.clone());
                let snippet = Snippet::source(text).path(file);
                let snippet = snippet.annotation(primary.label(&self.label));
                let also = self.also.iter();
                group.element(snippet.annotations(
                    also.map(|(span, label)| AnnotationKind::Context.span(span.clone()).label(label.as_str())),
                ))
            }
        };
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help));
        }
        Renderer::plain().render(&[group])
    }
}

/// The line and the column of a byte offset. Both count from 1, and columns are characters. An offset past the end
/// counts as the end.
pub fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..text.floor_char_boundary(offset)];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = 1 + before.matches('\n').count();
    (line, 1 + before[line_start..].chars().count())
}

/// The byte offset of a line and a column, as [`line_column`] counts them. A place past the end counts as the end.
pub fn offset(text: &str, line: usize, column: usize) -> usize {
    let mut lines = text.split_inclusive('\n');
    let line_start: usize = lines.by_ref().take(line - 1).map(str::len).sum();
    let line = lines.next().unwrap_or("");
    let within = line.char_indices().nth(column - 1);
    line_start + within.map_or(line.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_as_rustc_does() {
        let text = "(\n    mesh: (zero: 2),\n\n    zero: (stage: 3, prefech: 2),\n)\n";
        let span = text.find("prefech").unwrap();
        let diagnostic = Diagnostic::new("Z0107", "zero.prefech", "unknown key `prefech` in `zero`")
            .at(span..span + 7, "did you mean `prefetch`?")
            .help("`zero` takes `stage`");
        assert_eq!(
            diagnostic.render("specs/zero3.ron", text),
            "\
error[Z0107]: unknown key `prefech` in `zero`
 --> specs/zero3.ron:4:22
  |
4 |     zero: (stage: 3, prefech: 2),
  |                      ^^^^^^^ did you mean `prefetch`?
  |
  = help: `zero` takes `stage`"
        );
    }

    #[test]
    fn renders_without_a_place() {
        let mut diagnostic = Diagnostic::new("Z0110", "", "not a struct").help("write a struct");
        diagnostic.label = "this is an enum".to_owned();
        assert_eq!(
            diagnostic.render("src/main.rs", ""),
            "error[Z0110]: not a struct\n--> src/main.rs\n = note: this is an enum\n = help: write a struct"
        );
    }

    #[test]
    fn columns_are_characters() {
        let text = "a\n\"é\" x\r\n";
        let x = text.find('x').unwrap();
        assert_eq!(line_column(text, x), (2, 5));
        assert_eq!(line_column(text, 0), (1, 1));
        assert_eq!(line_column(text, 999), (3, 1));
        assert_eq!(line_column(text, 4), (2, 2), "in the middle of a character");
    }

    #[test]
    fn offset_undoes_line_column() {
        let text = "a\n\"é\" x\n\n\nb";
        for (at, _) in text.char_indices().chain([(text.len(), ' ')]) {
            let (line, column) = line_column(text, at);
            assert_eq!(offset(text, line, column), at);
        }
        assert_eq!(offset(text, 9, 9), text.len());
    }
}
