//! Cut: the places where a long text can be cut without a change of its tokens. Never encodes.
//!
//! Words are found from left to right by one of a few known patterns. None of them looks back, so the words after a place
//! are the same with or without what is before it, if a word ends there. At each kind of place, one does by every pattern:
//! what is before it cannot go on in its word, and is not followed by white space that a pattern would look beyond.

/// Ids of a stretch, and for each the bytes of text that it stands for.
pub(super) type PlacedIds = (Vec<u32>, Vec<(usize, usize)>);

/// Kinds of places.
const KINDS: [fn(char, char) -> bool; 4] = [
    // Anything but white space, and a space.
    |before, next| next == ' ' && (before.is_ascii_graphic() || before.is_alphanumeric() || is_punctuation(before)),
    // A letter or a digit, and the end of the line. Behind punctuation it would belong to its word.
    |before, next| next == '\n' && (before.is_ascii_alphanumeric() || is_letter(before)),
    // A letter, and punctuation as it is written without a space.
    |before, next| is_letter(before) && is_punctuation(next),
    // A letter, and a digit.
    |before, next| is_letter(before) && next.is_ascii_digit(),
];

/// The places where the texts of a tokenizer may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cuts([bool; KINDS.len()]);

impl Cuts {
    /// No places.
    pub(super) const NONE: Self = Self([false; KINDS.len()]);

    /// The kinds of places that are within none of the words that a tokenizer takes as they are.
    // Without tokenizers there are no such words.
    #[cfg_attr(not(feature = "tokenizers"), allow(dead_code))]
    pub(super) fn outside<'w>(words: impl Iterator<Item = &'w str>) -> Self {
        let mut cuts = Self([true; KINDS.len()]);
        for word in words {
            for (before, next) in word.chars().zip(word.chars().skip(1)) {
                KINDS.iter().zip(&mut cuts.0).for_each(|(kind, is_used)| *is_used &= !kind(before, next));
            }
        }
        cuts
    }

    /// Whether a text may be cut between two letters.
    fn is_between(self, before: char, next: char) -> bool {
        KINDS.iter().zip(self.0).any(|(kind, is_used)| is_used && kind(before, next))
    }

    /// The first place at or after byte `from` where the text may be cut; `before` is the letter before the text.
    pub fn first(self, before: Option<char>, text: &str, from: usize) -> Option<usize> {
        let from = text.ceil_char_boundary(from);
        let mut before = text[..from].chars().next_back().or(before);
        text[from..].char_indices().find_map(|(at, next)| {
            let is_cut = before.replace(next).is_some_and(|before| self.is_between(before, next));
            is_cut.then_some(from + at)
        })
    }

    /// The last place where the text may be cut.
    pub fn last(self, text: &str) -> Option<usize> {
        let mut next = text.chars().next_back()?;
        let mut at = text.len() - next.len_utf8();
        text[..at].chars().rev().find_map(|before| {
            let found = self.is_between(before, next).then_some(at);
            (next, at) = (before, at - before.len_utf8());
            found
        })
    }

    /// The text in pieces of at least `bytes` each, except for the last. A piece ends where the text may be cut, so it may be
    /// much longer.
    pub(super) fn pieces(self, mut text: &str, bytes: usize) -> impl Iterator<Item = &str> {
        std::iter::from_fn(move || {
            let at = if text.len() <= bytes { None } else { self.first(None, text, bytes) };
            let (piece, rest) = text.split_at(at.unwrap_or(text.len()));
            text = rest;
            (!piece.is_empty()).then_some(piece)
        })
    }
}

/// Whether both are letters, which every pattern has in one word, and which no normalizer changes.
pub(super) fn is_within_letters(before: char, next: char) -> bool {
    is_letter(before) && is_letter(next)
}

/// Letters by every version of Unicode: Latin, Greek, Cyrillic, kana, ideographs, Hangul.
fn is_letter(letter: char) -> bool {
    letter.is_ascii_alphabetic()
        || matches!(letter,
            'À'..='Ö' | 'Ø'..='ö' | 'ø'..='ÿ' | 'Α'..='Ρ' | 'Σ'..='Ω' | 'α'..='ω' | 'А'..='я' | 'ё' | 'Ё'
            | 'ぁ'..='ゖ' | 'ァ'..='ヺ' | '㐀'..='䶵' | '一'..='鿕' | '가'..='힣')
}

/// Punctuation of texts without spaces, which combines with nothing.
fn is_punctuation(letter: char) -> bool {
    "、。，．！？；：「」『』（）《》〈〉【】“”‘’…—・".contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Cuts {
        Cuts::outside(["<|endoftext|>", "   "].into_iter())
    }

    #[test]
    fn a_text_is_cut_where_a_word_ends_by_every_pattern() {
        let pieces = |text| all().pieces(text, 1).collect::<Vec<_>>();
        assert_eq!(pieces("one two,  three\nfour;\nfive12 "), ["one", " two,", "  three", "\nfour;\nfive", "12", " "]);
        assert_eq!(pieces("съешь ещё,\nда 是的，所以。"), ["съешь", " ещё,\nда", " 是的", "，所以", "。"]);
        // A mark, which combines with what is before it, and white space that is no space.
        assert_eq!(pieces("a.b\u{301} \u{301}c\r\n1\u{a0}2\t3").len(), 1);
        assert_eq!(all().pieces("one two three", 5).collect::<Vec<_>>(), ["one two", " three"]);
        assert_eq!(pieces("").len(), 0);
        assert_eq!((all().last("one two\n"), all().last("one"), all().last("")), (Some(7), None, None));
        assert_eq!((all().first(Some('a'), " b", 0), all().first(None, " b c", 0)), (Some(0), Some(2)));
    }

    /// A word that a tokenizer takes as it is, such as `<|end of text|>`, must not be cut.
    #[test]
    fn no_word_that_is_taken_as_it_is_is_cut() {
        for (word, text, expected) in [
            ("end of text", "a b\nc", &["a b", "\nc"][..]),
            ("x1", "a b\nc3", &["a", " b", "\nc3"]),
            ("a\nb", "a b\nc", &["a", " b\nc"]),
        ] {
            assert_eq!(Cuts::outside([word].into_iter()).pieces(text, 1).collect::<Vec<_>>(), expected, "{word}");
        }
    }
}
