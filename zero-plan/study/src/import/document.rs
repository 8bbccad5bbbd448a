//! Document: JSON or YAML as a tree whose keys and values have positions. JSON is YAML, so one parser reads both. Never
//! knows the meaning of a key.

use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};
use zero_plan::diagnostic::{Diagnostic, offset};

/// The deepest nesting of values.
const DEPTH_MAX: usize = 32;

/// A value, and its place: a range of bytes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DocumentNode {
    pub at: Range<usize>,
    pub value: DocumentValue,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum DocumentValue {
    Null,
    Flag(bool),
    Number(f64),
    Text(String),
    List(Vec<DocumentNode>),
    Map(Vec<DocumentEntry>),
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DocumentEntry {
    pub key: String,
    pub at: Range<usize>,
    pub node: DocumentNode,
}

impl DocumentNode {
    /// The entries of a map; none for any other value.
    pub fn entries(&self) -> &[DocumentEntry] {
        match &self.value {
            DocumentValue::Map(entries) => entries,
            _ => &[],
        }
    }
}

/// Reads the only document of a text, which must be a map.
pub(super) fn read(text: &str) -> Result<DocumentNode, Box<Diagnostic>> {
    if text.trim_start().starts_with('{') {
        serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|error| {
            let at = offset(text, error.line().max(1), error.column().max(1));
            wrong(text, at, "the JSON cannot be read", &error.to_string())
        })?;
    }
    let mut reader = DocumentReader { places: CharacterOffsets::of(text), open: Vec::new(), root: None };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| reader.unreadable(text, &error))?;
        reader.take(text, event, span)?;
    }
    let root = reader.root.filter(|root| matches!(root.value, DocumentValue::Map(_)));
    root.ok_or_else(|| wrong(text, 0, "this is not a configuration", "it has no keys"))
}

fn wrong(text: &str, at: usize, what: &str, why: &str) -> Box<Diagnostic> {
    let at = text.floor_char_boundary(at.min(text.len()));
    let width = text[at..].chars().next().map_or(0, char::len_utf8);
    // The parser's message ends with the place, which the diagnostic shows by itself.
    let why = why.split(" at line ").next().unwrap_or(why);
    let problem = Diagnostic::new("Z0154", "", format!("{what}: {why}")).at(at..at + width, "reading stops here");
    Box::new(problem.help("a configuration is DeepSpeed's JSON, or the YAML that `accelerate config` writes"))
}

/// Byte offsets of characters, because the parser counts characters.
struct CharacterOffsets(Vec<usize>);

impl CharacterOffsets {
    fn of(text: &str) -> Self {
        Self(text.char_indices().map(|(at, _)| at).chain([text.len()]).collect())
    }

    fn byte(&self, index: usize) -> usize {
        self.0[index.min(self.0.len() - 1)]
    }

    fn range(&self, span: Span) -> Range<usize> {
        self.byte(span.start.index())..self.byte(span.end.index())
    }
}

/// A list or map that has not ended.
struct Open {
    start: usize,
    holds: Holds,
}

enum Holds {
    List(Vec<DocumentNode>),
    /// Entries, and the key whose value comes next.
    Map(Vec<DocumentEntry>, Option<(String, Range<usize>)>),
}

struct DocumentReader {
    places: CharacterOffsets,
    open: Vec<Open>,
    root: Option<DocumentNode>,
}

impl DocumentReader {
    fn unreadable(&self, text: &str, error: &ScanError) -> Box<Diagnostic> {
        wrong(text, self.places.byte(error.marker().index()), "the YAML cannot be read", error.info())
    }

    fn take(&mut self, text: &str, event: Event, span: Span) -> Result<(), Box<Diagnostic>> {
        let at = self.places.range(span);
        if self.open.len() > DEPTH_MAX {
            return Err(wrong(text, at.start, "the file cannot be read", "it nests too deep"));
        }
        match event {
            Event::Alias(_) => {
                return Err(wrong(text, at.start, "the file cannot be read", "an alias refers to another place"));
            }
            Event::DocumentStart(_) if self.root.is_some() => {
                return Err(wrong(text, at.start, "the file cannot be read", "it has several documents"));
            }
            Event::SequenceStart(..) => self.open.push(Open { start: at.start, holds: Holds::List(Vec::new()) }),
            Event::MappingStart(..) => self.open.push(Open { start: at.start, holds: Holds::Map(Vec::new(), None) }),
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(Open { start, holds }) = self.open.pop() {
                    let value = match holds {
                        Holds::List(nodes) => DocumentValue::List(nodes),
                        Holds::Map(entries, _) => DocumentValue::Map(entries),
                    };
                    self.put(text, DocumentNode { at: start..at.end.max(start), value })?;
                }
            }
            Event::Scalar(scalar, style, ..) => {
                let value =
                    if style == ScalarStyle::Plain { plain(&scalar) } else { DocumentValue::Text(scalar.into_owned()) };
                self.put(text, DocumentNode { at, value })?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Puts a complete value into the list or map that it belongs to.
    fn put(&mut self, text: &str, node: DocumentNode) -> Result<(), Box<Diagnostic>> {
        match self.open.last_mut().map(|open| &mut open.holds) {
            None => self.root = Some(node),
            Some(Holds::List(nodes)) => nodes.push(node),
            Some(Holds::Map(entries, key)) => match key.take() {
                Some((key, at)) => entries.push(DocumentEntry { key, at, node }),
                None => {
                    let name = match node.value {
                        DocumentValue::Text(name) => name,
                        _ => text[node.at.clone()].to_owned(),
                    };
                    if let Some(first) = entries.iter().find(|entry| entry.key == name) {
                        return Err(Box::new(duplicate(&name, first.at.clone(), node.at)));
                    }
                    *key = Some((name, node.at));
                }
            },
        }
        Ok(())
    }
}

fn duplicate(key: &str, first: Range<usize>, second: Range<usize>) -> Diagnostic {
    let problem = Diagnostic::new("Z0154", key, format!("duplicate key `{key}`"));
    let mut problem = problem.at(second, "given again").help("remove one of the two");
    problem.also = Some((first, "first given here".to_owned()));
    problem
}

/// A scalar without quotes.
fn plain(scalar: &str) -> DocumentValue {
    match scalar {
        "" | "~" | "null" | "Null" | "NULL" => DocumentValue::Null,
        "true" | "True" | "TRUE" => DocumentValue::Flag(true),
        "false" | "False" | "FALSE" => DocumentValue::Flag(false),
        _ => match scalar.parse() {
            Ok(number) if scalar.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first)) => {
                DocumentValue::Number(number)
            }
            _ => DocumentValue::Text(scalar.to_owned()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value<'n>(node: &'n DocumentNode, path: &str) -> &'n DocumentNode {
        path.split('.').fold(node, |node, key| &node.entries().iter().find(|entry| entry.key == key).unwrap().node)
    }

    #[test]
    fn json_and_yaml_give_the_same_values_with_their_places() {
        let json = "{\n\t\"a\": {\"b\": 5e8, \"c\": [1, \"x\"]},\n\t\"é\": \"auto\",\n\t\"d\": true, \"e\": null\n}\n";
        let yaml = "# a comment\na:\n  b: 5e8\n  c: [1, x]\n\"é\": 'auto'\nd: true\ne:\n";
        for text in [json, yaml] {
            let root = read(text).unwrap();
            let shown = |path| (value(&root, path).value.clone(), &text[value(&root, path).at.clone()]);
            assert_eq!(shown("a.b"), (DocumentValue::Number(5e8), "5e8"));
            assert_eq!(shown("é").0, DocumentValue::Text("auto".to_owned()));
            assert_eq!(shown("é").1.trim_matches(['"', '\'']), "auto");
            assert_eq!(root.entries()[1].key, "é", "without its quotes");
            assert_eq!(shown("d"), (DocumentValue::Flag(true), "true"));
            assert_eq!(shown("e").0, DocumentValue::Null);
            let DocumentValue::List(list) = shown("a.c").0 else { panic!("a list") };
            assert_eq!(
                list.iter().map(|node| &node.value).collect::<Vec<_>>(),
                [&DocumentValue::Number(1.0), &DocumentValue::Text("x".to_owned())]
            );
        }
    }

    #[test]
    fn z0154_configuration_that_is_not_understood() {
        let said = |text: &str| {
            let problem = read(text).expect_err(text);
            assert_eq!(problem.code, "Z0154");
            (zero_plan::diagnostic::line_column(text, problem.span.unwrap().start), problem.message)
        };
        let (at, what) = said("{\n  \"a\": 1,\n}\n");
        assert_eq!((at, what.as_str()), ((3, 1), "the JSON cannot be read: key must be a string"));
        let (at, what) = said("a: 1\nb: [1, 2\nc: 3\n");
        assert!(at.0 >= 2 && what.starts_with("the YAML cannot be read: "), "{at:?} {what}");
        assert_eq!(said("a: 1\na: 2\n"), ((2, 1), "duplicate key `a`".to_owned()));
        assert_eq!(said("{\"a\": {\"b\": 1, \"b\": 2}}"), ((1, 16), "duplicate key `b`".to_owned()));
        for text in ["", "3", "- a\n- b\n", "[1]"] {
            assert_eq!(said(text).1, "this is not a configuration: it has no keys", "{text}");
        }
        assert!(said("a: &x 1\nb: *x\n").1.contains("alias"));
        assert!(said("a: 1\n---\na: 2\n").1.contains("several documents"));
        assert!(said(&format!("a: {}", "[".repeat(100))).1.contains("nests too deep"));
        assert!(said(&format!("a: {}", "[".repeat(100_000))).1.starts_with("the YAML cannot be read: "));
    }
}
