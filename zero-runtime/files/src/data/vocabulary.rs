//! Vocabulary: the few calls that a tokenizer makes to the library `tokenizers`. Never reads a file.

use std::ops::Range;

use tokenizers::models::ModelWrapper;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::{Model, OffsetReferential, OffsetType, PreTokenizer, SplitDelimiterBehavior, Tokenizer};

use super::cut::{Cuts, PlacedIds};
use crate::guarded;

/// Letters of a word without ids that a message shows.
const SHOWN_CHARS: usize = 40;

/// Whether this program can read a `tokenizer.json`.
pub(super) const IS_THERE: bool = true;

/// Patterns that end a word at a line break between two letters, whatever comes before and after: those of GPT-4 and
/// Llama 3, and of Qwen.
const PATTERNS: [&str; 2] = [
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

/// A vocabulary with its rules, as the library reads it.
pub(super) struct Vocabulary {
    inner: Tokenizer,
    /// Whether the library may pass over letters without a word.
    may_lose: bool,
}

/// Something in a text that has no ids: where it begins, and why.
#[derive(Debug)]
pub(super) struct Unencoded {
    pub byte: usize,
    pub what: String,
}

impl Unencoded {
    /// A text on which the library fails.
    fn by(what: String) -> Self {
        Self { byte: 0, what: format!("it {what}") }
    }
}

impl Vocabulary {
    /// The vocabulary in the content of a `tokenizer.json`.
    ///
    /// # Errors
    /// Why it cannot be used, as a clause whose subject is the file.
    pub(super) fn parse(content: &str) -> Result<Self, String> {
        // The library has compiled this call. Its `from_bytes` and `from_file` would be compiled here once more.
        let parsed = guarded(|| content.parse::<Tokenizer>())?;
        let mut inner = parsed.map_err(|error| format!("is not understood: {error}"))?;
        if matches!(inner.get_model(), ModelWrapper::BPE(model) if model.dropout.is_some_and(|share| share > 0.0)) {
            return Err("drops merges by chance (`dropout`)".to_owned());
        }
        // Some files limit the length of a text. Text to train on is never cut or padded.
        guarded(|| inner.decode(&[0], false))?.map_err(|error| format!("cannot make text of ids: {error}"))?;
        inner.with_padding(None).with_truncation(None).map_err(|error| error.to_string())?;
        Ok(Self { may_lose: may_lose(&inner), inner })
    }

    /// One more than the largest id.
    pub(super) fn ids(&self) -> usize {
        self.inner.get_vocab(true).into_values().max().map_or(0, |last| last as usize + 1)
    }

    /// The ids of a text, or what in it has none.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, Unencoded> {
        if self.may_lose {
            self.lost(text).map_or(Ok(()), Err)?;
        }
        // The fast variant does not compute the places of tokens in the text.
        match guarded(|| self.inner.encode_fast(text, false)).map_err(Unencoded::by)? {
            Ok(encoding) => Ok(encoding.get_ids().to_vec()),
            Err(error) => Err(self.lost(text).unwrap_or_else(|| Unencoded { byte: 0, what: error.to_string() })),
        }
    }

    /// The ids of a text that has ids, and for each the bytes that it stands for.
    pub(super) fn encode_with_places(&self, text: &str) -> Result<PlacedIds, Unencoded> {
        if self.may_lose {
            self.lost(text).map_or(Ok(()), Err)?;
        }
        let encoding = guarded(|| self.inner.encode(text, false)).map_err(Unencoded::by)?;
        let encoding = encoding.map_err(|error| Unencoded { byte: 0, what: error.to_string() })?;
        Ok((encoding.get_ids().to_vec(), encoding.get_offsets().to_vec()))
    }

    /// The first letter of a text that has no id, or the word with it.
    fn lost(&self, text: &str) -> Option<Unencoded> {
        let (word, why) = self.lost_word(text)?;
        let is_lost = |letter: &str| self.lost_word(letter).is_some();
        let letters = text[word.clone()].char_indices();
        let mut places = letters.map(|(at, letter)| word.start + at..word.start + at + letter.len_utf8());
        // The whole word, if its letters have ids by themselves, as in a vocabulary of words.
        let place = places.find(|place| is_lost(&text[place.clone()])).unwrap_or(word);
        let lost: String = text[place.clone()].chars().take(SHOWN_CHARS).collect();
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        Some(Unencoded { byte: place.start, what: format!("its vocabulary has no id for {lost:?}{why}") })
    }

    /// The first word of a text whose ids are not for all of its bytes, and the library's reason, if it says one.
    fn lost_word(&self, text: &str) -> Option<(Range<usize>, Option<String>)> {
        let mut words = self.inner.get_added_vocabulary().extract_and_normalize(self.inner.get_normalizer(), text);
        if let Some(splitter) = self.inner.get_pre_tokenizer()
            && let Err(error) = splitter.pre_tokenize(&mut words)
        {
            return Some((0..text.len(), Some(error.to_string())));
        }
        let words = words.get_splits(OffsetReferential::Original, OffsetType::Byte);
        words.into_iter().filter(|(_, _, added)| added.is_none()).find_map(|(word, (start, end), _)| {
            match self.inner.get_model().tokenize(word) {
                Ok(tokens) if tokens.last().map_or(0, |token| token.offsets.1) < word.len() => Some((start..end, None)),
                Ok(_) => None,
                Err(error) => Some((start..end, Some(error.to_string()))),
            }
        })
    }

    /// The text of ids, without those that the vocabulary lacks.
    pub(super) fn decode(&self, ids: &[u32]) -> String {
        guarded(|| self.inner.decode(ids, false)).unwrap_or_else(|_| Ok("\u{fffd}".to_owned())).unwrap_or_default()
    }

    /// The id of a token.
    pub(super) fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The places where a text can be cut: the ids of the [pieces](Cuts::pieces), joined, are those of the whole.
    ///
    /// There are some if words are found by one of a few known patterns and nothing is put before a text.
    pub(super) fn cuts(&self) -> Option<Cuts> {
        let is_split = |step: &PreTokenizerWrapper| match step {
            PreTokenizerWrapper::ByteLevel(bytes) => bytes.use_regex && !bytes.add_prefix_space,
            PreTokenizerWrapper::Split(split) => {
                let is_known =
                    matches!(&split.pattern, SplitPattern::Regex(regex) if PATTERNS.contains(&regex.as_str()));
                is_known && !split.invert && split.behavior == SplitDelimiterBehavior::Isolated
            }
            _ => false,
        };
        let only_encodes = |step: &PreTokenizerWrapper| matches!(step, PreTokenizerWrapper::ByteLevel(bytes) if !bytes.add_prefix_space);
        let splits = match self.inner.get_pre_tokenizer() {
            Some(PreTokenizerWrapper::Sequence(steps)) => match steps.as_ref() {
                [first, rest @ ..] => is_split(first) && rest.iter().all(only_encodes),
                [] => false,
            },
            Some(step) => is_split(step),
            None => false,
        };
        // NFC composes none of the letters after a cut with anything before them.
        let keeps = matches!(self.inner.get_normalizer(), None | Some(NormalizerWrapper::NFC(_)));
        let added = self.inner.get_added_tokens_decoder();
        let is_plain = added.values().all(|token| !token.single_word && !token.lstrip && !token.rstrip);
        (splits && keeps && is_plain).then(|| Cuts::outside(added.values().map(|token| token.content.as_str())))
    }
}

/// Whether letters that the vocabulary lacks vanish: pairs of bytes or letters are merged, there is no token for what is
/// unknown, and not every byte has one.
fn may_lose(inner: &Tokenizer) -> bool {
    let ModelWrapper::BPE(model) = inner.get_model() else { return false };
    let has = |token: String| model.token_to_id(&token).is_some();
    let is_bytes = |step: &PreTokenizerWrapper| matches!(step, PreTokenizerWrapper::ByteLevel(_));
    let ends_with_bytes = match inner.get_pre_tokenizer() {
        Some(PreTokenizerWrapper::Sequence(steps)) => steps.as_ref().last().is_some_and(is_bytes),
        Some(step) => is_bytes(step),
        None => false,
    };
    let is_plain = model.continuing_subword_prefix.is_none() && model.end_of_word_suffix.is_none();
    let has_bytes = ends_with_bytes && is_plain && ByteLevel::alphabet().iter().all(|letter| has(letter.to_string()));
    let falls_back = model.byte_fallback && (0..=u8::MAX).all(|byte| has(format!("<{byte:#04X}>")));
    model.unk_token.is_none() && !has_bytes && !falls_back
}
