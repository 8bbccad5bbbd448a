//! Error: the errors of the data of a run, each with a message, a stable code and a way out. Never prints.

use std::io;
use std::path::{Path, PathBuf};

use zero_plan::counted;

use super::kind;
use super::opened::Changed;
use super::structured::Structure;
use crate::{Pointer, hub};

/// An error of opening a dataset. [`DataError::report`] is its text for a person.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant's message names its fields")]
pub enum DataError {
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "{origin} has {tokens} tokens, expected at least {tokens_min}: one training sequence and one held-out \
         sequence of {length} tokens, each with one more to predict"
    )]
    TooShort { origin: String, tokens: usize, tokens_min: usize, length: usize },
    #[error("{origin} has {}, expected at least 2: one, and the next one to predict", counted(*tokens, "token", "tokens"))]
    NothingToPredict { origin: String, tokens: usize },
    /// `vocabulary_min` would be enough for the whole file.
    #[error(
        "{origin} has token id {id} at token {token_offset} (byte {byte_offset}), expected less than the model's \
         vocabulary, which is {vocabulary}"
    )]
    TokenBeyondVocabulary {
        origin: String,
        token_offset: usize,
        byte_offset: usize,
        id: u32,
        vocabulary: usize,
        vocabulary_min: usize,
    },
    #[error(
        "`{}` has {bytes} bytes, expected a multiple of {width}, the bytes of a token id: the last one begins at byte {}",
        path.display(), bytes - bytes % width
    )]
    OddSize { path: PathBuf, bytes: usize, width: usize },
    #[error("`{}` {what}, but is to be read as token ids of {width} bytes", path.display())]
    NoIds { path: PathBuf, what: String, width: usize },
    #[error("no text below `{}` (skipped: {skipped})", directory.display())]
    NoText { directory: PathBuf, skipped: String },
    #[error("{origin} is {bytes} bytes, expected at most {bytes_max} to be held in memory")]
    TooLarge { origin: String, bytes: usize, bytes_max: usize },
    #[error("`{}` {what}, and the bytes of such a file are not text to learn", path.display())]
    NotText { path: PathBuf, what: String, help: &'static str },
    #[error(transparent)]
    Pointer(#[from] Pointer),
    #[error(transparent)]
    Changed(#[from] Changed),
    #[error("`{}` begins like {}, and a model would learn its marks and the names of its fields", path.display(), structure.name())]
    Structured { path: PathBuf, structure: Structure },
    #[error("`{}` is a directory, but token ids must be one file", directory.display())]
    IdsOfDirectory { directory: PathBuf },
    #[error("no Cargo.toml in `{}` or above it, so there is no workspace to take text from", start.display())]
    NoWorkspace { start: PathBuf },
    #[error("an ignore file is not understood: {source}")]
    IgnoreFile { source: ignore::Error },
    #[error("there is no tokenizer `{}`", path.display())]
    NoTokenizerFolder { path: PathBuf },
    #[error("the tokenizer `{}` {what}", path.display())]
    Tokenizer { path: PathBuf, what: String },
    #[error("the tokenizer `{}` is not read: this program was built without tokenizers", path.display())]
    NoTokenizers { path: PathBuf },
    #[error("the token file `{}` {what}", path.display())]
    TokenFile { path: PathBuf, what: String },
    #[error("{origin} has a vocabulary of {vocabulary} tokens, and the model's has {classes}")]
    VocabularyTooLarge { origin: String, vocabulary: usize, classes: usize },
    #[error(
        "the token file `{}` was made with another tokenizer, whose SHA-256 begins with {made_by}, but that of \
         `{}` begins with {given}", path.display(), tokenizer.display()
    )]
    OtherTokenizer { path: PathBuf, made_by: String, tokenizer: PathBuf, given: String },
    #[error("{origin} is {bytes} bytes, expected at most {bytes_max} of text that each rank encodes at its start")]
    TooLargeToEncode { origin: String, bytes: usize, bytes_max: usize },
    #[error("cannot write `{}`: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("the tokenizer `{}` cannot encode {origin} from byte {byte} on: {what}", tokenizer.display())]
    NotEncoded { tokenizer: PathBuf, origin: String, byte: usize, what: String },
}

impl DataError {
    /// For `map_err`.
    pub(super) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| DataError::Unreadable { path: path.to_owned(), source }
    }

    /// For `map_err`.
    pub(super) fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| DataError::Unwritable { path: path.to_owned(), source }
    }

    /// A file that is something other than text.
    pub(super) fn not_text(path: &Path, what: String, help: &'static str) -> Self {
        DataError::NotText { path: path.to_owned(), what, help }
    }

    /// A file whose name says that it is text, but whose byte `byte` is none.
    pub(super) fn no_text_at(path: &Path, byte: usize) -> Self {
        Self::not_text(path, format!("is not text: its byte {byte} is zero, or not UTF-8"), kind::WRITE)
    }

    /// The same error of a text that begins at byte `start` of what is called `origin`.
    #[must_use]
    pub fn within(self, origin: impl FnOnce() -> String, start: usize) -> Self {
        match self {
            DataError::NotEncoded { tokenizer, byte, what, .. } => {
                DataError::NotEncoded { tokenizer, origin: origin(), byte: start + byte, what }
            }
            other => other,
        }
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            DataError::TooLarge { .. } => "Z0334",
            DataError::Unreadable { .. } => "Z0340",
            DataError::TooShort { .. } | DataError::NothingToPredict { .. } => "Z0341",
            DataError::TokenBeyondVocabulary { .. } => "Z0342",
            DataError::OddSize { .. } => "Z0343",
            DataError::NoText { .. } => "Z0344",
            DataError::NoWorkspace { .. } => "Z0345",
            DataError::IgnoreFile { .. } => "Z0346",
            DataError::Structured { .. } => "Z0347",
            DataError::NoIds { .. } => "Z0348",
            DataError::NotText { .. } => "Z0349",
            DataError::IdsOfDirectory { .. } => "Z0355",
            DataError::Pointer(_) => Pointer::CODE,
            DataError::Changed(_) => "Z0357",
            DataError::Tokenizer { .. } | DataError::NoTokenizerFolder { .. } | DataError::NoTokenizers { .. } => {
                "Z0370"
            }
            DataError::TokenFile { .. } => "Z0371",
            DataError::VocabularyTooLarge { .. } => "Z0372",
            DataError::OtherTokenizer { .. } => "Z0373",
            DataError::TooLargeToEncode { .. } => "Z0374",
            DataError::NotEncoded { .. } => "Z0377",
            DataError::Unwritable { .. } => "Z0379",
        }
    }

    /// Its meaning, and how to continue.
    pub fn help(&self) -> String {
        let help = match self {
            DataError::Unreadable { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "let this user read it"
            }
            DataError::Unreadable { .. } => "data is a text file, a directory of text, or a `.bin` file of token ids",
            // The shortest sequence has one token, and needs a text of four.
            DataError::TooShort { tokens: 0..4, .. } | DataError::NothingToPredict { .. } => "give more text",
            DataError::TooShort { tokens, .. } => {
                return format!("give more text, or build with sequences of {} tokens or less", tokens / 2 - 1);
            }
            DataError::TokenBeyondVocabulary { vocabulary_min, .. } => {
                return format!(
                    "build the model with a vocabulary of at least {vocabulary_min}, or encode the text for the \
                     vocabulary it has; a `.bin` file without a known header is little-endian token ids, of 2 bytes, or \
                     of 4 if the vocabulary has more than 65,536 (`--data-as ids16` or `ids32` says otherwise), of text \
                     each byte is a token id"
                );
            }
            DataError::OddSize { .. } => {
                "a `.bin` file is little-endian token ids without a header, of 2 bytes, or of 4 if the vocabulary has more \
                 than 65,536; check whether it was cut off, say another width by `--data-as ids16` or `ids32`, or give \
                 text another name"
            }
            DataError::NoIds { .. } => {
                "say the width by `--data-as ids16` or `--data-as ids32`, or write the ids anew, as little-endian u16 or \
                 u32 and nothing else"
            }
            DataError::NoText { .. } => {
                "text is UTF-8 without zero bytes; a `.bin` file of token ids is given by its own path; `--data-as bytes` \
                 takes every file as it is"
            }
            DataError::TooLarge { .. } => "give it as a file, with --data: files are read where they lie",
            DataError::NotText { help, .. } => {
                return format!("{help}; `--data-as bytes` learns its bytes as they are");
            }
            DataError::Structured { structure: Structure::Lines, .. } => {
                "write the token ids of a field of it to a file, by `cargo zero tokenize --tokenizer .. --as jsonl IN --out \
                 OUT.bin`, and give that; or write the text in it to a file, by `jq -r .text IN > OUT.txt`; `--data-as \
                 text` learns the file as it is"
            }
            DataError::Structured { structure, .. } => {
                return format!(
                    "{}, and the token ids of that to a file, by `cargo zero tokenize`; `--data-as text` learns the file \
                     as it is",
                    structure.remedy()
                );
            }
            DataError::Pointer(_) => Pointer::HELP,
            DataError::Changed(_) => {
                "put back what was there, and go on with --resume from a checkpoint; to change data, write it to a new file"
            }
            DataError::NoTokenizerFolder { .. } => hub::HELP,
            DataError::IdsOfDirectory { .. } => "name one file of it, or join them into one",
            DataError::Tokenizer { .. } => {
                "give a `tokenizer.json` as the library `tokenizers` writes it, or the folder of a model that has one"
            }
            DataError::NoTokenizers { .. } => {
                "build the model with `features = [\"tokenizers\"]` of `zero-runtime` in its Cargo.toml"
            }
            DataError::TokenFile { .. } => {
                "it was cut off, or changed after it was written: make it again, as `cargo zero tokenize` does"
            }
            DataError::VocabularyTooLarge { vocabulary, .. } => {
                return format!(
                    "build the model with a vocabulary of at least {vocabulary}, which may be padded, or take the \
                     tokenizer that the model is for"
                );
            }
            DataError::OtherTokenizer { .. } => {
                "give the tokenizer that it was made with, or make it again with this one: `cargo zero tokenize`"
            }
            DataError::TooLargeToEncode { .. } => {
                "write its ids to a file once, by `cargo zero tokenize --tokenizer .. IN --out OUT.bin`, and give that"
            }
            DataError::Unwritable { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
                "name a file that does not exist yet: none is overwritten"
            }
            DataError::Unwritable { .. } => "name a file in a directory that exists, can be written and has space",
            DataError::NotEncoded { .. } => "take a tokenizer whose vocabulary has all bytes, or leave that text out",
            DataError::NoWorkspace { .. } => "start inside of a cargo workspace, or name the text to train on",
            DataError::IgnoreFile { .. } => "correct that line: files that ignore files name are not used as text",
        };
        help.to_owned()
    }

    /// The whole error as text for a person.
    pub fn report(&self) -> String {
        format!("error[{}]: {self}\n  = help: {}", self.code(), self.help())
    }
}
