//! Locate: where the keys and values lie in RON text, because values read by `ron` carry no positions. Reads any RON
//! text and returns nothing for any other; never says what is wrong with it.

use std::ops::Range;

use super::tokens::{Token, TokenKind, tokens};

/// Where a key and its value lie: byte ranges of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySpans {
    /// The key alone, without a raw name's `r#`.
    pub key: Range<usize>,
    /// The value, from its first to its last token.
    pub value: Range<usize>,
}

/// Finds a dotted path such as `zero.prefetch` in the text; for a duplicate key, the first.
pub fn locate(text: &str, path: &str) -> Option<KeySpans> {
    let root = root(text)?;
    let entry = root.find(path)?;
    Some(entry.spans.clone())
}

/// Where the items of the list in a value lie: names, numbers and quoted texts after its first `[`.
pub(super) fn items(text: &str, value: &Range<usize>) -> Vec<Range<usize>> {
    let spans = tokens(&text[value.clone()]);
    let list = spans.into_iter().skip_while(|token| token.kind != TokenKind::Mark(b'['));
    list.filter(|token| !matches!(token.kind, TokenKind::Mark(_)))
        .map(|token| value.start + token.span.start..value.start + token.span.end)
        .collect()
}

/// A parenthesised group of `key: value` entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Section {
    /// The name in front of the parenthesis.
    pub name: Option<String>,
    /// From the opening to the closing parenthesis, both included.
    pub span: Range<usize>,
    /// The quoted text in front of the entries, as in `Example("gpt", size: "2M")`, without the comma.
    pub leading: Option<Range<usize>>,
    pub entries: Vec<KeyValue>,
}

/// One `key: value` of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyValue {
    pub key: String,
    pub spans: KeySpans,
    /// The value, if it is a section itself.
    pub section: Option<Section>,
}

impl Section {
    /// The first entry at a dotted path.
    pub fn find(&self, path: &str) -> Option<&KeyValue> {
        let (first, rest) = match path.split_once('.') {
            Some((first, rest)) => (first, Some(rest)),
            None => (path, None),
        };
        let entry = self.entries.iter().find(|entry| entry.key == first)?;
        match rest {
            Some(rest) => entry.section.as_ref()?.find(rest),
            None => Some(entry),
        }
    }
}

/// The whole text as a section; none if it is something else.
pub(super) fn root(text: &str) -> Option<Section> {
    let tokens = tokens(text);
    let mut cursor = TokenCursor { text, rest: &tokens, depth: 0 };
    while cursor.peek(0) == Some(TokenKind::Mark(b'#')) {
        cursor.skip_past(b']');
    }
    cursor.value()?.1
}

/// The deepest nesting of sections, which is deeper than `ron` reads. Without a limit, a text could overflow the stack.
const DEPTH_MAX: usize = 256;

/// The tokens that have not been read yet.
struct TokenCursor<'t> {
    text: &'t str,
    rest: &'t [Token],
    /// Sections around them.
    depth: usize,
}

impl<'t> TokenCursor<'t> {
    fn peek(&self, ahead: usize) -> Option<TokenKind> {
        self.rest.get(ahead).map(|token| token.kind)
    }

    fn next(&mut self) -> Option<&'t Token> {
        let (token, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(token)
    }

    fn next_if(&mut self, wanted: bool) -> Option<&'t Token> {
        if wanted { self.next() } else { None }
    }

    fn skip_past(&mut self, mark: u8) {
        while let Some(token) = self.next() {
            if token.kind == TokenKind::Mark(mark) {
                break;
            }
        }
    }

    /// A value: its span, and its entries if it is a section, named or not.
    fn value(&mut self) -> Option<(Range<usize>, Option<Section>)> {
        let start = self.rest.first()?.span.start;
        let named = self.peek(0) == Some(TokenKind::Word) && self.peek(1) == Some(TokenKind::Mark(b'('));
        let name = self.next_if(named).map(|name| self.text[name.span.clone()].to_owned());
        let keyed_from =
            |at: usize| [at, at + 1].map(|at| self.peek(at)) == [TokenKind::Word, TokenKind::Mark(b':')].map(Some);
        let led = [1, 2].map(|at| self.peek(at)) == [TokenKind::Quoted, TokenKind::Mark(b',')].map(Some);
        let keyed = keyed_from(1) || led && keyed_from(3);
        let empty = self.peek(1) == Some(TokenKind::Mark(b')'));
        if self.peek(0) == Some(TokenKind::Mark(b'(')) && (keyed || empty) {
            let section = Section { name, ..self.section()? };
            return Some((start..section.span.end, Some(section)));
        }
        Some((start..self.skip_value()?, None))
    }

    /// Skips a value that is not a section, and returns its end.
    fn skip_value(&mut self) -> Option<usize> {
        let (mut end, mut depth) = (None, 0);
        while let Some(kind) = self.peek(0) {
            match kind {
                TokenKind::Mark(b',' | b')' | b']' | b'}') if depth == 0 => break,
                TokenKind::Mark(b'(' | b'[' | b'{') => depth += 1,
                TokenKind::Mark(b')' | b']' | b'}') => depth -= 1,
                _ => {}
            }
            end = self.next().map(|token| token.span.end);
        }
        end
    }

    fn section(&mut self) -> Option<Section> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let start = self.next()?.span.start;
        let leading = self.next_if(self.peek(0) == Some(TokenKind::Quoted)).map(|text| text.span.clone());
        self.next_if(leading.is_some());
        let mut entries = Vec::new();
        while self.peek(0) == Some(TokenKind::Word) {
            entries.push(self.entry()?);
        }
        self.depth -= 1;
        let close = self.next()?;
        let span = start..close.span.end;
        (close.kind == TokenKind::Mark(b')')).then_some(Section { name: None, span, leading, entries })
    }

    fn entry(&mut self) -> Option<KeyValue> {
        let Range { start, end } = self.next()?.span.clone();
        let raw = self.text[start..end].strip_prefix("r#");
        let key = end - raw.map_or(end - start, str::len)..end;
        if self.next()?.kind != TokenKind::Mark(b':') {
            return None;
        }
        let (value, section) = self.value()?;
        self.next_if(self.peek(0) == Some(TokenKind::Mark(b',')));
        Some(KeyValue { key: self.text[key.clone()].to_owned(), spans: KeySpans { key, value }, section })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r##"// zero: (stage: 1)
#![enable(implicit_some)]
Spec(
    model: Example("zero: (stage: 0)"), /* mesh: /* x: */ (zero: 9) */
    name: r#"a ")" b"#,
    mesh: Mesh (zero: 2, ),
    r#zero: (
        stage: 3, // the last ) of all
        bucket: MiB (25)
    ),
    list: [(stage: 7), {"a": 1}], empty: (),
)"##;

    fn at<'t>(text: &'t str, path: &str) -> Option<(&'t str, &'t str)> {
        let spans = locate(text, path)?;
        Some((&text[spans.key], &text[spans.value]))
    }

    #[test]
    fn finds_keys_past_comments_strings_and_nesting() {
        assert_eq!(at(TEXT, "zero.stage"), Some(("stage", "3")));
        assert_eq!(at(TEXT, "zero.bucket"), Some(("bucket", "MiB (25)")));
        assert_eq!(at(TEXT, "mesh.zero"), Some(("zero", "2")));
        assert_eq!(at(TEXT, "mesh"), Some(("mesh", "Mesh (zero: 2, )")));
        assert_eq!(at(TEXT, "name"), Some(("name", r##"r#"a ")" b"#"##)));
        assert_eq!(at(TEXT, "list"), Some(("list", r#"[(stage: 7), {"a": 1}]"#)));
        assert_eq!(at(TEXT, "empty"), Some(("empty", "()")));
    }

    #[test]
    fn finds_nothing_where_there_is_nothing() {
        for path in ["", "stage", "zero.zero", "list.stage", "zero.stage.x", "model.zero"] {
            assert_eq!(at(TEXT, path), None, "{path}");
        }
        for text in ["", "(", "(zero", "(zero:", "(zero: (", "(zero: (stage: 3)", "3", ")", "(zero: )"] {
            assert_eq!(at(text, "zero.stage"), None, "{text}");
        }
    }

    #[test]
    fn items_of_a_list_have_places() {
        let text = r#"(a: Split([3, /* 9, */ 4]), b: Fields(["x, y", "z"]), c: None)"#;
        let shown = |path| items(text, &locate(text, path).unwrap().value).into_iter().map(|item| &text[item]);
        assert_eq!(shown("a").collect::<Vec<_>>(), ["3", "4"]);
        assert_eq!(shown("b").collect::<Vec<_>>(), [r#""x, y""#, r#""z""#]);
        assert_eq!(shown("c").count(), 0);
    }

    #[test]
    fn of_a_duplicate_key_the_first_is_found() {
        let text = "(a: 1, a: 2)";
        assert_eq!(locate(text, "a").map(|spans| spans.value), Some(4..5));
    }
}
