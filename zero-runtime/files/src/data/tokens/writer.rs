//! Writer: writes ids to a new token file, in little memory however many there are. The file has its name only when it
//! is whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;

use super::super::{DataError, Tokenizer};
use super::header::{END_BYTES, HEADER_BYTES, MAGIC, VERSION};
use crate::data::scan::Encoding;

/// Bytes that are written at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// The ends of the names of unfinished files.
const ENDS: [&str; 2] = ["partial", "ends"];

/// A token file that is being written. Without [`TokenFileWriter::finish`], all of it is removed. What a process left that
/// was killed is removed when a file of the same name is begun again.
pub struct TokenFileWriter {
    path: PathBuf,
    /// The ids, under another name.
    ids: UnfinishedFile,
    /// The ends of documents, which are appended to the ids when all of these are there.
    ends: UnfinishedFile,
    encoding: Encoding,
    vocabulary: usize,
    tokenizer: [u8; 32],
    tokens: u64,
    documents: u64,
    /// Ids up to the end of the last document.
    ended: u64,
}

/// The figures of a file that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenFile {
    /// Ids.
    pub tokens: u64,
    /// Documents.
    pub documents: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

impl TokenFileWriter {
    /// Begins a file at `path` with ids of `tokenizer`, each in 2 bytes if its vocabulary is at most 65536, and otherwise
    /// in 4.
    ///
    /// # Errors
    /// Z0379 if there is something at `path`, or if its directory cannot be written.
    pub fn create(path: &Path, tokenizer: &Tokenizer) -> Result<Self, DataError> {
        let unwritable = || DataError::unwritable(path);
        if fs::symlink_metadata(path).is_ok() {
            return Err(unwritable()(io::ErrorKind::AlreadyExists.into()));
        }
        remove_left_files(path);
        let [partial, ends] = ENDS;
        let mut ids = UnfinishedFile::create(path, partial).map_err(unwritable())?;
        let ends = UnfinishedFile::create(path, ends).map_err(unwritable())?;
        // Room for the header, which says how many ids there are and so is written last.
        ids.file.write_all(&[0; HEADER_BYTES]).map_err(unwritable())?;
        let vocabulary = tokenizer.vocabulary();
        let (encoding, tokenizer) = (Encoding::of(vocabulary), tokenizer.hash());
        let path = path.to_owned();
        Ok(Self { path, ids, ends, encoding, vocabulary, tokenizer, tokens: 0, documents: 0, ended: 0 })
    }

    /// The files that exist until this one is finished, for a process that must end at once.
    pub fn unfinished(&self) -> Vec<PathBuf> {
        [&self.ids, &self.ends].iter().filter_map(|file| file.name.clone()).collect()
    }

    /// Adds ids to the current document.
    ///
    /// # Errors
    /// Z0379 if they cannot be written.
    pub fn add(&mut self, ids: &[u32]) -> Result<(), DataError> {
        assert!(ids.iter().all(|&id| (id as usize) < self.vocabulary), "ids of the tokenizer's vocabulary");
        let file = &mut self.ids.file;
        let written = ids.iter().try_for_each(|id| file.write_all(&id.to_le_bytes()[..self.encoding.bytes()]));
        self.tokens += ids.len() as u64;
        written.map_err(DataError::unwritable(&self.path))
    }

    /// Documents that have ended.
    pub fn documents(&self) -> u64 {
        self.documents
    }

    /// Ends the current document.
    ///
    /// # Errors
    /// Z0379 if that cannot be written.
    pub fn end_document(&mut self) -> Result<(), DataError> {
        self.documents += 1;
        self.ended = self.tokens;
        self.ends.file.write_all(&self.tokens.to_le_bytes()).map_err(DataError::unwritable(&self.path))
    }

    /// Ends the file, and renames it to its own name.
    ///
    /// # Errors
    /// Z0379 if it cannot be written, or if its name has been taken meanwhile.
    ///
    /// # Panics
    /// If the last document has no end.
    pub fn finish(mut self) -> Result<WrittenFile, DataError> {
        assert_eq!(self.ended, self.tokens, "the last document has an end");
        let path = self.path.clone();
        self.write_rest().map_err(DataError::unwritable(&path))
    }

    fn write_rest(&mut self) -> io::Result<WrittenFile> {
        let padding = (self.tokens as usize * self.encoding.bytes()).wrapping_neg() % END_BYTES;
        self.ids.file.write_all(&[0; END_BYTES][..padding])?;
        self.ends.file.seek(SeekFrom::Start(0))?;
        io::copy(self.ends.file.get_mut(), &mut self.ids.file)?;
        self.ids.file.seek(SeekFrom::Start(0))?;
        self.ids.file.write_all(&self.header())?;
        self.ids.file.flush()?;
        let file = self.ids.file.get_ref();
        file.sync_all()?;
        let bytes = file.metadata()?.len();
        self.ids.rename(&self.path)?;
        Ok(WrittenFile { tokens: self.tokens, documents: self.documents, bytes })
    }

    fn header(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        [VERSION, self.encoding.bytes() as u32].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        let numbers = [self.vocabulary as u64, self.tokens, self.documents];
        numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes.extend(self.tokenizer);
        assert_eq!(bytes.len(), HEADER_BYTES);
        bytes
    }
}

/// Removes the unfinished files that ended processes left beside `path`: those that can be locked. Where files cannot be
/// locked, they stay.
fn remove_left_files(path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_unfinished = |found: &str| {
        let rest = found.strip_prefix('.').and_then(|rest| rest.strip_prefix(&name)?.strip_prefix('.'));
        rest.and_then(|rest| rest.split_once('.')).is_some_and(|(process, end)| {
            !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit()) && ENDS.contains(&end)
        })
    };
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_unfinished)) {
        let is_left = |file: File| flock(&file, FlockOperation::NonBlockingLockExclusive).map(|()| file);
        if let Ok(Ok(_locked)) = File::open(entry.path()).map(is_left) {
            // A file that cannot be removed takes space, and harms nothing else.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A file that is removed unless it is renamed.
struct UnfinishedFile {
    file: BufWriter<File>,
    name: Option<PathBuf>,
}

impl UnfinishedFile {
    /// A file beside `path`, so that it can be renamed to it.
    fn create(path: &Path, end: &str) -> io::Result<Self> {
        let Some(name) = path.file_name() else { return Err(io::ErrorKind::InvalidInput.into()) };
        let mut partial = std::ffi::OsString::from(".");
        partial.push(name);
        partial.push(format!(".{}.{end}", std::process::id()));
        let name = path.with_file_name(partial);
        let file = loop {
            let file = File::options().read(true).write(true).create_new(true).open(&name)?;
            // The lock says that the file is in use. Another process may have removed it before it was locked.
            let is_seen = flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK);
            if !is_seen && file.metadata()?.nlink() > 0 {
                break file;
            }
        };
        Ok(Self { file: BufWriter::with_capacity(BUFFER_BYTES, file), name: Some(name) })
    }

    /// Gives it another name, which must be free.
    fn rename(&mut self, path: &Path) -> io::Result<()> {
        let Some(name) = &self.name else { return Ok(()) };
        match renameat_with(CWD, name, CWD, path, RenameFlags::NOREPLACE) {
            // Not every file system supports `NOREPLACE`.
            Err(Errno::INVAL | Errno::NOSYS) if fs::symlink_metadata(path).is_err() => fs::rename(name, path)?,
            Err(Errno::INVAL | Errno::NOSYS) => return Err(io::ErrorKind::AlreadyExists.into()),
            renamed => renamed?,
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        // If it cannot be removed, the error that led here is more important.
        self.name.iter().for_each(|name| drop(fs::remove_file(name)));
    }
}
