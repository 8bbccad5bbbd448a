//! Structured: files that begin like records of JSON or like a table of CSV. As text, a model would learn their braces and
//! the names of their fields. Never reads a file.

use std::path::Path;

use serde::de::IgnoredAny;

/// Bytes of the beginning of a file that are looked at.
pub const BEGINNING_BYTES: usize = 64 << 10;

/// Rows of a table that are compared with its first one.
const ROWS: usize = 3;

/// What a file begins like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// An object of JSON in each line.
    Lines,
    /// One object of JSON.
    Object,
    /// An array of JSON.
    Array,
    /// CSV, or the like with tabs or semicolons, with the names of its columns.
    Table,
}

impl Structure {
    /// What the file at `path` begins like, by its name or by its `beginning`; `None` if it is text.
    pub fn of(path: &Path, beginning: &[u8]) -> Option<Self> {
        let is_named =
            |ends: &[&str]| path.extension().is_some_and(|end| ends.iter().any(|it| end.eq_ignore_ascii_case(it)));
        let text = beginning.strip_prefix("\u{feff}".as_bytes()).unwrap_or(beginning).trim_ascii_start();
        match text {
            [] => None,
            _ if is_named(&["jsonl", "ndjson"]) => Some(Structure::Lines),
            _ if is_named(&["csv", "tsv"]) => Some(Structure::Table),
            [b'{', rest @ ..] => begins_with_a_field(rest).then(|| lines_or_object(text)),
            [b'[', rest @ ..] => is_array(text, rest).then_some(Structure::Array),
            _ => is_table(text).then_some(Structure::Table),
        }
    }

    /// Its name in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Structure::Lines => "lines of JSON",
            Structure::Object => "an object of JSON",
            Structure::Array => "an array of JSON",
            Structure::Table => "a table of CSV",
        }
    }

    /// How to get lines of JSON from it, of which a command can read a field.
    pub fn remedy(self) -> &'static str {
        match self {
            Structure::Lines => "name it `.jsonl`",
            Structure::Object => "write each document as an object on a line of its own to a `.jsonl` file",
            Structure::Array => "write each element on a line of its own, by `jq -c '.[]' IN > OUT.jsonl`",
            Structure::Table => "write each row as an object of JSON on a line of its own to a `.jsonl` file",
        }
    }
}

/// Whether what follows a brace is a name in quotes and a colon.
fn begins_with_a_field(rest: &[u8]) -> bool {
    let Some(name) = rest.trim_ascii_start().strip_prefix(b"\"") else { return false };
    let end = name.iter().position(|byte| matches!(byte, b'"' | b'\n'));
    end.is_some_and(|end| name[end..].starts_with(b"\"") && name[end + 1..].trim_ascii_start().starts_with(b":"))
}

fn lines_or_object(text: &[u8]) -> Structure {
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let first = lines.next().is_some_and(|line| line.ends_with(b"}") || line.len() == text.len());
    if first && lines.next().is_none_or(|line| line.starts_with(b"{")) { Structure::Lines } else { Structure::Object }
}

/// Whether a text that begins with a bracket is an array, with nothing behind it but others. `[1] A footnote` is none.
fn is_array(text: &[u8], rest: &[u8]) -> bool {
    if let [b'{', object @ ..] = rest.trim_ascii_start() {
        return begins_with_a_field(object);
    }
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<IgnoredAny>();
    loop {
        match values.next() {
            None => return true,
            Some(Ok(_)) if !text[values.byte_offset()..].trim_ascii_start().starts_with(b"[") => {
                return text[values.byte_offset()..].trim_ascii().is_empty();
            }
            Some(Ok(_)) => {}
            // The beginning of a long file ends within an array.
            Some(Err(error)) => return error.is_eof() && text.len() + 8 > BEGINNING_BYTES,
        }
    }
}

/// Whether a text begins with a row of names, and the rows after it have at least as many cells.
fn is_table(text: &[u8]) -> bool {
    b",\t;".iter().any(|&separator| {
        let mut rows = Rows { text, separator };
        let Some(names) = rows.next() else { return false };
        let columns = names.len();
        let mut others = rows.take(ROWS).peekable();
        columns > 1
            && names.iter().all(|name| is_name(name))
            && others.peek().is_some()
            && others.all(|row| row.len() >= columns)
    })
}

/// Whether a cell is the name of a column: a letter, then letters, digits and a few signs. A space occurs in prose.
fn is_name(cell: &[u8]) -> bool {
    let name = cell.strip_prefix(b"\"").and_then(|it| it.strip_suffix(b"\"")).unwrap_or(cell);
    name.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'_')
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_-.:/#".contains(byte))
}

/// The rows of a table, each as its cells. The last row of a beginning may be cut off, so it is left out if there is a
/// line break missing and the beginning is as long as it can be.
struct Rows<'t> {
    text: &'t [u8],
    separator: u8,
}

impl<'t> Iterator for Rows<'t> {
    type Item = Vec<&'t [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.text.is_empty() {
            return None;
        }
        let (mut cells, mut start, mut is_quoted) = (Vec::new(), 0, false);
        for (at, &byte) in self.text.iter().enumerate() {
            match byte {
                b'"' => is_quoted = !is_quoted,
                b'\n' if !is_quoted => {
                    cells.push(self.text[start..at].trim_ascii_end());
                    self.text = &self.text[at + 1..];
                    return Some(cells);
                }
                _ if byte == self.separator && !is_quoted => {
                    cells.push(&self.text[start..at]);
                    start = at + 1;
                }
                _ => {}
            }
        }
        let is_cut = self.text.len() > BEGINNING_BYTES / 2;
        cells.push(&self.text[start..]);
        self.text = &[];
        (!is_cut).then_some(cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, text: &str) -> Option<Structure> {
        Structure::of(name.as_ref(), text.as_bytes())
    }

    #[test]
    fn records_and_tables_are_known_by_their_beginning() {
        let long = format!("[{}", "\"a string\", ".repeat(BEGINNING_BYTES));
        let wide = format!("id,text\n1,\"{}\"\n", "a line, and\nanother\n".repeat(100));
        for (text, expected) in [
            ("{\"text\": \"one\"}\n{\"text\": \"two\"}\n", Structure::Lines),
            ("\u{feff}\n {\"text\": \"one\"}", Structure::Lines),
            ("{\"text\": \"cut off by the end of what is looked at", Structure::Lines),
            ("{\n  \"name\": \"x\",\n  \"rows\": []\n}\n", Structure::Object),
            ("[\n  {\"text\": \"one\", \"score\": NaN},", Structure::Array),
            ("[\"one\", \"two\"]\n", Structure::Array),
            ("[1, 2]\n[3, 4]\n", Structure::Array),
            (&long[..BEGINNING_BYTES], Structure::Array),
            ("id,text\n1,hello\n", Structure::Table),
            ("\"id\",\"text\"\r\n\"1\",\"hello, you\"\r\n", Structure::Table),
            ("id\ttext\n1\thello, you\n2\t\n", Structure::Table),
            ("id;text;label\n1;hello;x", Structure::Table),
            (&wide, Structure::Table),
        ] {
            assert_eq!(of("/dev/stdin", text), Some(expected), "{}", &text[..text.len().min(40)]);
        }
        assert_eq!(
            (of("a.jsonl", "[1]\n"), of("a.CSV", "text\nhello\n")),
            (Some(Structure::Lines), Some(Structure::Table))
        );
    }

    #[test]
    fn prose_and_programs_are_text() {
        for text in [
            "",
            "The first line, and more\nsecond, line\n",
            "Dear Sir,\n\nI write, as ever,\n",
            "[1] A footnote\n[2] Another\n",
            "[package]\nname = \"x\"\n",
            "[link](https://example.org)\n",
            "[2024-01-01 12:00] started\n",
            "[\"Quoted,\" she said]\n",
            "{ let x = 1; }\n",
            "{\"Quoted,\" she said}\n",
            "{% raw %}\n",
            "{\\rtf1}\n",
            "one,two\nthree\n",
            "fn main() {}\n",
            "==> Cargo.toml <==\n[workspace]\n",
            "a\tb c\nx\ty\n",
        ] {
            assert_eq!(of("text", text), None, "{text}");
        }
        assert_eq!((of("a.jsonl", " \n"), of("a.csv", "")), (None, None));
    }
}
