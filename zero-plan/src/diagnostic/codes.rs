//! Codes: the catalogue of all mistakes with a stable code, for people to look up. Never finds one.

mod build;
mod checkpoint;
mod choose;
mod cluster;
mod command;
mod cuda;
mod hardware;
mod input;
mod kit;
mod run;
mod see;
mod spec;
mod start;
mod structs;
mod tier;

use std::fmt;

use super::closest;

/// A kind of mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// The stable code: `Z0107`.
    pub code: &'static str,
    /// The mistake in a few words.
    pub title: &'static str,
    /// Why it is a mistake and what to do, in one paragraph.
    pub explanation: &'static str,
    /// A small input with this mistake and no other. If it begins with a parenthesis it is a spec; otherwise it is
    /// Rust, a command line, or a situation in words.
    pub example: &'static str,
}

/// All codes, in order.
pub const CODES: &[Code] = &all();

const PARTS: [&[Code]; 15] = [
    spec::CODES,
    command::CODES,
    structs::CODES,
    kit::CODES,
    choose::CODES,
    see::CODES,
    hardware::CODES,
    build::CODES,
    start::CODES,
    input::CODES,
    checkpoint::CODES,
    tier::CODES,
    run::CODES,
    cuda::CODES,
    cluster::CODES,
];

const fn all() -> [Code; count()] {
    let mut codes = [spec::CODES[0]; count()];
    let (mut next, mut part) = (0, 0);
    while part < PARTS.len() {
        let mut i = 0;
        while i < PARTS[part].len() {
            codes[next] = PARTS[part][i];
            next += 1;
            i += 1;
        }
        part += 1;
    }
    codes
}

const fn count() -> usize {
    let (mut count, mut part) = (0, 0);
    while part < PARTS.len() {
        count += PARTS[part].len();
        part += 1;
    }
    count
}

/// The entry of a code, which may be in lower case.
pub fn find(code: &str) -> Option<&'static Code> {
    CODES.iter().find(|entry| entry.code.eq_ignore_ascii_case(code))
}

/// The code that was most likely meant by an unknown one.
pub fn nearest(code: &str) -> Option<&'static Code> {
    closest(code, CODES.iter().map(|entry| entry.code)).and_then(find)
}

/// The longest line of an explanation, in characters.
const LINE_CHARS_MAX: usize = 88;

/// A paragraph as lines that are short enough to read.
pub fn fill(text: &str) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let chars = word.chars().count();
        match column {
            0 => {}
            _ if column + 1 + chars <= LINE_CHARS_MAX => {
                lines.push(' ');
                column += 1;
            }
            _ => {
                lines.push('\n');
                column = 0;
            }
        }
        lines.push_str(word);
        column += chars;
    }
    lines
}

/// The whole entry as a page of plain text, the example last.
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}\n\n{}\n\nExample:\n", self.code, self.title, fill(self.explanation))?;
        self.example.lines().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::parse;

    #[test]
    fn codes_are_in_order_and_unique() {
        assert!(CODES.is_sorted_by(|one, next| one.code < next.code));
        let is_code =
            |code: &str| code.len() == 5 && code.starts_with("Z0") && code[2..].bytes().all(|b| b.is_ascii_digit());
        assert!(CODES.iter().all(|code| is_code(code.code)));
    }

    #[test]
    fn each_example_holds_its_mistake_and_no_other() {
        let is_spec = |code: &&Code| code.example.starts_with('(');
        for code in CODES.iter().filter(is_spec) {
            let problems = parse(code.example).expect_err(code.code);
            let found: Vec<_> = problems.iter().map(|problem| problem.code).collect();
            assert_eq!(found, [code.code]);
        }
        let of_specs = CODES.iter().filter(|code| code.code < "Z0116" && !["Z0109", "Z0110"].contains(&code.code));
        assert!(of_specs.clone().count() >= 13 && of_specs.clone().all(|code| is_spec(&code)));
    }

    #[test]
    fn every_entry_says_something() {
        for Code { code, title, explanation, example } in CODES {
            assert!(!title.is_empty() && !title.ends_with('.'), "{code}");
            assert!(explanation.ends_with('.') && explanation.len() > title.len(), "{code}");
            assert!(!explanation.contains("  ") && !explanation.contains('\n'), "{code}");
            assert!(!example.is_empty(), "{code}");
        }
    }

    #[test]
    fn codes_are_found() {
        assert_eq!(find("z0107").map(|code| code.title), Some("unknown key"));
        assert_eq!(find("Z017"), None);
        assert_eq!(nearest("Z017").map(|code| code.code), Some("Z0107"));
        assert_eq!(nearest("E0277"), None);
    }

    #[test]
    fn an_entry_is_a_page() {
        let page = find("Z0104").unwrap().to_string();
        let expected = "\
Z0104: duplicate key

A key is given twice in one section. Only one of the two could count, and a reader could
not tell which, so neither does: remove one.

Example:

    (zero: (stage: 3, prefetch: 1, prefetch: 2))";
        assert_eq!(page, expected);
        for code in CODES {
            assert!(code.to_string().lines().all(|line| !line.ends_with(' ')), "{}", code.code);
        }
    }

    #[test]
    fn z0110_unusable_attribute_or_struct() {
        assert!(find("Z0110").unwrap().explanation.contains("struct with named fields"));
    }
}
