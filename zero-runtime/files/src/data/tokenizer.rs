//! Tokenizer: converts text to token ids and back, as a published `tokenizer.json` says, by the library that such files
//! are written for. Never learns a vocabulary.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::DataError;
use super::cut::{Cuts, PlacedIds};
use super::vocabulary::{self, Unencoded, Vocabulary};
use crate::resident::growth;
use crate::{Pointer, hub};

/// The name of the file in a folder of a published model.
pub const TOKENIZER: &str = "tokenizer.json";

/// The tokens by which published vocabularies end a document, in the order in which they are looked for.
const ENDS: [&str; 4] = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>"];

/// Bytes that are allocated while one byte of text is encoded, when all of it is encoded at once: an estimate that is meant
/// as a bound.
const ENCODING_PER_BYTE: usize = 256;

/// A vocabulary, and the rules by which text becomes ids of it.
///
/// Special tokens that are written out in a text become their own ids. Nothing is added to a text: no token for its
/// beginning or its end.
pub struct Tokenizer {
    inner: Vocabulary,
    path: PathBuf,
    hash: [u8; 32],
    resident_bytes: usize,
    vocabulary: usize,
    cuts: Option<Cuts>,
}

impl Tokenizer {
    /// The tokenizer in `path`: a `tokenizer.json`, or a folder with one.
    ///
    /// # Errors
    /// Z0370 if there is none, if the library does not understand it, if its encoding is random (`dropout`), so that
    /// ranks would not agree, or if this program was built without the library.
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let path = if path.is_dir() { path.join(TOKENIZER) } else { path.to_owned() };
        if hub::may_have(&path) {
            return Err(DataError::NoTokenizerFolder { path });
        }
        let content = fs::read_to_string(&path).map_err(|error| {
            let what = format!("cannot be read: {error}");
            DataError::Tokenizer { path: path.clone(), what }
        })?;
        Pointer::of(&path, content.as_bytes()).map_or(Ok(()), Err)?;
        Self::of(path, &content)
    }

    /// The tokenizer that a `tokenizer.json` has as its content; errors name `path`.
    ///
    /// # Errors
    /// Z0370 as [`Tokenizer::open`].
    pub fn of(path: PathBuf, content: &str) -> Result<Self, DataError> {
        if !vocabulary::IS_THERE {
            return Err(DataError::NoTokenizers { path });
        }
        let refused = |what: String| DataError::Tokenizer { path: path.clone(), what };
        // The kinds of vocabularies differ: one took 13 bytes for each byte of its file, and another 80.
        let (tokenizer, resident_bytes) = growth(|| {
            let inner = Vocabulary::parse(content).map_err(refused)?;
            let vocabulary = inner.ids();
            if vocabulary == 0 {
                return Err(refused("has no tokens".to_owned()));
            }
            let (hash, cuts, path) = (Sha256::digest(content).into(), inner.cuts(), path.clone());
            Ok(Self { inner, hash, resident_bytes: 0, vocabulary, cuts, path })
        });
        Ok(Self { resident_bytes, ..tokenizer? })
    }

    /// The number of ids: one more than the largest.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    /// SHA-256 of the file.
    pub fn hash(&self) -> [u8; 32] {
        self.hash
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The ids of a text.
    ///
    /// # Errors
    /// Z0377 if the vocabulary has no ids for something in it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        self.inner.encode(text).map_err(|unencoded| self.not_encoded(unencoded))
    }

    /// The text in stretches of about `bytes` that can be encoded one by one: their ids, joined, are those of the
    /// whole. If the tokenizer is not known to allow it, the whole text is one stretch.
    pub fn pieces<'t>(&self, text: &'t str, bytes: usize) -> impl Iterator<Item = &'t str> + use<'t> {
        let bytes = if self.cuts.is_some() { bytes } else { usize::MAX };
        self.cuts.unwrap_or(Cuts::NONE).pieces(text, bytes)
    }

    /// The places where [`Tokenizer::pieces`] cuts, if it does.
    pub fn cuts(&self) -> Option<Cuts> {
        self.cuts
    }

    /// [`Tokenizer::encode`], and for each id the bytes that it stands for.
    pub(super) fn encode_with_places(&self, text: &str) -> Result<PlacedIds, DataError> {
        self.inner.encode_with_places(text).map_err(|unencoded| self.not_encoded(unencoded))
    }

    /// The error of a stretch from byte `byte` on that has no place where it can be cut, or encoded in windows.
    pub(super) fn too_long(&self, byte: usize, bytes: usize) -> DataError {
        let what = format!("for {bytes} bytes no word ends, and they are not all letters");
        self.not_encoded(Unencoded { byte, what })
    }

    fn not_encoded(&self, Unencoded { byte, what }: Unencoded) -> DataError {
        DataError::NotEncoded { tokenizer: self.path.clone(), origin: "a text".to_owned(), byte, what }
    }

    /// The id of a token of the vocabulary.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.id(token)
    }

    /// The token by which a document ends, and its id: the first of `<|endoftext|>`, `<|end_of_text|>`, `</s>` and
    /// `<|im_end|>` that the vocabulary has.
    pub fn end_of_text(&self) -> Option<(&'static str, u32)> {
        ENDS.into_iter().find_map(|token| Some((token, self.id(token)?)))
    }

    /// The text of ids. Ids that the vocabulary does not have, such as those of a padded model, are left out.
    pub fn decode(&self, ids: &[u32]) -> String {
        self.inner.decode(ids)
    }

    /// Turns ids that arrive one by one into text.
    pub fn stream(&self) -> TokenStream<'_> {
        TokenStream { tokenizer: self, ids: Vec::new(), shown: 0 }
    }

    /// The bytes of memory that this process has taken to read it, as they were measured then.
    pub fn resident_bytes(&self) -> usize {
        self.resident_bytes
    }

    /// An upper bound on the bytes that are allocated while a piece of `bytes` is encoded.
    pub(super) fn encoding_bytes(bytes: usize) -> usize {
        bytes * ENCODING_PER_BYTE
    }
}

/// This many pending ids are shown even if they make no whole character: a character has at most four bytes, and a
/// token at least one.
const PENDING_MAX: usize = 4;

/// Turns ids that arrive one by one into text. A character whose bytes are in several tokens is shown when it is whole.
pub struct TokenStream<'t> {
    tokenizer: &'t Tokenizer,
    /// The ids that were shown last, because the text of a token may depend on the token before it, and the ids that were
    /// not shown yet.
    ids: Vec<u32>,
    /// How many of `ids` were shown.
    shown: usize,
}

impl TokenStream<'_> {
    /// The text that can be shown after `id` has arrived; it may be empty.
    pub fn next(&mut self, id: u32) -> String {
        let before = self.tokenizer.decode(&self.ids[..self.shown]);
        self.ids.push(id);
        let text = self.tokenizer.decode(&self.ids);
        let is_whole = !text.ends_with(char::REPLACEMENT_CHARACTER) || self.ids.len() - self.shown >= PENDING_MAX;
        match text.strip_prefix(&before) {
            Some(new) if is_whole => {
                let new = new.to_owned();
                self.ids.drain(..self.shown);
                self.shown = self.ids.len();
                new
            }
            // Text that was shown cannot be taken back, so this starts again with the ids that were not shown.
            None => {
                self.ids.drain(..self.shown);
                self.shown = self.ids.len();
                self.tokenizer.decode(&self.ids)
            }
            Some(_) => String::new(),
        }
    }

    /// The text that was held back to wait for a whole character, once no more ids come.
    pub fn end(self) -> String {
        let shown = self.tokenizer.decode(&self.ids[..self.shown]);
        let text = self.tokenizer.decode(&self.ids);
        text.strip_prefix(&shown).unwrap_or(&text).to_owned()
    }
}

#[cfg(test)]
#[path = "tokenizer_tests.rs"]
mod tests;
