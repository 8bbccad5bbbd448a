//! Terminal: colours errors and tables on a terminal, unless NO_COLOR is set; in a pipe or a file they stay plain.
//! Never changes a word.

use std::fmt::Display;
use std::io::{Write, stderr};

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};

const ERROR: Style = AnsiColor::Red.on_default().bold();
const CHOSEN: Style = AnsiColor::Green.on_default();
const STRONG: Style = Style::new().bold();

/// Writes an error, or several with empty lines between them, to standard error.
pub fn tell(error: &impl Display) {
    write_error(&format!("{}\n", painted_error(&error.to_string())));
}

/// Writes painted text to standard error in one call. Otherwise it could be mixed with text of other ranks, because
/// launchers pass on text as it arrives.
pub fn write_error(painted: &str) {
    let text = match AutoStream::choice(&stderr()) {
        ColorChoice::Never => strip_str(painted).to_string(),
        _ => painted.to_owned(),
    };
    // Fails if standard error is closed; then there is nowhere to report it.
    let _ = stderr().write_all(text.as_bytes());
}

/// Tables with empty lines between them, painted for standard output.
pub fn table(text: &str) -> String {
    match AutoStream::choice(&std::io::stdout()) {
        ColorChoice::Never => text.to_owned(),
        _ => painted_table(text),
    }
}

/// Paints the first line of each error: `error` and its code red, the message bold.
fn painted_error(text: &str) -> String {
    let painted = |line: &str| match line.split_once(": ") {
        Some((name, what)) if name.starts_with("error") => {
            format!("{ERROR}{name}{ERROR:#}{STRONG}: {what}{STRONG:#}")
        }
        _ => line.to_owned(),
    };
    text.split('\n').map(painted).collect::<Vec<_>>().join("\n")
}

/// Paints the first line of each block bold and, among several plans, the line of this one green.
fn painted_table(text: &str) -> String {
    let mut lines = text.split('\n').peekable();
    let mut painted = Vec::new();
    let mut begins = true;
    while let Some(line) = lines.next() {
        let heads = begins && lines.peek().is_some_and(|next| !next.trim().is_empty());
        painted.push(match line.trim().is_empty() {
            false if heads => format!("{STRONG}{line}{STRONG:#}"),
            false if line.trim_end().ends_with("this plan") => format!("{CHOSEN}{line}{CHOSEN:#}"),
            _ => line.to_owned(),
        });
        begins = line.trim().is_empty();
    }
    painted.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(painted: &str) -> String {
        strip_str(painted).to_string()
    }

    #[test]
    fn an_error_is_red_and_reads_the_same() {
        let text = "error[Z0340]: cannot read `a: b`\n  = help: let this user read it";
        let painted = painted_error(text);
        assert_eq!(plain(&painted), text);
        let first = "\u{1b}[1m\u{1b}[31merror[Z0340]\u{1b}[0m\u{1b}[1m: cannot read `a: b`\u{1b}[0m\n  = help";
        assert!(painted.starts_with(first), "{painted:?}");
        assert_eq!(painted_error(&format!("{text}\n\n{text}")), format!("{painted}\n\n{painted}"));
        for other in ["", "something: else", "error"] {
            assert_eq!(painted_error(other), other);
        }
    }

    #[test]
    fn a_heading_is_bold_and_reads_the_same() {
        let text = "title\n\nmemory\n  arena  1\n\n  plan  sent\n  a  1  this plan\n  b  2\n";
        let painted = painted_table(text);
        assert_eq!(plain(&painted), text);
        let bold: Vec<_> = painted.lines().filter(|line| line.starts_with("\u{1b}[1m")).map(plain).collect();
        assert_eq!(bold, ["memory", "  plan  sent"]);
        let green: Vec<_> = painted.lines().filter(|line| line.starts_with("\u{1b}[32m")).map(plain).collect();
        assert_eq!(green, ["  a  1  this plan"]);
    }
}
