//! Cut: the places where a long text can be cut without a change of its tokens. Never encodes.

/// Cuts the text into pieces of at least `bytes` each, except for the last. A piece ends after a line break between two
/// ASCII letters, so it may be much longer.
pub(super) fn pieces(mut text: &str, bytes: usize) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let from = bytes.saturating_sub(2).min(text.len());
        let found = text.as_bytes()[from..].windows(3).position(is_cut);
        let (piece, rest) = text.split_at(found.map_or(text.len(), |at| from + at + 2));
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The last place where a piece may end.
pub(super) fn last(text: &str) -> Option<usize> {
    text.as_bytes().windows(3).rposition(is_cut).map(|at| at + 2)
}

/// Whether a piece may end before the last of three bytes.
fn is_cut(window: &[u8]) -> bool {
    matches!(window, [one, b'\n', next] if one.is_ascii_alphabetic() && next.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_lines_that_end_and_begin_with_letters() {
        let text = "one\ntwo \nthree\n four\n\nfive\nsix";
        assert_eq!(pieces(text, 1).collect::<Vec<_>>(), ["one\n", "two \nthree\n four\n\nfive\n", "six"]);
        assert_eq!(pieces(text, 5).collect::<Vec<_>>(), ["one\ntwo \nthree\n four\n\nfive\n", "six"]);
        assert_eq!(pieces(text, usize::MAX).collect::<Vec<_>>(), [text]);
        assert_eq!(pieces("", 1).count(), 0);
        assert_eq!((last(text), last("a\n b\nc\n\nd"), last("a\n")), (Some(27), Some(5), None));
    }
}
