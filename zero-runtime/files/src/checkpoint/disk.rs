//! Disk: the operations on files that make up a save, behind a trait, so that tests can count them, make them fail and
//! lose them. Never knows what a checkpoint is.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::path::Path;

use rustix::fs::{Advice, CWD, RenameFlags, fadvise, renameat_with};

use crate::flush;

/// The operations that a save needs from a file system.
pub trait Disk: Send + Sync {
    /// Makes a folder, whose parent exists.
    ///
    /// # Errors
    /// Those of the system, as for all operations.
    fn create_dir(&self, path: &Path) -> io::Result<()>;

    /// Makes a file that does not exist yet.
    ///
    /// # Errors
    /// Those of the system.
    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>>;

    /// Waits until the names in a folder are on its disk.
    ///
    /// # Errors
    /// Those of the system.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Renames a file or a folder.
    ///
    /// # Errors
    /// Those of the system.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Exchanges the names of two folders, at once.
    ///
    /// # Errors
    /// Those of the system, also if its file system cannot do it.
    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// Those of the system.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty folder.
    ///
    /// # Errors
    /// Those of the system.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// The names in a folder, in any order.
    ///
    /// # Errors
    /// Those of the system.
    fn list(&self, path: &Path) -> io::Result<Vec<OsString>>;

    /// All bytes of a small file.
    ///
    /// # Errors
    /// Those of the system.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
}

/// A file that is being written.
pub trait Sink: Send {
    /// Appends all of these bytes.
    ///
    /// # Errors
    /// Those of the system; how much was written is unknown then.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Asks the disk to begin to write the bytes that were added since the last such call, so that [`Sink::sync`] waits
    /// for fewer of them. It does not wait and guarantees nothing, so a sink need not implement it.
    fn start_sync(&mut self) {}

    /// Waits until what was written is on the disk.
    ///
    /// # Errors
    /// Those of the system.
    fn sync(&mut self) -> io::Result<()>;
}

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Disk for System {
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn Sink>> {
        Ok(Box::new(SystemFile { file: File::create_new(path)?, written: 0, started: 0 }))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        flush::sync_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn exchange(&self, one: &Path, other: &Path) -> io::Result<()> {
        Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect()
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }
}

/// A file of this machine.
struct SystemFile {
    file: File,
    /// Bytes that were written.
    written: u64,
    /// Bytes that the disk was asked to begin to write.
    started: u64,
}

impl Sink for SystemFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn start_sync(&mut self) {
        let len = NonZeroU64::new(self.written - self.started);
        // Linux begins to write such pages to the disk at once, and keeps pages that are not written yet. A system
        // without this advice begins at `sync`.
        let _ = fadvise(&self.file, self.started, len, Advice::DontNeed);
        self.started = self.written;
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }
}
