//! Text: next-token prediction over a corpus, whose tokens are bytes, ids in a file, or made by a tokenizer. Never
//! keeps documents apart: sequences cross them.

use std::borrow::Cow;
use std::path::Path;

use super::contents::{Contents, TakenFiles};
use super::corpus::{Corpus, origin};
use super::error::DataError;
use super::split::Periods;
use super::tokenized::Documents;
use super::tokenizer::Tokenizer;
use super::{DataAs, Dataset, Draw, Ids};
use zero_core::layer::Tokens;

/// A corpus of tokens, where each token's target is the next one.
///
/// The corpus is cut into blocks, and every tenth block is held out. Training sequences are drawn uniformly, with
/// replacement, from all places where they and their targets fit between held-out blocks. Held-out sequences follow one
/// another in the held-out blocks. Drawing costs the same for a corpus of any size.
///
/// A text that is too short for both has windows only, for an evaluation: see [`Text::require_sequences`].
pub struct Text {
    corpus: Corpus,
    origin: String,
    taken: Option<TakenFiles>,
    /// None of a text that is too short to train on.
    split: Option<Periods>,
    length: usize,
    vocabulary: usize,
    /// Bytes of memory that its tokenizer takes.
    tokenizer_bytes: usize,
    /// Whether bytes were asked for.
    says_bytes: bool,
}

/// More ids than those of a model of bytes: 256, and a few for the beginning and the end of texts.
const OF_BYTES_MAX: usize = 288;

impl Text {
    /// The data at `path`, for sequences of `length` tokens and a model of `vocabulary` tokens. `path` is one of
    ///
    /// - a file of text: each byte is a token id;
    /// - a directory: the text files below it, joined in the order of their paths, each byte a token id. Hidden
    ///   entries, `target`, `node_modules`, links to directories, binary files (not UTF-8, or with zero bytes) and those
    ///   whose names say that they are something other than text (`.parquet`, `.npy`, `.zip`, ...) are passed over. A file
    ///   `*.txt` or `*.jsonl` that is not text is an error;
    /// - a file of token ids with a header: one of [`TokenFileWriter`](super::TokenFileWriter), or of llm.c;
    /// - any other file `*.bin`: little-endian token ids, as nanoGPT has them, each a u16, or a u32 if `vocabulary` is
    ///   more than 65,536.
    ///
    /// Files are not held in memory. All of them are checked once, and each sequence is read when it is drawn, from the
    /// system's cache, which all processes of a host share. So they must not change while they are in use:
    /// [`Dataset::require_unchanged`] then says which one did, and sequences that cannot be read are filled with `u32::MAX`.
    ///
    /// With `data_as`, the name and the content of a file do not matter.
    ///
    /// # Errors
    /// Z0340 if something cannot be read, Z0341 if there is nothing to predict in it, Z0342 if a token id is not in the vocabulary (all are checked), Z0343 if a file of ids ends in
    /// half a token, Z0344 if a directory has no text, Z0347 if text begins like JSON or CSV, Z0348 if a file of ids has
    /// another width or format, Z0349 if a file is something other than text, Z0355 for a
    /// directory as ids, Z0371 if a header does not fit its file, Z0372 if it is of a larger vocabulary.
    pub fn open(path: &Path, data_as: Option<DataAs>, length: usize, vocabulary: usize) -> Result<Self, DataError> {
        let (corpus, taken) = Corpus::open(path, data_as, None, vocabulary)?;
        let text = Self::new(corpus, origin(path), Some(taken), length, vocabulary)?;
        Ok(Self { says_bytes: data_as == Some(DataAs::Bytes), ..text })
    }

    /// [`Text::open`] for a model whose ids are those of `tokenizer`. Text becomes ids, which are held in memory: those
    /// of each file, followed by the tokenizer's end-of-text token, if it has one. A file of ids must have been made by
    /// this tokenizer.
    ///
    /// # Errors
    /// Those of [`Text::open`], Z0372 if the tokenizer's vocabulary is larger than the model's, Z0373 if a file of ids was
    /// made by another tokenizer, Z0374 if text is too large to be encoded here, Z0377 if it cannot be encoded.
    pub fn tokenized(
        path: &Path,
        data_as: Option<DataAs>,
        tokenizer: &Tokenizer,
        length: usize,
        vocabulary: usize,
    ) -> Result<Self, DataError> {
        require_fit(tokenizer, vocabulary)?;
        let (corpus, taken) = Corpus::open(path, data_as, Some(tokenizer), vocabulary)?;
        Ok(Self::new(corpus, origin(path), Some(taken), length, vocabulary)?.with(tokenizer))
    }

    /// A text, which errors call `origin`, as ids of `tokenizer`, followed by its end-of-text token, if it has one.
    ///
    /// # Errors
    /// Z0341 if there is nothing to predict in it, Z0372 if the tokenizer's vocabulary is larger than the model's, Z0374 if the text
    /// is too large to be encoded here, Z0377 if it cannot be encoded.
    pub fn tokenized_in_memory(
        text: &str,
        origin: &str,
        tokenizer: &Tokenizer,
        length: usize,
        vocabulary: usize,
    ) -> Result<Self, DataError> {
        require_fit(tokenizer, vocabulary)?;
        let mut documents = Documents::new(tokenizer, origin.to_owned());
        documents.add(text, origin)?;
        Ok(Self::new(documents.into_corpus(&TakenFiles::one()), origin.to_owned(), None, length, vocabulary)?
            .with(tokenizer))
    }

    /// Counts its tokenizer's memory.
    fn with(self, tokenizer: &Tokenizer) -> Self {
        Self { tokenizer_bytes: tokenizer.resident_bytes(), ..self }
    }

    /// Text in memory, which errors call `origin`. Each byte is a token id.
    ///
    /// # Errors
    /// Z0334 if it is more than is held in memory, Z0341 if there is nothing to predict in it, Z0342 if a byte is not in
    /// the vocabulary.
    pub fn in_memory(
        bytes: impl Into<Cow<'static, [u8]>>,
        origin: &str,
        length: usize,
        vocabulary: usize,
    ) -> Result<Self, DataError> {
        Self::new(Corpus::bytes(bytes.into(), origin, vocabulary)?, origin.to_owned(), None, length, vocabulary)
    }

    fn new(
        corpus: Corpus,
        origin: String,
        taken: Option<TakenFiles>,
        length: usize,
        vocabulary: usize,
    ) -> Result<Self, DataError> {
        let tokens = corpus.tokens();
        if tokens < 2 {
            return Err(DataError::NothingToPredict { origin, tokens });
        }
        let split = Periods::new(tokens, length);
        Ok(Text { corpus, origin, taken, split, length, vocabulary, tokenizer_bytes: 0, says_bytes: false })
    }

    /// Refuses a text that only its windows can be taken from.
    ///
    /// # Errors
    /// Z0341 if it has no training sequence, or none to hold out.
    pub fn require_sequences(&self) -> Result<(), DataError> {
        if self.split.is_some() {
            return Ok(());
        }
        let (origin, tokens, length) = (self.origin.clone(), self.corpus.tokens(), self.length);
        Err(DataError::TooShort { origin, tokens, tokens_min: Periods::tokens_min(length), length })
    }

    fn split(&self) -> &Periods {
        self.split.as_ref().expect("a text with sequences, as `Text::require_sequences` says")
    }

    /// Adds the files that it was made of.
    pub fn of(self, taken: TakenFiles) -> Self {
        Self { taken: Some(taken), ..self }
    }

    /// A hash of all tokens.
    pub fn fingerprint(&self) -> u64 {
        self.corpus.fingerprint()
    }

    /// Number of consecutive windows of the sequence length that all tokens lie in; the last may be shorter.
    pub fn windows(&self) -> usize {
        (self.corpus.tokens() - 1).div_ceil(self.length)
    }

    /// Tokens of window `index` that have a next one: the sequence length, fewer in the last window, 0 after it.
    pub fn window_tokens(&self, index: usize) -> usize {
        (self.corpus.tokens() - 1).saturating_sub(index.saturating_mul(self.length)).min(self.length)
    }

    /// Window `index`: `input` and `targets` (length) are overwritten, with zeros after its last token.
    pub fn window(&self, index: usize, input: &mut [u32], targets: &mut [u32]) {
        let tokens = self.window_tokens(index);
        input.fill(0);
        targets.fill(0);
        if tokens > 0 {
            self.copy_some(index * self.length, &mut input[..tokens], &mut targets[..tokens]);
        }
    }

    fn copy(&self, start: usize, input: &mut [u32], targets: &mut [u32]) {
        assert_eq!((input.len(), targets.len()), (self.length, self.length), "room for one sequence each");
        self.copy_some(start, input, targets);
    }

    /// Copies the tokens from `start` on to `input`, and the next one of each to `targets`.
    fn copy_some(&self, start: usize, input: &mut [u32], targets: &mut [u32]) {
        self.corpus.copy(start, input);
        let (last, others) = targets.split_last_mut().expect("a sequence has at least one token");
        others.copy_from_slice(&input[1..]);
        self.corpus.copy(start + input.len(), std::slice::from_mut(last));
    }
}

/// Z0372 if the tokenizer has ids that the model does not have.
pub fn require_fit(tokenizer: &Tokenizer, classes: usize) -> Result<(), DataError> {
    let vocabulary = tokenizer.vocabulary();
    if vocabulary <= classes {
        return Ok(());
    }
    let origin = format!("the tokenizer {}", origin(tokenizer.path()));
    Err(DataError::VocabularyTooLarge { origin, vocabulary, classes })
}

impl Dataset for Text {
    type Input = Tokens;
    type Target = Tokens;

    fn training(&self, draw: Draw, input: &mut [u32], targets: &mut [u32]) {
        self.copy(self.split().training_start(draw.below(self.split().training_count())), input, targets);
    }

    fn held_out(&self, index: usize, input: &mut [u32], targets: &mut [u32]) {
        self.copy(self.split().held_out_start(index), input, targets);
    }

    fn held_out_count(&self) -> usize {
        self.split.map_or(0, |split| split.held_out_count())
    }

    fn require_unchanged(&self) -> Result<(), DataError> {
        Ok(self.corpus.require_unchanged()?)
    }

    fn resident_bytes(&self) -> usize {
        self.corpus.resident_bytes() + self.tokenizer_bytes
    }

    fn ids(&self) -> Ids<'_> {
        Ids::Tokens
    }

    fn contents(&self) -> Option<Contents> {
        let held_out_sequences = self.held_out_count();
        Some(Contents {
            origin: self.origin.clone(),
            taken: self.taken.clone(),
            tokens: self.corpus.tokens(),
            held_out_tokens: held_out_sequences * (self.length + 1),
            held_out_sequences,
            bytes_of: Some(self.vocabulary)
                .filter(|&ids| ids > OF_BYTES_MAX && self.corpus.is_bytes() && !self.says_bytes),
        })
    }
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
