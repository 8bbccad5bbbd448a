//! Encoder: parts of documents in, ids in a token file out, in order. Never reads a file.

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use zero_files::data::{DataError, LongWord, TokenFileWriter, Tokenizer, encode_piece};

use super::documents::{DocumentPart, PartPlace};
use crate::error::CommandError;

/// Bytes of text that a thread encodes at a time, if the tokenizer allows text to be cut.
const PIECE_BYTES: usize = 16 << 10;

/// Encodes parts and writes their ids.
pub struct Encoder<'t> {
    pub tokenizer: &'t Tokenizer,
    /// The id that follows each document, if any.
    pub separator: Option<u32>,
    pub writer: TokenFileWriter,
    /// The word in which the last part ended, and where it begins.
    pub word: Option<(LongWord<'t>, PartPlace)>,
}

impl Encoder<'_> {
    /// Encodes a batch by all threads of the pool that this is called in, and writes its ids.
    pub fn add(&mut self, batch: &[DocumentPart]) -> Result<(), CommandError> {
        let mut rest = batch;
        while let Some(first) = rest.first() {
            let whole = if self.word.is_some() { 0 } else { rest.iter().take_while(|part| !part.is_open).count() };
            let (now, later) = rest.split_at(whole.max(1));
            if whole == 0 {
                self.long(first)?
            } else {
                self.parts(now, 0)?
            }
            rest = later;
        }
        Ok(())
    }

    /// Parts that end where a word does. Of the first one, the text before `start` is left out.
    fn parts(&mut self, parts: &[DocumentPart], start: usize) -> Result<(), CommandError> {
        let mut pieces: Vec<(Vec<&str>, usize)> = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            let start = if number == 0 { start } else { 0 };
            pieces.push((self.tokenizer.pieces(&part.text[start..], PIECE_BYTES).collect(), start));
        }
        let flat: Vec<&str> = pieces.iter().flat_map(|(pieces, _)| pieces).copied().collect();
        let encoded: Vec<Result<Vec<u32>, DataError>> =
            flat.par_iter().map(|piece| encode_piece(self.tokenizer, piece)).collect();
        let mut encoded = encoded.into_iter();
        for (part, (pieces, start)) in parts.iter().zip(pieces) {
            let mut start = start;
            for (piece, ids) in pieces.iter().zip(encoded.by_ref()) {
                self.writer.add(&ids.map_err(|error| part.place.locate(error, start))?)?;
                start += piece.len();
            }
            self.end(part)?;
        }
        Ok(())
    }

    /// A part with which a long word goes on, or with which one begins.
    fn long(&mut self, part: &DocumentPart) -> Result<(), CommandError> {
        let begin = |at: usize| (LongWord::new(self.tokenizer), part.place.after(at));
        let (mut word, place) = self.word.take().unwrap_or_else(|| begin(0));
        let cut = self.tokenizer.cuts().and_then(|cuts| cuts.first(word.last(), &part.text, 0));
        let (of_word, rest) = part.text.split_at(cut.unwrap_or(part.text.len()));
        let mut ids = Vec::new();
        word.add(of_word, &mut ids).map_err(|error| place.locate(error, 0))?;
        if cut.is_none() && part.is_open {
            self.word = Some((word, place));
            return Ok(self.writer.add(&ids)?);
        }
        word.end(&mut ids).map_err(|error| place.locate(error, 0))?;
        self.writer.add(&ids)?;
        if !part.is_open {
            return self.parts(std::slice::from_ref(part), of_word.len());
        }
        let (mut word, place, mut ids) = (LongWord::new(self.tokenizer), part.place.after(of_word.len()), Vec::new());
        word.add(rest, &mut ids).map_err(|error| place.locate(error, 0))?;
        self.word = Some((word, place));
        Ok(self.writer.add(&ids)?)
    }

    fn end(&mut self, part: &DocumentPart) -> Result<(), CommandError> {
        if part.ends {
            self.separator.map_or(Ok(()), |id| self.writer.add(&[id]))?;
            self.writer.end_document()?;
        }
        Ok(())
    }
}
