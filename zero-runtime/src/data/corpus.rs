//! Corpus: all tokens of a run, opened and checked once, then copied out piece by piece. Never splits or draws.

use std::borrow::Cow;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;

use memmap2::Mmap;

use super::error::DataError;
use super::tree::for_each_text;

/// Token ids, all of them less than the vocabulary they were opened with.
pub(super) enum Corpus {
    /// Each byte is a token id.
    Bytes(Cow<'static, [u8]>),
    /// A file of little-endian u16 token ids.
    Mapped(Mmap),
}

impl Corpus {
    /// The text file, directory of text or `.bin` file at `path`.
    pub(super) fn open(path: &Path, vocabulary: usize) -> Result<Self, DataError> {
        let kind = fs::metadata(path).map_err(DataError::unreadable(path))?;
        if kind.is_dir() {
            Self::join(path, vocabulary)
        } else if !kind.is_file() {
            // Else ranks would share out what a pipe gives once, and a device may never end.
            let source = io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a directory");
            Err(DataError::Unreadable { path: path.to_owned(), source })
        } else if path.extension().is_some_and(|extension| extension == "bin") {
            Self::map(path, vocabulary)
        } else {
            let text = fs::read(path).map_err(DataError::unreadable(path))?;
            Self::bytes(text.into(), &origin(path), vocabulary)
        }
    }

    /// Bytes as token ids. `origin` names them in errors.
    pub(super) fn bytes(bytes: Cow<'static, [u8]>, origin: &str, vocabulary: usize) -> Result<Self, DataError> {
        check_bytes(&bytes, origin, vocabulary)?;
        Ok(Corpus::Bytes(bytes))
    }

    /// A number that differs where ids do.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        match self {
            Corpus::Bytes(bytes) => bytes.hash(&mut hasher),
            Corpus::Mapped(ids) => ids.hash(&mut hasher),
        }
        hasher.finish()
    }

    /// All text below `directory`, one after another in the order of their paths.
    fn join(directory: &Path, vocabulary: usize) -> Result<Self, DataError> {
        let mut joined = Vec::new();
        let all = |_: &Path| true;
        for_each_text(directory, all, |path, text| {
            check_bytes(text.as_bytes(), &origin(path), vocabulary)?;
            joined.extend_from_slice(text.as_bytes());
            Ok(())
        })?;
        Ok(Corpus::Bytes(joined.into()))
    }

    #[expect(unsafe_code, reason = "only a mapping lets ranks share one copy of a large file")]
    fn map(path: &Path, vocabulary: usize) -> Result<Self, DataError> {
        let file = File::open(path).map_err(DataError::unreadable(path))?;
        // SAFETY: the mapping is read-only and lives as long as `Corpus`, so nothing in this process can change what it
        // lends. Another process that rewrites the file breaks the contract of `Text::open`; as any bytes are ids, which
        // are checked again once copied, it can change what is trained on or end this process, but not where it reads.
        let ids = unsafe { Mmap::map(&file) }.map_err(DataError::unreadable(path))?;
        if !ids.len().is_multiple_of(2) {
            return Err(DataError::OddSize { path: path.to_owned(), bytes: ids.len() });
        }
        let vocabulary_min = decoded(&ids).max().map_or(0, |largest| largest as usize + 1);
        check(decoded(&ids), 2, &origin(path), vocabulary, vocabulary_min)?;
        Ok(Corpus::Mapped(ids))
    }

    /// Number of tokens.
    pub(super) fn tokens(&self) -> usize {
        match self {
            Corpus::Bytes(bytes) => bytes.len(),
            Corpus::Mapped(ids) => ids.len() / 2,
        }
    }

    /// Copies the tokens from `start` on into all of `out`.
    pub(super) fn copy(&self, start: usize, out: &mut [u32]) {
        let end = start + out.len();
        match self {
            Corpus::Bytes(bytes) => fill(out, bytes[start..end].iter().copied().map(u32::from)),
            Corpus::Mapped(ids) => fill(out, decoded(&ids[2 * start..2 * end])),
        }
    }
}

/// How errors name a file.
pub(super) fn origin(path: &Path) -> String {
    format!("`{}`", path.display())
}

fn decoded(ids: &[u8]) -> impl Iterator<Item = u32> {
    ids.as_chunks().0.iter().map(|&id| u32::from(u16::from_le_bytes(id)))
}

fn fill(out: &mut [u32], tokens: impl Iterator<Item = u32>) {
    for (out, token) in out.iter_mut().zip(tokens) {
        *out = token;
    }
}

fn check_bytes(bytes: &[u8], origin: &str, vocabulary: usize) -> Result<(), DataError> {
    check(bytes.iter().copied().map(u32::from), 1, origin, vocabulary, 256)
}

/// Z0342 for the first id that is not less than `vocabulary`, without a look if `vocabulary_min` says that all are.
fn check(
    ids: impl Iterator<Item = u32>,
    bytes_per_token: usize,
    origin: &str,
    vocabulary: usize,
    vocabulary_min: usize,
) -> Result<(), DataError> {
    if vocabulary >= vocabulary_min {
        return Ok(());
    }
    match ids.enumerate().find(|&(_, id)| id as usize >= vocabulary) {
        None => Ok(()),
        Some((token_offset, id)) => Err(DataError::TokenBeyondVocabulary {
            origin: origin.to_owned(),
            token_offset,
            byte_offset: token_offset * bytes_per_token,
            id,
            vocabulary,
            vocabulary_min,
        }),
    }
}
