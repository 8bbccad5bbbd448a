//! Cut: the places where a long text can be cut without a change of its tokens. Never encodes.

use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::{SplitDelimiterBehavior, Tokenizer};

/// Patterns that end a word at a line break between two letters, whatever comes before and after: those of GPT-4 and
/// Llama 3, and of Qwen.
const PATTERNS: [&str; 2] = [
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

/// Whether the ids of a text are those of its [`pieces`], joined.
///
/// This holds if words are found by one of a few known patterns and nothing is put before a text. By each pattern, a
/// letter, a line break and a letter lie in three words: the word of the first letter ends because a line break is not
/// a letter, and the line break is a word of its own, whether or not the pattern sees what follows it.
pub(super) fn is_exact(tokenizer: &Tokenizer) -> bool {
    let is_split = |step: &PreTokenizerWrapper| match step {
        PreTokenizerWrapper::ByteLevel(bytes) => bytes.use_regex && !bytes.add_prefix_space,
        PreTokenizerWrapper::Split(split) => {
            let is_known = matches!(&split.pattern, SplitPattern::Regex(regex) if PATTERNS.contains(&regex.as_str()));
            is_known && !split.invert && split.behavior == SplitDelimiterBehavior::Isolated
        }
        _ => false,
    };
    let only_encodes =
        |step: &PreTokenizerWrapper| matches!(step, PreTokenizerWrapper::ByteLevel(bytes) if !bytes.add_prefix_space);
    let splits = match tokenizer.get_pre_tokenizer() {
        Some(PreTokenizerWrapper::Sequence(steps)) => match steps.as_ref() {
            [first, rest @ ..] => is_split(first) && rest.iter().all(only_encodes),
            [] => false,
        },
        Some(step) => is_split(step),
        None => false,
    };
    // NFC does not compose an ASCII letter with anything before it.
    let keeps = matches!(tokenizer.get_normalizer(), None | Some(NormalizerWrapper::NFC(_)));
    let added = tokenizer.get_added_tokens_decoder();
    splits && keeps && added.values().all(|token| !token.content.contains('\n') && !token.lstrip && !token.rstrip)
}

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
