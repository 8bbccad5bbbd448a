//! Names: units as a person writes them, and the wrapping of long lines. Knows no plan.

use crate::unit::Unit;

/// All units of a model, and the numbers of some of them. Neighbours in an array are named as one range.
pub struct Ranges<'a>(pub &'a [Unit], pub &'a [usize]);

impl Ranges<'_> {
    /// A text for each range, such as `embed` or `blocks[0..4]`.
    pub fn to_strings(&self) -> Vec<String> {
        let Ranges(units, chosen) = self;
        let follows = |&a: &usize, &b: &usize| {
            let (before, after) = (&units[a], &units[b]);
            before.field == after.field && before.index.is_some() && before.index.map(|i| i + 1) == after.index
        };
        let range = |run: &[usize]| {
            let (first, last) = (&units[run[0]], &units[run[run.len() - 1]]);
            match (first.index, last.index) {
                (Some(from), Some(to)) if from < to => format!("{}[{from}..{}]", first.field, to + 1),
                _ => first.to_string(),
            }
        };
        chosen.chunk_by(follows).map(range).collect()
    }
}

/// A number of things, such as `1 rank` or `2 ranks`.
pub fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// `head` and then the `pieces`, with `between` after each except the last, on lines of at most `width` columns. All
/// lines except the first are indented.
pub fn wrap(head: &str, indent: usize, pieces: &[String], between: &str, width: usize) -> String {
    let mut out = head.to_owned();
    let mut column = head.chars().count();
    for (i, piece) in pieces.iter().enumerate() {
        if i > 0 {
            out.push_str(between);
            column += between.len();
        }
        if i > 0 && column + piece.len() + between.trim_end().len() > width {
            out.truncate(out.trim_end().len());
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        }
        out.push_str(piece);
        column += piece.len();
    }
    out
}
