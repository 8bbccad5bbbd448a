//! Corpus: all tokens of a run, checked once, then copied out piece by piece. Tokens in files are read when they are
//! drawn, so that they stay in the system's page cache, which all ranks of a host share. Never splits or draws.

use std::borrow::Cow;
use std::fs;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use zero_plan::Fingerprint;
use zero_plan::footprint::DATA_BYTES;

use super::DataAs;
use super::bare::scan_ids;
use super::contents::TakenFiles;
use super::error::DataError;
use super::kind;
use super::opened::{Changed, OpenedFile};
use super::scan::{Encoding, Scan};
use super::tokenized;
use super::tokenizer::Tokenizer;
use super::tokens::{self, TokenHeader};
use super::tree::{Files, for_each_file, for_each_text, require_text};

/// What is drawn in place of a token that cannot be read.
const NO_TOKEN: u32 = u32::MAX;

/// Token ids, all of them less than the vocabulary they were opened with.
pub(super) struct Corpus {
    source: CorpusSource,
    vocabulary: usize,
    /// The first change that was found. From then on, nothing is read.
    changed: OnceLock<Changed>,
    tokens: usize,
    fingerprint: u64,
    /// Bytes in memory beyond the room that a plan has for data.
    resident_bytes: usize,
}

enum CorpusSource {
    /// Encoded ids.
    Memory(Cow<'static, [u8]>, Encoding),
    /// One file, and what is in it before the ids.
    File { file: OpenedFile, encoding: Encoding, header: Vec<u8> },
    /// Text files one after another. As many of them stay open as a process can have.
    Files(Vec<CorpusFile>),
}

/// A text file of a directory.
struct CorpusFile {
    file: OpenedFile,
    /// The first token after it.
    end: usize,
}

impl Corpus {
    /// Opens the text file, directory of text or `.bin` file at `path`, or reads it as `data_as` says. Also returns the
    /// files that were taken. Text becomes ids of `tokenizer`, if there is one.
    pub(super) fn open(
        path: &Path,
        data_as: Option<DataAs>,
        tokenizer: Option<&Tokenizer>,
        vocabulary: usize,
    ) -> Result<(Self, TakenFiles), DataError> {
        let found = fs::metadata(path).map_err(DataError::unreadable(path))?;
        if found.is_dir() {
            return match (text_files(data_as), tokenizer) {
                (Some(files), Some(tokenizer)) => tokenized::directory(path, files, tokenizer),
                (files, _) => Self::directory(path, files, data_as, vocabulary),
            };
        }
        if !found.is_file() {
            // A pipe can be read only once, so each rank would get a part of it. A device may never end.
            let source = io::Error::new(io::ErrorKind::InvalidInput, "neither a file nor a directory");
            return Err(DataError::Unreadable { path: path.to_owned(), source });
        }
        Ok((Self::file(path, data_as, tokenizer, vocabulary)?, TakenFiles::one()))
    }

    /// Bytes as token ids. `origin` names them in errors.
    pub(super) fn bytes(bytes: Cow<'static, [u8]>, origin: &str, vocabulary: usize) -> Result<Self, DataError> {
        if bytes.len() > DATA_BYTES {
            return Err(DataError::TooLarge { origin: origin.to_owned(), bytes: bytes.len(), bytes_max: DATA_BYTES });
        }
        let mut scan = Scan::new(Encoding::Byte, vocabulary);
        scan.add(&bytes);
        check(&scan, Encoding::Byte, 0, origin, vocabulary)?;
        let (tokens, fingerprint) = (bytes.len(), scan.hash());
        Ok(Self::new(CorpusSource::Memory(bytes, Encoding::Byte), tokens, fingerprint, vocabulary))
    }

    /// Ids in memory, encoded by `encoding`, which take `resident_bytes` there. They must be ids of a tokenizer whose
    /// vocabulary is no larger than the model's.
    pub(super) fn ids(bytes: Vec<u8>, encoding: Encoding, resident_bytes: usize) -> Self {
        let mut scan = Scan::new(Encoding::Byte, usize::MAX);
        scan.add(&bytes);
        let tokens = bytes.len() / encoding.bytes();
        let source = CorpusSource::Memory(Cow::Owned(bytes), encoding);
        Self { resident_bytes, ..Self::new(source, tokens, scan.hash(), usize::MAX) }
    }

    fn new(source: CorpusSource, tokens: usize, fingerprint: u64, vocabulary: usize) -> Self {
        Self { source, vocabulary, changed: OnceLock::new(), tokens, fingerprint, resident_bytes: 0 }
    }

    /// The token file at `path`; `None` if the file is not one. If `tokenizer` is known, the file must have been made with
    /// it.
    fn token_file(path: &Path, tokenizer: Option<&Tokenizer>, vocabulary: usize) -> Result<Option<Self>, DataError> {
        let unreadable = || DataError::unreadable(path);
        let opened = OpenedFile::open(path)?;
        let mut file = opened.file();
        let Some(TokenHeader { encoding, start, tokens, made }) = tokens::recognise(file, path)? else {
            return Ok(None);
        };
        if let Some(made) = made.filter(|made| made.vocabulary > vocabulary) {
            let origin = format!("the token file {}", origin(path));
            return Err(DataError::VocabularyTooLarge { origin, vocabulary: made.vocabulary, classes: vocabulary });
        }
        if let (Some(made), Some(given)) = (made, tokenizer)
            && made.tokenizer != given.hash()
        {
            let (made_by, tokenizer) = (tokens::short(&made.tokenizer), given.path().to_owned());
            return Err(DataError::OtherTokenizer {
                path: path.to_owned(),
                made_by,
                tokenizer,
                given: tokens::short(&given.hash()),
            });
        }
        let mut header = vec![0; start];
        file.read_exact_at(&mut header, 0).map_err(unreadable())?;
        file.seek(SeekFrom::Start(start as u64)).map_err(unreadable())?;
        let ids = &mut file.take((tokens * encoding.bytes()) as u64);
        let scan = Scan::file(ids, encoding, made.map_or(vocabulary, |made| made.vocabulary)).map_err(unreadable())?;
        match (made, scan.beyond) {
            (Some(made), Some((at, id))) => {
                let what = format!("has id {id} at {at}, but says that its vocabulary is {}", made.vocabulary);
                return Err(DataError::TokenFile { path: path.to_owned(), what });
            }
            _ => check(&scan, encoding, start, &origin(path), vocabulary)?,
        }
        let source = CorpusSource::File { file: opened, encoding, header };
        Ok(Some(Self::new(source, tokens, scan.hash(), vocabulary)))
    }

    fn file(
        path: &Path,
        data_as: Option<DataAs>,
        tokenizer: Option<&Tokenizer>,
        vocabulary: usize,
    ) -> Result<Self, DataError> {
        if data_as.is_none()
            && let Some(ids) = Self::token_file(path, tokenizer, vocabulary)?
        {
            return Ok(ids);
        }
        let is_ids = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("bin"));
        let is_text = data_as == Some(DataAs::Text) || data_as.is_none() && !is_ids;
        let (file, scan, encoding) = match (is_text, tokenizer) {
            (true, Some(tokenizer)) => return tokenized::file(path, data_as, tokenizer),
            (true, None) => {
                let (file, scan) = scan_text(path, data_as, vocabulary)?;
                (file, scan, Encoding::Byte)
            }
            (false, _) => scan_ids(path, data_as, vocabulary)?,
        };
        check(&scan, encoding, 0, &origin(path), vocabulary)?;
        let source = CorpusSource::File { file, encoding, header: Vec::new() };
        Ok(Self::new(source, scan.bytes / encoding.bytes(), scan.hash(), vocabulary))
    }

    /// The text `files` below `directory`, or all files for [`DataAs::Bytes`], joined in the order of their paths.
    fn directory(
        directory: &Path,
        files: Option<Files>,
        data_as: Option<DataAs>,
        vocabulary: usize,
    ) -> Result<(Self, TakenFiles), DataError> {
        let (mut pieces, mut end, mut fingerprint) = (Vec::new(), 0, Fingerprint::default());
        let open_max = OpenedFile::count_max();
        let add = |path: PathBuf, scan: Scan| {
            check(&scan, Encoding::Byte, 0, &origin(&path), vocabulary)?;
            end += scan.bytes;
            fingerprint.add(&scan.hash().to_le_bytes());
            let file = OpenedFile::open(&path)?;
            file.require_bytes(scan.bytes)?;
            pieces.push(CorpusFile { file: if pieces.len() < open_max { file } else { file.closed() }, end });
            Ok(())
        };
        let taken = match files {
            Some(files) => for_each_text(directory, files, |_| true, vocabulary, add)?,
            None if data_as == Some(DataAs::Bytes) => for_each_file(directory, vocabulary, add)?,
            None => return Err(DataError::IdsOfDirectory { directory: directory.to_owned() }),
        };
        let (source, fingerprint) = (CorpusSource::Files(pieces), fingerprint.finish());
        let resident_bytes = taken.resident_bytes();
        Ok((Self { resident_bytes, ..Self::new(source, end, fingerprint, vocabulary) }, taken))
    }

    /// A hash of all tokens.
    pub(super) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Bytes that it holds in memory beyond the room that a plan has for data.
    pub(super) fn resident_bytes(&self) -> usize {
        self.resident_bytes
    }

    /// Number of tokens.
    pub(super) fn tokens(&self) -> usize {
        self.tokens
    }

    /// Whether each of its tokens is a byte.
    pub(super) fn is_bytes(&self) -> bool {
        match &self.source {
            CorpusSource::Memory(_, encoding) | CorpusSource::File { encoding, .. } => *encoding == Encoding::Byte,
            CorpusSource::Files(_) => true,
        }
    }

    /// Copies the tokens from `start` on into all of `out`. If a file has changed so that it cannot, fills `out` with [`NO_TOKEN`], which
    /// no model takes, and [`Corpus::require_unchanged`] says why.
    pub(super) fn copy(&self, start: usize, out: &mut [u32]) {
        if self.changed.get().is_none() {
            match self.read(start, out) {
                Ok(()) => return,
                Err(changed) => drop(self.changed.set(changed)),
            }
        }
        out.fill(NO_TOKEN);
    }

    fn read(&self, start: usize, out: &mut [u32]) -> Result<(), Changed> {
        match &self.source {
            CorpusSource::Memory(bytes, encoding) => {
                let width = encoding.bytes();
                encoding.decode(&bytes[start * width..(start + out.len()) * width], |i, id| out[i] = id);
                Ok(())
            }
            CorpusSource::File { file, encoding, header } => self.read_ids(file, *encoding, header.len(), start, out),
            CorpusSource::Files(pieces) => self.read_pieces(pieces, start, out),
        }
    }

    fn read_pieces(&self, pieces: &[CorpusFile], mut start: usize, mut out: &mut [u32]) -> Result<(), Changed> {
        let mut next = pieces.partition_point(|piece| piece.end <= start);
        while !out.is_empty() {
            let CorpusFile { file, end } = &pieces[next];
            let first = next.checked_sub(1).map_or(0, |before| pieces[before].end);
            let (here, rest) = out.split_at_mut(out.len().min(end - start));
            self.read_ids(file, Encoding::Byte, 0, start - first, here)?;
            (start, out, next) = (start + here.len(), rest, next + 1);
        }
        Ok(())
    }

    fn read_ids(
        &self,
        file: &OpenedFile,
        encoding: Encoding,
        base: usize,
        start: usize,
        out: &mut [u32],
    ) -> Result<(), Changed> {
        file.read(|file| encoding.copy(file, base, start, out))?;
        // All of them were less when they were first read.
        let Some(at) = out.iter().position(|&id| id as usize >= self.vocabulary) else { return Ok(()) };
        let byte = base + (start + at) * encoding.bytes();
        Err(file.changed(format!("has token id {} at byte {byte}, and had none so large before", out[at])))
    }

    /// The first change of a file that was found, now or while it was read.
    pub(super) fn require_unchanged(&self) -> Result<(), Changed> {
        match &self.source {
            _ if self.changed.get().is_some() => {}
            CorpusSource::Memory(..) => {}
            CorpusSource::File { file, header, .. } => file.look().and_then(|()| file.look_at(header))?,
            CorpusSource::Files(pieces) => pieces.iter().try_for_each(|piece| piece.file.look())?,
        }
        self.changed.get().map_or(Ok(()), |changed| Err(changed.clone()))
    }
}

/// The files of a directory that are text, if that is what it is read as.
fn text_files(data_as: Option<DataAs>) -> Option<Files> {
    match data_as {
        None => Some(Files::All),
        Some(DataAs::Text) => Some(Files::AsText),
        Some(DataAs::Bytes | DataAs::Ids | DataAs::Ids16 | DataAs::Ids32) => None,
    }
}

/// Opens and scans the file at `path`, which must be text, and no other kind of file unless `data_as` says so.
pub(super) fn scan_text(
    path: &Path,
    data_as: Option<DataAs>,
    vocabulary: usize,
) -> Result<(OpenedFile, Scan), DataError> {
    let is_known = || if data_as.is_none() { kind::of(path) } else { None };
    if let Some((kind, end)) = is_known() {
        return Err(DataError::not_text(path, format!("is {}, by its name (.{end})", kind.name), kind.remedy));
    }
    let file = OpenedFile::open(path)?;
    let text = Scan::text(&mut file.file(), vocabulary).map_err(DataError::unreadable(path))?;
    let scan = text.map_err(|byte| DataError::no_text_at(path, byte))?;
    if data_as.is_none() {
        require_text(path)?;
    }
    Ok((file, scan))
}

/// How errors name a file.
pub(super) fn origin(path: &Path) -> String {
    format!("`{}`", path.display())
}

/// Z0342 if there is an id that is not less than `vocabulary`. The ids begin at byte `base`.
fn check(scan: &Scan, encoding: Encoding, base: usize, origin: &str, vocabulary: usize) -> Result<(), DataError> {
    let Some((token_offset, id)) = scan.beyond else { return Ok(()) };
    Err(DataError::TokenBeyondVocabulary {
        origin: origin.to_owned(),
        token_offset,
        byte_offset: base + token_offset * encoding.bytes(),
        id,
        vocabulary,
        vocabulary_min: match encoding {
            Encoding::Byte => 256,
            Encoding::Pair | Encoding::Quad => scan.largest as usize + 1,
        },
    })
}
