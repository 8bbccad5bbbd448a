//! Directory: a folder that appears under its name at once and whole, or not at all. Never knows what is in it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::error::WeightsError;
use crate::flush::sync_dir;
use crate::room::free_bytes;

/// A folder that is to be made.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    /// The directory that is to hold it.
    parent: PathBuf,
    name: OsString,
    /// For which its disk must have room.
    bytes: u64,
}

const HELP: &str = "name a folder that does not exist yet, or is empty, in a directory that can be written";

impl Directory {
    /// A folder at `path`, which must not exist yet, or be empty.
    ///
    /// # Errors
    /// Z0368, also if its disk has no room for `bytes`.
    pub fn new(path: &Path, bytes: u64) -> Result<Self, WeightsError> {
        let refused = |what: &str| {
            let what = format!("cannot export to `{}`: {what}", path.display());
            Err(WeightsError::Directory { what, help: HELP })
        };
        let Some(name) = path.file_name() else { return refused("it has no name of its own") };
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return refused(&error.to_string()),
            Ok(metadata) if !metadata.is_dir() => return refused("it exists, and is not a folder"),
            Ok(_) => {
                if fs::read_dir(path).map_err(WeightsError::unreadable(path))?.next().is_some() {
                    return refused("it exists, and is not empty");
                }
            }
        }
        if !parent.is_dir() {
            return refused(&format!("`{}` is not a directory", parent.display()));
        }
        if let Err(error) = access(parent, Access::WRITE_OK | Access::EXEC_OK) {
            return refused(&format!("`{}` cannot be written: {error}", parent.display()));
        }
        let directory = Self { path: path.to_owned(), parent: parent.to_owned(), name: name.to_owned(), bytes };
        directory.require_room()?;
        Ok(directory)
    }

    /// The path at which it will appear.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn require_room(&self) -> Result<(), WeightsError> {
        // If the file system does not say, nothing is checked.
        let Some(free) = free_bytes(&self.parent).filter(|&free| free < self.bytes) else { return Ok(()) };
        Err(WeightsError::NoRoom { path: self.parent.clone(), free: free as usize, needed: self.bytes as usize })
    }

    /// The bytes that it takes on the disk of what lies at `path`.
    pub fn bytes_on_disk_of(&self, path: &Path) -> u64 {
        let disk = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).ok();
        if disk(path) == disk(&self.parent) { self.bytes } else { 0 }
    }

    /// The path at which the process of rank 0 makes it. It is equally long for all processes, so that a name that is too long for
    /// one of them is so for all.
    pub fn partial(&self, process: u32) -> PathBuf {
        self.beside(&format!("partial-{process:010}"))
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.name.clone();
        name.push(format!(".{ending}"));
        self.parent.join(name)
    }

    /// Another folder beside it, or in the folder for temporary files.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn elsewhere(&self, is_temporary: bool, process: u32, bytes: u64) -> Result<Self, WeightsError> {
        let parent = if is_temporary { std::env::temp_dir() } else { self.parent.clone() };
        Self::new(&parent.join(format!("zero-export-{process:010}")), bytes)
    }

    /// Makes a folder with a file, flushes it and gives it its name, and leaves nothing, or an empty folder that was there before.
    ///
    /// # Errors
    /// Z0368.
    pub fn try_out(&self) -> Result<(), WeightsError> {
        let was_there = self.path.exists();
        let made = self.begin().and_then(|mut trial| {
            trial.add_whole("trial", b"x")?;
            trial.flush()?;
            let file = trial.path.join("trial");
            fs::remove_file(&file).map_err(WeightsError::unwritable(&file))?;
            trial.finish()
        });
        let tried = match made {
            Ok(()) if was_there => Ok(()),
            Ok(()) => fs::remove_dir(&self.path).map_err(WeightsError::unwritable(&self.path)),
            Err(WeightsError::Unnamed { path, whole, source }) => {
                // If it cannot be removed, its name shows what it is.
                let _ = fs::remove_dir(whole);
                let what = format!("cannot export to `{}`: a folder cannot get this name: {source}", path.display());
                return Err(WeightsError::Directory { what, help: HELP });
            }
            failed => failed,
        };
        tried.map_err(|error| {
            let what = format!("cannot export to `{}`: a first try failed: {error}", self.path.display());
            WeightsError::Directory { what, help: HELP }
        })
    }

    /// Begins to make it.
    ///
    /// # Errors
    /// Z0368.
    pub fn begin(&self) -> Result<UnfinishedFolder<'_>, WeightsError> {
        let path = self.partial(std::process::id());
        fs::create_dir(&path).map_err(WeightsError::unwritable(&path))?;
        Ok(UnfinishedFolder { directory: self, path, files: Vec::new() })
    }
}

/// A folder under another name, which is removed unless all of it is on its disk.
pub struct UnfinishedFolder<'a> {
    directory: &'a Directory,
    path: PathBuf,
    /// Kept open, so that errors of other processes' writes to them are known here.
    files: Vec<(PathBuf, File)>,
}

impl UnfinishedFolder<'_> {
    /// Adds a file of `bytes` bytes that begins with `head`; the rest is for ranks to write.
    ///
    /// # Errors
    /// Z0368.
    pub fn add(&mut self, name: &str, head: &[u8], bytes: u64) -> Result<(), WeightsError> {
        let path = self.path.join(name);
        let made = File::create_new(&path).and_then(|mut file| {
            file.write_all(head)?;
            file.set_len(bytes)?;
            Ok(file)
        });
        let file = made.map_err(WeightsError::unwritable(&path))?;
        self.files.push((path, file));
        Ok(())
    }

    /// Adds a whole file.
    ///
    /// # Errors
    /// Z0368.
    pub fn add_whole(&mut self, name: &str, content: &[u8]) -> Result<(), WeightsError> {
        self.add(name, content, content.len() as u64)
    }

    /// Waits until its files are on their disk.
    fn flush(&mut self) -> Result<(), WeightsError> {
        for (path, file) in self.files.drain(..) {
            file.sync_all().map_err(WeightsError::unwritable(&path))?;
        }
        Ok(())
    }

    /// Renames it to its own name, once everything in it is on its disk.
    ///
    /// # Errors
    /// Z0368. If the files are whole, the error names the folder that they stay in.
    pub fn finish(mut self) -> Result<(), WeightsError> {
        self.flush()?;
        let Directory { path, parent, .. } = self.directory;
        // From here on it is kept, whatever happens.
        let mut whole = std::mem::take(&mut self.path);
        let named = sync_dir(&whole).and_then(|()| fs::rename(&whole, path)).and_then(|()| {
            whole.clone_from(path);
            sync_dir(parent)
        });
        named.map_err(|source| WeightsError::Unnamed { path: path.clone(), whole, source })
    }
}

impl Drop for UnfinishedFolder<'_> {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // If it cannot be removed, its name shows what it is.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(root: &Path) -> Vec<String> {
        let entries = fs::read_dir(root).expect("a directory");
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect()
    }

    #[test]
    fn z0368_a_folder_that_cannot_be_made() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir(root.path().join("full")).expect("a folder");
        fs::write(root.path().join("full/file"), "x").expect("a file");
        std::os::unix::fs::symlink("empty", root.path().join("link")).expect("a link");
        for (name, words) in [
            ("full", "is not empty"),
            ("full/file", "is not a folder"),
            ("link", "is not a folder"),
            ("nowhere/below", "is not a directory"),
            ("full/..", "no name of its own"),
        ] {
            let error = Directory::new(&root.path().join(name), 0).expect_err(name).report();
            assert!(error.starts_with("error[Z0368]: cannot export to `") && error.contains(words), "{error}");
        }
        let error = Directory::new(&root.path().join("new"), u64::MAX).expect_err("no such disk").report();
        assert!(error.starts_with("error[Z0368]: `") && error.contains("expected at least"), "{error}");
        assert_eq!(names(root.path()).len(), 2);
    }

    #[test]
    fn a_folder_appears_whole_or_not_at_all() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("new");
        // An empty one may be there.
        fs::create_dir(&path).expect("a folder");
        let directory = Directory::new(&path, 1).expect("a place for it");
        let mut partial = directory.begin().expect("a folder");
        partial.add_whole("a", b"1").expect("a file");
        assert_eq!(names(&path), [""; 0]);
        assert!(names(root.path()).iter().any(|name| name.starts_with("new.partial-")));
        drop(partial);
        assert_eq!(names(root.path()), ["new"]);

        let mut partial = directory.begin().expect("a folder");
        partial.add("a", b"12", 4).expect("a file");
        partial.finish().expect("an empty one in its place");
        assert_eq!((names(root.path()), names(&path)), (vec!["new".to_owned()], vec!["a".to_owned()]));
        assert_eq!(fs::read(path.join("a")).expect("a file"), b"12\0\0");

        let mut late = directory.begin().expect("a folder");
        late.add_whole("a", b"2").expect("a file");
        let error = late.finish().expect_err("what came in between is not overwritten");
        let WeightsError::Unnamed { whole, .. } = &error else { panic!("{error}") };
        assert_eq!((names(root.path()).len(), fs::read(path.join("a")).expect("a file")), (2, b"12\0\0".to_vec()));
        assert_eq!(fs::read(whole.join("a")).expect("nothing of the late one is lost"), b"2");
        assert!(error.report().contains(&whole.display().to_string()), "{}", error.report());
    }

    #[test]
    fn a_place_is_tried_without_a_trace() {
        let root = tempfile::tempdir().expect("a directory");
        let place = |name: &str| Directory::new(&root.path().join(name), 1).expect("a place");
        place("new").try_out().expect("a place that can be used");
        let error = place(&"n".repeat(245)).try_out().expect_err("no name is so long").report();
        assert!(error.starts_with("error[Z0368]: cannot export to `") && error.contains("too long"), "{error}");
        assert_eq!(names(root.path()), [""; 0]);
        fs::create_dir(root.path().join("there")).expect("a folder");
        place("there").try_out().expect("a place that can be used");
        assert_eq!((names(root.path()), names(&root.path().join("there"))), (vec!["there".to_owned()], Vec::new()));
        // What comes in between is in the way, as it would be at the end.
        let directory = place("there");
        fs::write(root.path().join("there/file"), "x").expect("a file");
        let error = directory.try_out().expect_err("a folder that is not empty any more").report();
        assert!(error.contains("a folder cannot get this name: "), "{error}");
        assert_eq!(names(root.path()), ["there"]);
    }
}
