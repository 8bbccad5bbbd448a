//! Header: the beginning of a token file, which is compared with the file's length before anything in it is trusted.
//! Never reads an id.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::super::DataError;
use super::super::scan::Encoding;

/// The first bytes of a file of ours.
pub(super) const MAGIC: [u8; 8] = *b"ZEROTOKS";
/// The version that is written and read.
pub(super) const VERSION: u32 = 1;
/// Bytes of our header; ids begin after it.
pub(super) const HEADER_BYTES: usize = 72;
/// Bytes of the number that says where a document ends. It begins at a multiple of 8.
pub(super) const END_BYTES: usize = size_of::<u64>();

/// The headers that llm.c writes (`dev/data/data_common.py`): 256 i32, of which the first is a magic number, the second
/// a version and the third the number of ids, which follow the header.
const LLM_C: [(u32, u32, Encoding); 2] = [(20240520, 1, Encoding::Pair), (20240801, 7, Encoding::Quad)];
/// Bytes of a header of llm.c.
const LLM_C_BYTES: usize = 256 * size_of::<i32>();

/// Ends of documents that are read at a time, to check them.
const ENDS_AT_A_TIME: usize = 1 << 12;

/// A token file's description of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct TokenHeader {
    pub encoding: Encoding,
    /// Where the ids begin, in bytes.
    pub start: usize,
    /// How many there are.
    pub tokens: usize,
    /// How the file was made, which only our own format records.
    pub made: Option<Made>,
}

/// How a file was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Made {
    /// Every id is less.
    pub vocabulary: usize,
    /// SHA-256 of the `tokenizer.json`.
    pub tokenizer: [u8; 32],
}

/// The header of a file, if it begins with a known one.
///
/// # Errors
/// Z0340 if the file cannot be read, Z0371 if the header does not fit the rest of it.
pub(in super::super) fn recognise(file: &File, path: &Path) -> Result<Option<TokenHeader>, DataError> {
    let mut bytes = [0; HEADER_BYTES];
    let length = read(file, &mut bytes).map_err(DataError::unreadable(path))?;
    let file_bytes = file.metadata().map_err(DataError::unreadable(path))?.len();
    let broken = |what: String| DataError::TokenFile { path: path.to_owned(), what };
    if length >= MAGIC.len() && bytes.starts_with(&MAGIC) {
        let header = if length < HEADER_BYTES { Err(CUT_OFF.to_owned()) } else { ours(&bytes, file_bytes) };
        let (header, ends) = header.map_err(broken)?;
        check_ends(file, &ends, header.tokens as u64).map_err(DataError::unreadable(path))?.map_err(broken)?;
        return Ok(Some(header));
    }
    // A file of bare ids may begin with a magic number by chance, so the version is checked too.
    let known = LLM_C.into_iter().find(|(magic, version, _)| word(&bytes, 0) == *magic && word(&bytes, 4) == *version);
    match known {
        Some((_, _, encoding)) if length >= 12 => {
            let tokens = u64::from(word(&bytes, 8));
            let expected = tokens * encoding.bytes() as u64 + LLM_C_BYTES as u64;
            fits("a header of llm.c", tokens, expected, file_bytes).map_err(broken)?;
            Ok(Some(TokenHeader { encoding, start: LLM_C_BYTES, tokens: tokens as usize, made: None }))
        }
        _ => Ok(None),
    }
}

/// The fault of a file that has only a part of its header.
const CUT_OFF: &str = "ends within its header";

/// Where the ends of documents are.
struct Ends {
    start: u64,
    count: u64,
}

/// Reads our header; returns the text of an error if it cannot be true.
fn ours(bytes: &[u8; HEADER_BYTES], file_bytes: u64) -> Result<(TokenHeader, Ends), String> {
    let version = word(bytes, 8);
    if version != VERSION {
        return Err(format!("has version {version} of the format, expected {VERSION}"));
    }
    let encoding = match word(bytes, 12) {
        2 => Encoding::Pair,
        4 => Encoding::Quad,
        width => return Err(format!("has ids of {width} bytes, expected 2 or 4")),
    };
    let (vocabulary, tokens, documents) = (number(bytes, 16), number(bytes, 24), number(bytes, 32));
    let ids_max = 1u64 << (8 * encoding.bytes());
    if vocabulary == 0 || vocabulary > ids_max {
        return Err(format!("has a vocabulary of {vocabulary}, expected 1 to {ids_max}"));
    }
    let ids = tokens.checked_mul(encoding.bytes() as u64);
    let ends_start = ids.and_then(|ids| (HEADER_BYTES as u64).checked_add(ids)?.checked_next_multiple_of(8));
    let expected = ends_start.and_then(|start| documents.checked_mul(END_BYTES as u64)?.checked_add(start));
    let (Some(start), Some(expected)) = (ends_start, expected) else {
        return Err(format!("says that it has {tokens} ids and {documents} documents, which no file has"));
    };
    fits("its header", tokens, expected, file_bytes)?;
    let tokenizer = bytes[40..].try_into().expect("32 bytes");
    let made = Made { vocabulary: vocabulary as usize, tokenizer };
    let header = TokenHeader { encoding, start: HEADER_BYTES, tokens: tokens as usize, made: Some(made) };
    Ok((header, Ends { start, count: documents }))
}

fn fits(what: &str, tokens: u64, expected: u64, file_bytes: u64) -> Result<(), String> {
    if expected == file_bytes {
        return Ok(());
    }
    Err(format!("has {file_bytes} bytes, expected {expected}: {what} says that there are {tokens} ids"))
}

/// Checks that documents end one after another, the last one with the last id; returns the text of an error if they
/// do not.
fn check_ends(file: &File, ends: &Ends, tokens: u64) -> io::Result<Result<(), String>> {
    let mut buffer = vec![0; END_BYTES * ends.count.min(ENDS_AT_A_TIME as u64) as usize];
    let (mut before, mut next) = (0, 0);
    while next < ends.count {
        let count = (ends.count - next).min(ENDS_AT_A_TIME as u64);
        let bytes = &mut buffer[..END_BYTES * count as usize];
        file.read_exact_at(bytes, ends.start + next * END_BYTES as u64)?;
        for (i, end) in bytes.as_chunks().0.iter().map(|end| u64::from_le_bytes(*end)).enumerate() {
            if end < before || end > tokens {
                let document = next + i as u64;
                return Ok(Err(format!(
                    "says that document {document} ends at id {end}, expected {before} to {tokens}"
                )));
            }
            before = end;
        }
        next += count;
    }
    let ends_with_ids = before == tokens;
    Ok(if ends_with_ids { Ok(()) } else { Err(format!("has {tokens} ids, but its last document ends at {before}")) })
}

/// Reads the beginning of a file; fewer bytes if the file is shorter.
fn read(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read_at(&mut buffer[length..], length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}
