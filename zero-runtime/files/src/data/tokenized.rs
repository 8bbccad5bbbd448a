//! Tokenized: text that is small enough to be encoded in memory, by each rank at its start. Never writes a file.

use std::fs;
use std::path::{Path, PathBuf};

use zero_plan::footprint::DATA_BYTES;

use super::DataAs;
use super::contents::TakenFiles;
use super::corpus::{Corpus, origin, scan_text};
use super::error::DataError;
use super::scan::{Encoding, Scan};
use super::tokenizer::Tokenizer;
use super::tree::{Files, for_each_text};

/// Bytes of a text that are encoded at a time, where a tokenizer allows it to be cut.
const PIECE_BYTES: usize = 64 << 10;

/// A vocabulary that has all bytes, so that a scan does not look at them as ids.
const BYTES: usize = 256;

/// Documents, each followed by the tokenizer's end of a text, if it has one.
pub(super) struct Documents<'t> {
    tokenizer: &'t Tokenizer,
    /// How errors name all of them together.
    origin: String,
    encoding: Encoding,
    ids: Vec<u8>,
    text_bytes: usize,
    longest_piece: usize,
}

impl<'t> Documents<'t> {
    /// No documents yet.
    pub(super) fn new(tokenizer: &'t Tokenizer, origin: String) -> Self {
        let encoding = Encoding::of(tokenizer.vocabulary());
        Self { tokenizer, origin, encoding, ids: Vec::new(), text_bytes: 0, longest_piece: 0 }
    }

    /// Adds a document, which errors call `origin`.
    ///
    /// # Errors
    /// Z0374 if there is too much text, Z0377 if it cannot be encoded.
    pub(super) fn add(&mut self, text: &str, origin: &str) -> Result<(), DataError> {
        self.require_room(text.len())?;
        self.text_bytes += text.len();
        let mut start = 0;
        for piece in self.tokenizer.pieces(text, PIECE_BYTES) {
            self.longest_piece = self.longest_piece.max(piece.len());
            let ids = self.tokenizer.encode(piece).map_err(|error| error.within(|| origin.to_owned(), start))?;
            start += piece.len();
            ids.into_iter().for_each(|id| self.push(id));
        }
        self.tokenizer.end_of_text().into_iter().for_each(|(_, end)| self.push(end));
        Ok(())
    }

    /// Adds the file at `path`, which is text.
    fn file(&mut self, path: &Path, scan: &Scan) -> Result<(), DataError> {
        self.require_room(scan.bytes)?;
        let text = fs::read_to_string(path).map_err(DataError::unreadable(path))?;
        self.add(&text, &origin(path))
    }

    fn require_room(&self, bytes: usize) -> Result<(), DataError> {
        let bytes = self.text_bytes + bytes;
        if bytes <= DATA_BYTES {
            return Ok(());
        }
        Err(DataError::TooLargeToEncode { origin: self.origin.clone(), bytes, bytes_max: DATA_BYTES })
    }

    fn push(&mut self, id: u32) {
        self.ids.extend_from_slice(&id.to_le_bytes()[..self.encoding.bytes()]);
    }

    /// All documents as a corpus.
    ///
    /// `taken` are the files that they came from.
    pub(super) fn into_corpus(self, taken: &TakenFiles) -> Corpus {
        let encoding_bytes = Tokenizer::encoding_bytes(self.longest_piece);
        let resident_bytes = self.ids.capacity() + encoding_bytes + taken.resident_bytes();
        Corpus::ids(self.ids, self.encoding, resident_bytes)
    }
}

/// The text file at `path`: one document.
///
/// # Errors
/// Those of [`scan_text`] and [`Documents::add`].
pub(super) fn file(path: &Path, data_as: Option<DataAs>, tokenizer: &Tokenizer) -> Result<Corpus, DataError> {
    let mut documents = Documents::new(tokenizer, origin(path));
    let (_, scan) = scan_text(path, data_as, BYTES)?;
    documents.file(path, &scan)?;
    Ok(documents.into_corpus(&TakenFiles::one()))
}

/// The text files below `directory`, each a document, in the order of their paths.
///
/// # Errors
/// Those of [`for_each_text`] and [`Documents::add`].
pub(super) fn directory(
    directory: &Path,
    files: Files,
    tokenizer: &Tokenizer,
) -> Result<(Corpus, TakenFiles), DataError> {
    let mut documents = Documents::new(tokenizer, format!("the text below {}", origin(directory)));
    let add = |path: PathBuf, scan: Scan| documents.file(&path, &scan);
    let taken = for_each_text(directory, files, |_| true, BYTES, add)?;
    Ok((documents.into_corpus(&taken), taken))
}
