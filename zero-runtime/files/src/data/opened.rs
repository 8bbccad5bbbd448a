//! Opened: a file of data, which must stay as it was when it was opened. It stays open, so that it may be moved or removed. Never knows
//! what its bytes mean.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

use super::error::DataError;

/// A file of data that is no longer what it was when a run opened it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data changed while it was in use: `{}` {what}", path.display())]
pub struct Changed {
    path: PathBuf,
    what: String,
}

/// A file, and what it was when it was opened.
pub(super) struct OpenedFile {
    path: PathBuf,
    /// None if it is opened for each read.
    file: Option<File>,
    bytes: u64,
    /// When it was last written to, in seconds and nanoseconds.
    modified: (i64, i64),
    /// The numbers of its file system and in it.
    identity: (u64, u64),
}

impl OpenedFile {
    /// Files that a dataset may keep open: a process needs others too.
    pub(super) fn count_max() -> usize {
        getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize / 2)
    }

    /// Opens the file at `path`.
    pub(super) fn open(path: &Path) -> Result<Self, DataError> {
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (found, file) = opened.map_err(DataError::unreadable(path))?;
        Ok(Self {
            path: path.to_owned(),
            file: Some(file),
            bytes: found.len(),
            modified: modified(&found),
            identity: identity(&found),
        })
    }

    /// The same file, which is opened for each read from here on.
    pub(super) fn closed(self) -> Self {
        Self { file: None, ..self }
    }

    /// The open file.
    pub(super) fn file(&self) -> &File {
        self.file.as_ref().expect("a file that has just been opened")
    }

    /// An error if it was not `bytes` long when it was opened.
    pub(super) fn require_bytes(&self, bytes: usize) -> Result<(), Changed> {
        if self.bytes == bytes as u64 { Ok(()) } else { Err(self.resized(self.bytes, bytes as u64)) }
    }

    /// Calls `read` with the file. It fails with the first byte that it could not read.
    pub(super) fn read(&self, read: impl FnOnce(&File) -> Result<(), (u64, io::Error)>) -> Result<(), Changed> {
        let result = match &self.file {
            Some(file) => read(file),
            None => {
                let file = File::open(&self.path).map_err(|source| self.unreadable(0, &source))?;
                self.compare(file.metadata())?;
                read(&file)
            }
        };
        // What it is now says more than why a byte is not there.
        result.map_err(|(at, source)| self.look().err().unwrap_or_else(|| self.unreadable(at, &source)))
    }

    /// Compares the file with what it was.
    pub(super) fn look(&self) -> Result<(), Changed> {
        self.compare(self.file.as_ref().map_or_else(|| fs::metadata(&self.path), File::metadata))
    }

    fn compare(&self, found: io::Result<Metadata>) -> Result<(), Changed> {
        let found = found.map_err(|source| self.unreadable(0, &source))?;
        if identity(&found) != self.identity {
            return Err(self.changed("was replaced by another file".to_owned()));
        } else if found.len() != self.bytes {
            return Err(self.resized(found.len(), self.bytes));
        } else if modified(&found) != self.modified {
            return Err(self.changed("was written to".to_owned()));
        }
        Ok(())
    }

    fn resized(&self, bytes: u64, before: u64) -> Changed {
        self.changed(if bytes < before {
            format!("was cut off at byte {bytes}, and had {before} bytes before")
        } else {
            format!("has {bytes} bytes, and had {before} before")
        })
    }

    /// Compares its first bytes with what they were.
    pub(super) fn look_at(&self, beginning: &[u8]) -> Result<(), Changed> {
        let mut now = vec![0; beginning.len()];
        self.read(|file| file.read_exact_at(&mut now, 0).map_err(|source| (0, source)))?;
        if now == beginning { Ok(()) } else { Err(self.changed("has another header than before".to_owned())) }
    }

    fn unreadable(&self, at: u64, source: &io::Error) -> Changed {
        self.changed(format!("cannot be read any more, from byte {at} on: {source}"))
    }

    /// The error of a change, as a clause whose subject is the file.
    pub(super) fn changed(&self, what: String) -> Changed {
        Changed { path: self.path.clone(), what }
    }
}

fn modified(found: &Metadata) -> (i64, i64) {
    (found.mtime(), found.mtime_nsec())
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where there are more than a process can have open.
    #[test]
    fn a_file_that_is_opened_for_each_read_must_be_the_same_one() {
        let directory = tempfile::tempdir().unwrap();
        let [path, other] = ["a", "b"].map(|name| directory.path().join(name));
        fs::write(&path, "text").unwrap();
        let file = OpenedFile::open(&path).unwrap().closed();
        let read = || {
            let mut bytes = [0; 2];
            let read = file.read(|file| file.read_exact_at(&mut bytes, 1).map_err(|source| (1, source)));
            read.map(|()| bytes).map_err(|changed| changed.to_string().split_once("` ").unwrap().1.to_owned())
        };
        assert_eq!((read(), file.look()), (Ok(*b"ex"), Ok(())));
        fs::write(&other, "text").unwrap();
        fs::rename(&other, &path).unwrap();
        assert_eq!(read(), Err("was replaced by another file".to_owned()));
        assert!(file.look().is_err());
        fs::remove_file(&path).unwrap();
        let gone = "cannot be read any more, from byte 0 on: No such file or directory (os error 2)";
        assert_eq!(read(), Err(gone.to_owned()));
        assert!(file.look().is_err());
    }
}
