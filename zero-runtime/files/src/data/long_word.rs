//! Long word: a stretch of text that cannot be cut between words is encoded window by window, in memory that does not
//! depend on its length. Never reads a file.
//!
//! Pairs of symbols are merged in the order of their ranks, and in the order of their places. Hence the tokens between two
//! ends of tokens are those of that stretch alone, and tokens are those of a word if and only if every two neighbours are
//! the tokens of their two stretches. So a window may begin at the end of a token of the window before, if its first token
//! is the one that followed there.

use super::cut::is_within_letters;
use super::error::DataError;
use super::tokenizer::Tokenizer;

/// Bytes that are encoded at a time.
pub(super) const WINDOW_BYTES: usize = 64 << 10;
/// Bytes at the end of a window whose tokens may depend on what follows.
const OVERLAP_BYTES: usize = 1 << 10;
/// Ends of tokens that are tried. More are needed only by a vocabulary whose tokens follow from far away.
const TRIES: usize = 32;

/// A long stretch that is being encoded. It begins at the end of a word.
pub struct LongWord<'t> {
    tokenizer: &'t Tokenizer,
    /// Text from the beginning of the window on.
    text: String,
    window: Window,
    /// Bytes before the text.
    before: usize,
}

/// The beginning of the text with its tokens.
#[derive(Default)]
struct Window {
    bytes: usize,
    ids: Vec<u32>,
    /// Where tokens begin and end.
    places: Vec<(usize, usize)>,
}

impl<'t> LongWord<'t> {
    /// A stretch without text yet.
    pub fn new(tokenizer: &'t Tokenizer) -> Self {
        Self { tokenizer, text: String::new(), window: Window::default(), before: 0 }
    }

    /// The last letter so far.
    pub fn last(&self) -> Option<char> {
        self.text.chars().next_back()
    }

    /// Adds text, and appends the ids that are certain to `ids`.
    ///
    /// # Errors
    /// Z0377 if it cannot be encoded, or not in windows.
    pub fn add(&mut self, text: &str, ids: &mut Vec<u32>) -> Result<(), DataError> {
        self.text.push_str(text);
        let mut start = 0;
        while self.text.len() - start >= 2 * WINDOW_BYTES {
            start = self.advance(start, ids)?;
        }
        self.before += start;
        self.text.drain(..start);
        Ok(())
    }

    /// Appends all other ids.
    ///
    /// # Errors
    /// Those of [`LongWord::add`].
    pub fn end(mut self, ids: &mut Vec<u32>) -> Result<(), DataError> {
        let mut start = 0;
        while start + self.window.bytes < self.text.len() {
            start = self.advance(start, ids)?;
        }
        ids.append(&mut self.window.ids);
        Ok(())
    }

    /// Encodes the next window and appends the ids before it. Returns where it begins; the current one begins at `start`.
    fn advance(&mut self, start: usize, ids: &mut Vec<u32>) -> Result<usize, DataError> {
        if self.window.bytes == 0 {
            self.window = self.encode(start)?;
            return Ok(start);
        }
        let Window { bytes, places, .. } = &self.window;
        let is_certain = |&token: &usize| {
            let (end, next) = (places[token - 1].1, places[token].0);
            end == next && next + OVERLAP_BYTES <= *bytes && self.is_within_letters(start + next)
        };
        let tries: Vec<usize> = (1..places.len()).rev().filter(is_certain).take(TRIES).collect();
        for token in tries {
            let next = start + self.window.places[token].0;
            let window = self.encode(next)?;
            if window.ids.first() == Some(&self.window.ids[token]) {
                ids.extend(&self.window.ids[..token]);
                self.window = window;
                return Ok(next);
            }
        }
        Err(self.tokenizer.too_long(self.before + start, WINDOW_BYTES))
    }

    fn is_within_letters(&self, at: usize) -> bool {
        let before = self.text[..at].chars().next_back();
        before.zip(self.text[at..].chars().next()).is_some_and(|(before, next)| is_within_letters(before, next))
    }

    fn encode(&self, start: usize) -> Result<Window, DataError> {
        let end = self.text.floor_char_boundary(start + WINDOW_BYTES);
        let found = self.tokenizer.encode_with_places(&self.text[start..end]);
        let (ids, places) = found.map_err(|error| error.within(|| "a text".to_owned(), self.before + start))?;
        Ok(Window { bytes: end - start, ids, places })
    }
}

/// The longest piece that is encoded at once if it cannot be encoded in windows.
const WHOLE_BYTES_MAX: usize = 1 << 20;

/// [`Tokenizer::encode`] of one of [`Tokenizer::pieces`], in windows if it is long.
///
/// # Errors
/// Those of [`LongWord::add`].
pub fn encode_piece(tokenizer: &Tokenizer, piece: &str) -> Result<Vec<u32>, DataError> {
    if piece.len() < 2 * WINDOW_BYTES || tokenizer.cuts().is_none() {
        return tokenizer.encode(piece);
    }
    let (mut word, mut ids, mut rest) = (LongWord::new(tokenizer), Vec::new(), piece);
    let mut add = || {
        while !rest.is_empty() {
            let (part, later) = rest.split_at(rest.floor_char_boundary(WHOLE_BYTES_MAX));
            word.add(part, &mut ids)?;
            rest = later;
        }
        Ok(())
    };
    match add().and_then(|()| word.end(&mut ids)) {
        Ok(()) => Ok(ids),
        Err(_) if piece.len() <= WHOLE_BYTES_MAX => tokenizer.encode(piece),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::iter::repeat_n;

    use serde_json::{Value, json};

    use super::super::tiny_tokenizer::write;
    use super::*;

    /// Merges whose results depend on what is far away: pairs of letters from the left on, and pairs of pairs.
    fn tokenizer() -> Tokenizer {
        let directory = tempfile::tempdir().unwrap();
        let change = |json: &mut Value| {
            let merges = ["a a", "aa aa", "aaaa aaaa", "b a", "a b", "ba ab", "e i", "ei n", "ä ½", "ä½ ł"];
            for (merge, id) in merges.iter().zip(300..) {
                json["model"]["merges"].as_array_mut().unwrap().push(json!(merge.split(' ').collect::<Vec<_>>()));
                json["model"]["vocab"][merge.replace(' ', "")] = json!(id);
            }
        };
        Tokenizer::open(&write(directory.path(), change)).unwrap()
    }

    /// Letters that follow from a seed, most of them in runs.
    fn letters(seed: u32, of: &str, bytes: usize) -> String {
        let (of, mut seed, mut text): (Vec<char>, _, _) = (of.chars().collect(), seed, String::new());
        while text.len() < bytes {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            text.extend(repeat_n(of[(seed >> 16) as usize % of.len()], 1 + (seed >> 28) as usize % 7));
        }
        text
    }

    #[test]
    fn a_long_word_has_the_ids_that_it_has_as_a_whole() {
        let tokenizer = tokenizer();
        for (text, name) in [
            (letters(1, "aab", 200_000), "runs"),
            (letters(2, "theinga", 200_000), "a mixture"),
            (letters(3, "你们好一", 200_000), "ideographs"),
            (letters(4, "abйо", 200_000), "letters of several bytes"),
            (format!("b{}", "a".repeat(200_001)), "one letter"),
            (format!("{}12, the end", "a".repeat(200_001)), "a word that ends"),
        ] {
            let whole = tokenizer.encode(&text).unwrap();
            assert!(encode_piece(&tokenizer, &text).unwrap() == whole, "{name}");
            // However it arrives.
            for step in [5_000, 150_001] {
                let (mut word, mut ids, mut rest) = (LongWord::new(&tokenizer), Vec::new(), text.as_str());
                while !rest.is_empty() {
                    let (part, later) = rest.split_at(rest.ceil_char_boundary(step));
                    word.add(part, &mut ids).unwrap();
                    rest = later;
                }
                word.end(&mut ids).unwrap();
                assert!(ids == whole, "{name} in steps of {step}");
            }
        }
    }

    #[test]
    fn z0377_a_long_word_of_anything_but_letters() {
        let tokenizer = tokenizer();
        let short = "-".repeat(WHOLE_BYTES_MAX);
        assert_eq!(encode_piece(&tokenizer, &short).unwrap().len(), WHOLE_BYTES_MAX);
        let refused = encode_piece(&tokenizer, &format!("{short}-")).expect_err("a bound");
        assert_eq!(refused.code(), "Z0377");
        assert!(
            refused.to_string().contains("for 65536 bytes no word ends, and they are not all letters"),
            "{refused}"
        );
    }
}
