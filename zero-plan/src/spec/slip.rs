//! Slip: what a text that is not RON was most likely meant to be, and how to write that in RON. Never decides that a
//! text is not RON, and returns nothing if it could only guess.

use std::ops::Range;

use super::tokens::{Token, TokenKind, tokens};
use crate::diagnostic::line_column;

/// A spec to copy from.
pub(super) const EXAMPLE: &str =
    "a spec is RON, such as `(model: Example(\"gpt\"), mesh: (zero: 2), zero: (stage: 3))`";

/// The mistake; the text follows "the spec cannot be read: ".
pub(super) struct Slip {
    pub span: Range<usize>,
    pub what: String,
    pub label: &'static str,
    pub help: String,
}

/// The other format that the text is in, and the first line that shows it.
pub(super) fn other_format(text: &str) -> Option<(&'static str, Range<usize>)> {
    let is_comment =
        |line: &str| line.is_empty() || line.starts_with("//") || line.starts_with('#') && !line.starts_with("#!");
    let line = text.lines().map(str::trim).find(|line| !is_comment(line))?;
    let start = line.as_ptr() as usize - text.as_ptr() as usize;
    let word = line.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))).unwrap_or(line.len());
    let rest = line[word..].trim_start();
    let format = match line.chars().next()? {
        '{' => "JSON",
        '[' if line.ends_with(']')
            && line.trim_matches(['[', ']']).chars().all(|c| c.is_alphanumeric() || "_.-".contains(c)) =>
        {
            "TOML"
        }
        '[' => "JSON",
        '<' => "XML",
        '-' if line.starts_with("---") || line.starts_with("- ") => "YAML",
        '%' => "YAML",
        _ if word > 0 && rest.starts_with('=') => "TOML",
        // Followed by a parenthesis, it is RON that lacks its own parentheses.
        _ if word > 0 && rest.starts_with(':') && !rest[1..].trim_start().starts_with('(') => "YAML",
        _ => return None,
    };
    Some((format, start..start + line.len()))
}

/// The slip that stopped the reading of the text at `at`.
pub(super) fn find(text: &str, at: usize) -> Option<Slip> {
    let tokens = tokens(text);
    let here = tokens.iter().position(|token| token.span.end > at).unwrap_or(tokens.len());
    let stop = ReadingStop { text, tokens: &tokens, here };
    stop.outside().or_else(|| stop.quoted()).or_else(|| stop.amount()).or_else(|| stop.mark()).or_else(|| stop.entry())
}

/// The correct form of a name or number like `1F1B` or `25MiB`, or of two like `25 MiB`.
pub(super) fn amount(value: &str) -> Option<String> {
    let tokens = tokens(value);
    (0..tokens.len()).find_map(|here| ReadingStop { text: value, tokens: &tokens, here }.amount()).map(|slip| slip.help)
}

/// The place where reading stopped: at the token of that index, or past all of them.
struct ReadingStop<'t> {
    text: &'t str,
    tokens: &'t [Token],
    here: usize,
}

impl ReadingStop<'_> {
    /// The text of the token that is `ahead` tokens after the one where reading stopped.
    fn text(&self, ahead: isize) -> &str {
        self.token(ahead).map_or("", |token| &self.text[token.span.clone()])
    }

    fn token(&self, ahead: isize) -> Option<&Token> {
        self.tokens.get(self.here.checked_add_signed(ahead)?)
    }

    fn is_word(&self, ahead: isize) -> bool {
        self.token(ahead).is_some_and(|token| token.kind == TokenKind::Word)
    }

    /// A slip at a token, or at the end if there is no such token.
    fn at(&self, ahead: isize, what: impl Into<String>, help: impl Into<String>) -> Option<Slip> {
        let end = self.text.len();
        let span = self.token(ahead).map_or(end..end, |token| token.span.clone());
        Some(Slip { span, what: what.into(), label: "reading stops here", help: help.into() })
    }

    /// A slip outside the parentheses of the spec itself.
    fn outside(&self) -> Option<Slip> {
        if self.tokens.is_empty() {
            return self.at(0, "it is empty", EXAMPLE);
        }
        if self.here == 1 && self.is_word(-1) && self.text(0) == ":" {
            let what = "the parentheses around it are missing";
            return self.at(-1, what, format!("write `({}: ...)`: {EXAMPLE}", self.text(-1)));
        }
        let mut open = Vec::new();
        for (index, token) in self.tokens[..self.here].iter().enumerate() {
            match token.kind {
                TokenKind::Mark(b'(' | b'[' | b'{') => open.push(index),
                TokenKind::Mark(b')' | b']' | b'}') => _ = open.pop(),
                _ => {}
            }
        }
        let ends = matches!(self.text(-1), ")" | "]" | "}") && open.is_empty();
        match (self.text(0), open.last()) {
            ("", Some(unclosed)) => {
                let Range { start, end } = self.tokens[*unclosed].span.clone();
                let (line, column) = line_column(self.text, start);
                let help = format!("close the one at {line}:{column}, or one after it that should be closed too");
                let slip = self.at(0, format!("a `{}` is never closed", &self.text[start..end]), help)?;
                Some(Slip { label: "the text ends here", ..slip })
            }
            (mark @ (")" | "]" | "}"), None) if ends => {
                self.at(0, format!("this `{mark}` closes nothing"), "remove it, or open what it closes")
            }
            (found, None) if ends && !found.is_empty() => {
                let help = "a spec is one pair of parentheses: put all sections inside of it, with commas between them";
                self.at(0, "something follows the end of the spec", help)
            }
            _ => None,
        }
    }

    /// Quotes of another kind, quotes without an end, or quotes around a key.
    fn quoted(&self) -> Option<Slip> {
        let is_quoted = |ahead| self.token(ahead).is_some_and(|token| token.kind == TokenKind::Quoted);
        let bare = |quoted: &str| quoted.trim_matches(['"', '\'']).to_owned();
        if is_quoted(-1) && self.text(0) == ":" || is_quoted(0) && self.text(1) == ":" {
            let key = if is_quoted(0) { 0 } else { -1 };
            return self.at(key, "a key in quotes", format!("write it without them: `{}: ...`", bare(self.text(key))));
        }
        if !is_quoted(0) {
            return None;
        }
        let quoted = self.text(0);
        let closed = quoted.len() > 1 && quoted.ends_with(&quoted[..1]);
        if quoted.starts_with('\'') && closed {
            return self.at(0, "a text in single quotes", format!("write `\"{}\"`", bare(quoted)));
        }
        if closed {
            return None;
        }
        let start = self.token(0)?.span.start;
        let mut slip = self.at(0, "a text in quotes is never closed", "close it on its own line")?;
        (slip.span, slip.label) = (start..start + 1, "it begins here");
        Some(slip)
    }

    /// A number with letters: `1F1B`, or a size as people often write it.
    fn amount(&self) -> Option<Slip> {
        let (found, other) = (self.text(0), self.text(-1));
        if found.eq_ignore_ascii_case("1F1B") {
            return self.at(0, format!("`{found}` is not a name"), "write `OneFOneB`: RON names begin with a letter");
        }
        let digits = found.find(|c: char| !c.is_ascii_digit()).unwrap_or(found.len());
        let (number, unit, from) = match found.split_at(digits) {
            ("", unit) => (other, unit, -1),
            (number, "") => (number, other, -1),
            (number, unit) => (number, unit, 0),
        };
        let unit = super::Size::UNITS.iter().find(|known| known.eq_ignore_ascii_case(unit))?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| self.at(from, "a unit after its number", format!("write `{unit}({number})`")))?
    }

    /// Punctuation of other formats.
    fn mark(&self) -> Option<Slip> {
        match self.text(0) {
            "=" if self.is_word(-1) => {
                let help =
                    format!("a key and its value have a colon between them: `{}: {}`", self.text(-1), self.text(1));
                self.at(0, "`=` after a key", help)
            }
            ";" => self.at(0, "`;` between entries", "write `,`"),
            ":" if self.is_word(-1) && self.text(-2) == "[" => {
                let help = format!("a section is in parentheses: `({}: ...)`", self.text(-1));
                self.at(-2, "`[` around a section", help)
            }
            "#" => self.at(0, "`#` does not begin a comment", "begin a comment with `//`"),
            word if word.starts_with("--") => {
                self.at(0, format!("`{word}` does not begin a comment"), "begin a comment with `//`")
            }
            "," if matches!(self.text(-1), "," | "(") => {
                self.at(0, "a comma without an entry before it", "remove it, or write the entry")
            }
            ")" | "," if self.text(-1) == ":" => {
                let key = self.text(-2);
                self.at(0, format!("`{key}` has no value"), format!("write one, or remove `{key}:`"))
            }
            _ => None,
        }
    }

    /// Something missing between two words.
    fn entry(&self) -> Option<Slip> {
        let (before, found) = (self.text(-1), self.text(0));
        if matches!(before, "(" | ",") && found.starts_with(|c: char| c.is_ascii_digit()) {
            return self.at(0, format!("`{found}` is not an entry"), "an entry is a key, `:` and a value: `stage: 3`");
        }
        if self.is_word(0) && self.text(1) == ":" && !matches!(before, "," | "(" | "[" | "{" | "" | ":") {
            return self.at(0, format!("a comma is missing before `{found}`"), "write `,` after the entry before it");
        }
        let begins = matches!(self.text(-2), "(" | ",");
        if self.is_word(-1) && begins && !matches!(found, ":" | ")" | "," | "") {
            let what = format!("a colon is missing after `{before}`");
            return self.at(0, what, format!("write `{before}: ...`"));
        }
        if self.is_word(-1) && self.text(-2) == ":" && before.starts_with(|c: char| c.is_ascii_uppercase()) {
            let closing = if found == "[" { "[...]" } else { found };
            return self.at(
                0,
                format!("parentheses are missing after `{before}`"),
                format!("write `{before}({closing})`"),
            );
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    /// The diagnostic of a text that is not RON: the text it points at, the message and the help.
    fn said(text: &str) -> (String, String, String) {
        let problems = parse(text).expect_err(text);
        assert_eq!(problems.len(), 1, "{text}: {problems:#?}");
        assert_eq!(problems[0].code, "Z0101", "{text}: {problems:#?}");
        let what = problems[0].message.strip_prefix("the spec cannot be read: ").unwrap().to_owned();
        (text[problems[0].span.clone().unwrap()].to_owned(), what, problems[0].help.clone().unwrap())
    }

    #[test]
    fn z0101_says_how_ron_writes_it() {
        for (text, at, what, help) in [
            (
                "(zero: (stage = 3))",
                "=",
                "`=` after a key",
                "a key and its value have a colon between them: `stage: 3`",
            ),
            ("(zero: [stage: 3])", "[", "`[` around a section", "a section is in parentheses: `(stage: ...)`"),
            ("(3)", "3", "`3` is not an entry", "an entry is a key, `:` and a value: `stage: 3`"),
            ("(zero: (stage: 3) /* x", "", "unclosed block comment", EXAMPLE),
            ("(zero: (stage 3))", "3", "a colon is missing after `stage`", "write `stage: ...`"),
            (
                "(zero: (stage: 3) mesh: ())",
                "mesh",
                "a comma is missing before `mesh`",
                "write `,` after the entry before it",
            ),
            ("(zero: (stage: 3); mesh: ())", ";", "`;` between entries", "write `,`"),
            ("(zero: (stage: 3) # x\n)", "#", "`#` does not begin a comment", "begin a comment with `//`"),
            ("(zero: (stage: 3), -- x\n)", "--", "`--` does not begin a comment", "begin a comment with `//`"),
            (
                "(zero: (stage: 3),, mesh: ())",
                ",",
                "a comma without an entry before it",
                "remove it, or write the entry",
            ),
            ("(zero: (stage: ))", ")", "`stage` has no value", "write one, or remove `stage:`"),
            ("(\"zero\": (stage: 3))", "\"zero\"", "a key in quotes", "write it without them: `zero: ...`"),
            ("(zero: (stage: 3), 'mesh': ())", "'mesh'", "a key in quotes", "write it without them: `mesh: ...`"),
            ("(model: Example('gpt'))", "'gpt'", "a text in single quotes", "write `\"gpt\"`"),
            ("(model: Example(\"gpt), x: 1)", "\"", "a text in quotes is never closed", "close it on its own line"),
            ("(memory: GiB 1)", "GiB", "a unit after its number", "write `GiB(1)`"),
            ("(memory: 25mib)", "25mib", "a unit after its number", "write `MiB(25)`"),
            ("(memory: 25 MB)", "25", "a unit after its number", "write `MB(25)`"),
            ("(recompute: Every 2)", "2", "parentheses are missing after `Every`", "write `Every(2)`"),
            (
                "(pipeline: (schedule: 1F1B))",
                "1F1B",
                "`1F1B` is not a name",
                "write `OneFOneB`: RON names begin with a letter",
            ),
            ("(zero: (stage: 3)))", ")", "this `)` closes nothing", "remove it, or open what it closes"),
        ] {
            let expected = (at.to_owned(), what.to_owned(), help.to_owned());
            assert_eq!(said(text), expected, "{text}");
        }
    }

    #[test]
    fn what_lies_around_a_spec_is_found() {
        let (_, what, help) = said("(\n  zero: (stage: 3)\n");
        assert_eq!((what.as_str(), help.starts_with("close the one at 1:1, or")), ("a `(` is never closed", true));
        assert_eq!(said("zero: (stage: 3)").1, "the parentheses around it are missing");
        for text in ["(zero: (stage: 3)), (mesh: ())", "(zero: (stage: 3));", "(zero: (stage: 3)) x"] {
            assert_eq!(said(text).1, "something follows the end of the spec", "{text}");
        }
        for text in ["", " // nothing\n"] {
            assert_eq!(said(text).1, "it is empty");
        }
        for text in ["3", "\"zero3\"", "Plan(zero: (stage: 3))"] {
            assert_eq!(said(text).2, EXAMPLE, "{text}");
        }
    }

    #[test]
    fn z0117_another_format() {
        for (format, text) in [
            ("YAML", "zero:\n  stage: 3\n"),
            ("YAML", "# a comment\n---\nzero: {stage: 3}"),
            ("YAML", "stage: 3"),
            ("TOML", "[zero]\nstage = 3"),
            ("TOML", "\n[[zero.x]]"),
            ("TOML", "zero = { stage = 3 }"),
            ("JSON", "{\"zero\": {\"stage\": 3}}"),
            ("JSON", "{\n  zero: 3\n}"),
            ("JSON", "[{\"stage\": 3}]"),
            ("XML", "<spec/>"),
        ] {
            let problems = parse(text).expect_err(text);
            let found: Vec<_> = problems.iter().map(|problem| (problem.code, problem.message.as_str())).collect();
            assert_eq!(found, [("Z0117", format!("this looks like {format}, but a spec is RON").as_str())], "{text}");
            assert_eq!(problems[0].help.as_deref(), Some(EXAMPLE));
        }
        for ron in ["zero: (stage: 3)", "#![enable(implicit_some)]\n(zero: (stage: 4))", "(zero = 3)", "Spec(stage: 3)"]
        {
            assert_eq!(other_format(ron), None, "{ron}");
        }
    }

    #[test]
    fn z0119_nested_too_deep() {
        for deep in ["(", "[", "{\"a\": ", "Some(", "(a: ", "(a: (b: ["] {
            let problems = parse(&format!("(model: {}", deep.repeat(100_000))).unwrap_err();
            let found: Vec<_> = problems.iter().map(|problem| problem.code).collect();
            assert_eq!(found, ["Z0119"], "{deep}");
        }
        assert!(super::super::locate(&"(a: ".repeat(1_000_000), "a.a").is_none());
    }
}
