//! Tokens: cuts RON text into words, quoted texts and punctuation, each with its place. Drops blanks and comments.
//! Never judges the text: a comment or quoted text that is not closed extends to the end.

use std::ops::Range;

/// The kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A name or a number: letters, digits, `_`, `.`, `+`, `-`, and the `r#` of a raw name.
    Word,
    /// A string, byte string or character, in any of its forms.
    Quoted,
    /// Any other character.
    Mark(u8),
}

/// A token and its byte range in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub kind: TokenKind,
    pub span: Range<usize>,
}

/// The tokens of `text`, in order.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let rest = &text[start..];
        let (kind, len) = next(rest);
        if let Some(kind) = kind {
            let span = start..start + len;
            tokens.push(Token { kind, span });
        }
        start += len;
    }
    tokens
}

/// The kind (none for blanks and comments) and the length in bytes, never zero, of the token that `rest` starts with.
fn next(rest: &str) -> (Option<TokenKind>, usize) {
    if rest.starts_with("//") {
        return (None, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (None, block_comment(rest));
    }
    if let Some(len) = quoted(rest) {
        return (Some(TokenKind::Quoted), len);
    }
    let prefix = if rest.starts_with("r#") { 2 } else { 0 };
    let word = rest[prefix..].find(|c| !in_word(c)).unwrap_or(rest.len() - prefix);
    if word > 0 {
        return (Some(TokenKind::Word), prefix + word);
    }
    match rest.chars().next() {
        Some(c) if c.is_ascii() && !c.is_whitespace() => (Some(TokenKind::Mark(c as u8)), 1),
        c => (None, c.map_or(1, char::len_utf8)),
    }
}

fn in_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '+' | '-')
}

/// The length of the block comment at the start of `rest`, including those nested in it.
fn block_comment(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let (mut at, mut depth) = (0, 0);
    while at < bytes.len() {
        match &bytes[at..bytes.len().min(at + 2)] {
            b"/*" => (at, depth) = (at + 2, depth + 1),
            b"*/" => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The length of the string or character at the start of `rest`, if one starts there.
fn quoted(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('b').unwrap_or(rest);
    let prefix = rest.len() - body.len();
    let (prefix, close) = match body.as_bytes() {
        [b'"', ..] => return Some(prefix + escaped(body, b'"')),
        [b'\'', ..] => return Some(prefix + escaped(body, b'\'')),
        [b'r', raw @ ..] => {
            let hashes = raw.iter().take_while(|byte| **byte == b'#').count();
            if raw.get(hashes) != Some(&b'"') {
                return None;
            }
            (prefix + 1 + hashes + 1, format!("\"{}", "#".repeat(hashes)))
        }
        _ => return None,
    };
    let end = rest[prefix..].find(&close);
    Some(end.map_or(rest.len(), |end| prefix + end + close.len()))
}

/// The length of the quoted text at the start of `body`, in which a backslash escapes the next byte.
fn escaped(body: &str, quote: u8) -> usize {
    let bytes = body.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    body.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        let spans = tokens(text).into_iter().map(|token| token.span);
        spans.map(|span| &text[span]).collect()
    }

    #[test]
    fn comments_and_blanks_are_dropped() {
        assert_eq!(words("a // b\n /* c /* d */ e */ f"), ["a", "f"]);
        assert_eq!(words("a /* never closed /* "), ["a"]);
        assert_eq!(words("a\u{a0}\u{2003}b"), ["a", "b"]);
    }

    #[test]
    fn quoted_texts_hide_what_is_in_them() {
        assert_eq!(words(r#"x: "a \" ) // b", y"#), ["x", ":", r#""a \" ) // b""#, ",", "y"]);
        assert_eq!(words(r##"r#"a " \"# ,"##), [r##"r#"a " \"#"##, ","]);
        assert_eq!(words(r"'\'' b'(' ')'"), [r"'\''", "b'('", "')'"]);
        assert_eq!(words("br\"(\" b\"(\""), ["br\"(\"", "b\"(\""]);
        assert_eq!(words("\"never closed ("), ["\"never closed ("]);
        assert_eq!(words("\"cut\\"), ["\"cut\\"]);
    }

    #[test]
    fn words_are_names_and_numbers() {
        assert_eq!(words("r#zero:-1.5e+3,MiB(2)"), ["r#zero", ":", "-1.5e+3", ",", "MiB", "(", "2", ")"]);
        assert_eq!(words("größe ⊕ r#"), ["größe", "r", "#"]);
    }
}
