//! Vocabulary: the few calls that a tokenizer makes to the library `tokenizers`. Never reads a file.

use tokenizers::models::ModelWrapper;
use tokenizers::normalizers::NormalizerWrapper;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::{SplitDelimiterBehavior, Tokenizer};

/// Whether this program can read a `tokenizer.json`.
pub(super) const IS_THERE: bool = true;

/// Patterns that end a word at a line break between two letters, whatever comes before and after: those of GPT-4 and
/// Llama 3, and of Qwen.
const PATTERNS: [&str; 2] = [
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
];

/// A vocabulary with its rules, as the library reads it.
pub(super) struct Vocabulary(Tokenizer);

impl Vocabulary {
    /// The vocabulary in the content of a `tokenizer.json`.
    ///
    /// # Errors
    /// Why it cannot be used, as a clause whose subject is the file.
    pub(super) fn parse(content: &str) -> Result<Self, String> {
        // The library has compiled this call. Its `from_bytes` and `from_file` would be compiled here once more.
        let parsed: Result<Tokenizer, _> = content.parse();
        let mut inner = parsed.map_err(|error| format!("is not understood: {error}"))?;
        if matches!(inner.get_model(), ModelWrapper::BPE(model) if model.dropout.is_some_and(|share| share > 0.0)) {
            return Err("drops merges by chance (`dropout`)".to_owned());
        }
        // Some files limit the length of a text. Text to train on is never cut or padded.
        inner.with_padding(None).with_truncation(None).map_err(|error| error.to_string())?;
        Ok(Self(inner))
    }

    /// One more than the largest id.
    pub(super) fn ids(&self) -> usize {
        self.0.get_vocab(true).into_values().max().map_or(0, |last| last as usize + 1)
    }

    /// The ids of a text, or why it has none.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        // The fast variant does not compute the places of tokens in the text.
        let encoding = self.0.encode_fast(text, false).map_err(|error| error.to_string())?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of ids, without those that the vocabulary lacks.
    pub(super) fn decode(&self, ids: &[u32]) -> String {
        self.0.decode(ids, false).unwrap_or_default()
    }

    /// The id of a token.
    pub(super) fn id(&self, token: &str) -> Option<u32> {
        self.0.token_to_id(token)
    }

    /// Whether the ids of a text are those of its [pieces](super::cut::pieces), joined.
    ///
    /// This holds if words are found by one of a few known patterns and nothing is put before a text. By each pattern, a
    /// letter, a line break and a letter lie in three words: the word of the first letter ends because a line break is
    /// not a letter, and the line break is a word of its own, whether or not the pattern sees what follows it.
    pub(super) fn is_exact_when_cut(&self) -> bool {
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
        let splits = match self.0.get_pre_tokenizer() {
            Some(PreTokenizerWrapper::Sequence(steps)) => match steps.as_ref() {
                [first, rest @ ..] => is_split(first) && rest.iter().all(only_encodes),
                [] => false,
            },
            Some(step) => is_split(step),
            None => false,
        };
        // NFC does not compose an ASCII letter with anything before it.
        let keeps = matches!(self.0.get_normalizer(), None | Some(NormalizerWrapper::NFC(_)));
        let added = self.0.get_added_tokens_decoder();
        splits && keeps && added.values().all(|token| !token.content.contains('\n') && !token.lstrip && !token.rstrip)
    }
}
