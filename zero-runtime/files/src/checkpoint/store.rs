//! Store: the folder of a run, in which each checkpoint appears whole, by one rename. Never touches anything that is
//! not a checkpoint of the run, and never removes a whole one before a newer one is whole.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::disk::{Disk, System};
use super::error::CheckpointError;
use super::lock::{self, LOCK, Lock};
use super::manifest::{FileSums, MANIFEST, Manifest, shard_name, sums_name};
use super::sealed::{seal, unseal};
use super::shard::{write_beside, write_whole};
use crate::room::free_bytes;
use crate::weights::BesideFile;

/// The name of a whole checkpoint begins with this.
const WHOLE: &str = "step-";
/// The name of a checkpoint that is being written begins with this.
const PARTIAL: &str = ".partial-step-";
/// The name of a checkpoint that is being removed begins with this.
const OLD: &str = ".old-step-";
/// Digits of a step in a name, so that names sort by step. Larger steps have more.
const STEP_DIGITS: usize = 9;

/// The folder of a run, which no other run writes to as long as this lives.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    lock: Lock,
}

/// A checkpoint in the folder of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCheckpoint {
    /// Steps that were done.
    pub step: u64,
    /// Its folder.
    pub path: PathBuf,
}

fn folder(path: &Path, prefix: &str, step: u64) -> PathBuf {
    path.join(format!("{prefix}{step:0STEP_DIGITS$}"))
}

/// The step in a name with this prefix, if the name has that form.
fn step_of(name: &OsStr, prefix: &str) -> Option<u64> {
    let digits = name.to_str()?.strip_prefix(prefix)?;
    let step = digits.parse().ok()?;
    (format!("{step:0STEP_DIGITS$}") == digits).then_some(step)
}

/// The step in the name of a checkpoint's folder, if it has the form that a run gives it.
pub(super) fn named_step(folder: &Path) -> Option<u64> {
    step_of(folder.file_name()?, WHOLE)
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

impl Store {
    /// Locks a folder for a run, and makes it if it is not there. Then tries what a save does, in place of the checkpoint of step
    /// 0, which is never saved.
    ///
    /// # Errors
    /// Z0380 if the path is not a folder, or if it cannot be written or a folder in it cannot be renamed; Z0381 if another run uses
    /// it.
    pub fn open(path: &Path) -> Result<Self, CheckpointError> {
        let refused = |what: String| Err(CheckpointError::Folder { path: path.to_owned(), what });
        match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if let Err(error) = fs::create_dir_all(path) {
                    return refused(format!("it cannot be made: {error}"));
                }
            }
            Err(error) => return refused(error.to_string()),
            Ok(metadata) if metadata.is_symlink() => return refused("it is a link".to_owned()),
            Ok(metadata) if !metadata.is_dir() => return refused("it is not a folder".to_owned()),
            Ok(_) => {}
        }
        if let Err(error) = access(path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
            return refused(format!("it cannot be written: {error}"));
        }
        let store = Self { path: path.to_owned(), lock: Lock::take(path)? };
        match store.try_out() {
            Ok(()) => Ok(store),
            Err(what) => refused(what),
        }
    }

    /// Makes, flushes, renames and removes a folder with a file, as a save does.
    fn try_out(&self) -> Result<(), String> {
        let (partial, old) = (Self::partial(&self.path, 0), folder(&self.path, OLD, 0));
        let failed = |what: &'static str| move |error: io::Error| format!("a folder in it cannot be {what}: {error}");
        let remove = |path: &Path| remove(&System, path).map_err(|(_, error)| failed("removed")(error));
        // A run that was killed in its trial has left them. Other remains are for the first save to remove.
        [&partial, &old].into_iter().filter(|path| is_folder(path)).try_for_each(|path| remove(path))?;
        System.create_dir(&partial).map_err(failed("made"))?;
        let written = write_whole(&System, &partial.join(shard_name(0)), b"0").map_err(|error| error.to_string());
        let tried = written
            .and_then(|()| System.sync_dir(&partial).map_err(failed("flushed")))
            .and_then(|()| System.rename(&partial, &old).map_err(failed("renamed")))
            .and_then(|()| System.sync_dir(&self.path).map_err(failed("flushed")));
        let left = if is_folder(&old) { &old } else { &partial };
        tried.and(remove(left))
    }

    /// Whether a checkpoint that was in the folder of a run is gone: a run that keeps only its newest ones renames each older one as a
    /// whole before it removes it.
    pub fn has_removed(checkpoint: &Path) -> bool {
        fs::symlink_metadata(checkpoint).is_err_and(|error| error.kind() == ErrorKind::NotFound)
    }

    /// Whether a name in the folder of a run is the run's own.
    pub fn is_own_name(name: &OsStr) -> bool {
        name == LOCK || [WHOLE, PARTIAL, OLD].iter().any(|prefix| step_of(name, prefix).is_some())
    }

    /// Refuses a folder that is no longer the one that this run has locked, because another run may have locked that one.
    fn require_own(&self) -> Result<(), CheckpointError> {
        if self.lock.is_own() { Ok(()) } else { Err(CheckpointError::NotOwn { path: self.path.clone() }) }
    }

    /// Refuses a disk that has no room for `bytes`.
    ///
    /// # Errors
    /// Z0391.
    pub fn require_room(&self, bytes: u64) -> Result<(), CheckpointError> {
        match free_bytes(&self.path).filter(|&free| free < bytes) {
            Some(free) => Err(CheckpointError::NoRoom { path: self.path.clone(), free, needed: bytes }),
            None => Ok(()),
        }
    }

    /// Whether a run uses this folder. False if that cannot be found out.
    pub fn is_taken(path: &Path) -> bool {
        lock::is_taken(path)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses a folder that already has checkpoints, for a run that does not continue from one.
    ///
    /// # Errors
    /// Z0382, or Z0385 if the folder cannot be read.
    pub fn require_new(&self) -> Result<(), CheckpointError> {
        match Self::checkpoints(&self.path)?.first() {
            None => Ok(()),
            Some(newest) => Err(CheckpointError::Taken { path: self.path.clone(), step: newest.step }),
        }
    }

    /// The step of the newest checkpoint in the folder of a run, if that can be read and has one.
    pub fn newest(path: &Path) -> Option<u64> {
        Self::checkpoints(path).ok()?.first().map(|newest| newest.step)
    }

    /// The checkpoints in the folder of a run, the newest first; none if there is no such folder. Each was whole when
    /// it got its name; [`super::Checkpoint`] checks whether it still is.
    ///
    /// # Errors
    /// Z0385 if the folder cannot be read.
    pub fn checkpoints(path: &Path) -> Result<Vec<StoredCheckpoint>, CheckpointError> {
        let entries = match fs::read_dir(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(CheckpointError::unreadable(path))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.map_err(CheckpointError::unreadable(path))?.file_name();
            if let Some(step) = step_of(&name, WHOLE).filter(|_| is_folder(&path.join(&name))) {
                found.push(StoredCheckpoint { step, path: path.join(name) });
            }
        }
        found.sort_by_key(|one| std::cmp::Reverse(one.step));
        Ok(found)
    }

    /// The path of the checkpoint of a step in the folder of a run.
    pub fn whole(path: &Path, step: u64) -> PathBuf {
        folder(path, WHOLE, step)
    }

    /// The path at which the checkpoint of a step is made in the folder of a run.
    pub fn partial(path: &Path, step: u64) -> PathBuf {
        folder(path, PARTIAL, step)
    }

    /// Removes the remains of earlier saves, and makes the folder that ranks write to.
    ///
    /// # Errors
    /// Z0385 if the folder cannot be read, Z0391 if its disk has no room for `bytes`, Z0392 if it cannot be written, Z0395 if it is no
    /// longer this run's.
    pub fn begin(&self, disk: &dyn Disk, step: u64, bytes: u64) -> Result<(), CheckpointError> {
        self.require_own()?;
        self.remove_remains(disk)?;
        self.require_room(bytes)?;
        let partial = Self::partial(&self.path, step);
        disk.create_dir(&partial).map_err(CheckpointError::unwritable(&partial))
    }

    /// Removes the remains of earlier saves.
    fn remove_remains(&self, disk: &dyn Disk) -> Result<(), CheckpointError> {
        for name in disk.list(&self.path).map_err(CheckpointError::unreadable(&self.path))? {
            let is_left_over = [PARTIAL, OLD].iter().any(|prefix| step_of(&name, prefix).is_some());
            let path = self.path.join(name);
            if is_left_over && is_folder(&path) {
                remove(disk, &path).map_err(|(path, source)| CheckpointError::Unwritable { path, source })?;
            }
        }
        Ok(())
    }

    /// Gives the checkpoint of a step its name, once all `ranks` have finished their files, and removes older ones, so
    /// that at most `keep` are left, this one included. The manifest's list of files is made from the sums that ranks
    /// have left beside their files, and from the files `beside` the tensors of an export.
    ///
    /// # Errors
    /// Z0385 or Z0384 if the sums of a rank are missing or damaged; Z0392 if something cannot be written, and the new
    /// checkpoint may then be missing; Z0393 if it is there, but an older one could not be removed; Z0395 if the folder is no
    /// longer this run's.
    pub fn publish(
        &self,
        disk: &dyn Disk,
        step: u64,
        mut manifest: Manifest,
        beside: &[BesideFile],
        ranks: usize,
        keep: Option<NonZeroU64>,
    ) -> Result<PathBuf, CheckpointError> {
        self.require_own()?;
        let partial = Self::partial(&self.path, step);
        manifest.files = (0..ranks).map(|rank| sums(disk, &partial, rank)).collect::<Result<_, _>>()?;
        for rank in 0..ranks {
            let path = partial.join(sums_name(rank));
            disk.remove_file(&path).map_err(CheckpointError::unwritable(&path))?;
        }
        for file in beside {
            manifest.files.push(write_beside(disk, &partial, file)?);
        }
        write_whole(disk, &partial.join(MANIFEST), &seal(&manifest))?;
        disk.sync_dir(&partial).map_err(CheckpointError::unwritable(&partial))?;
        let whole = folder(&self.path, WHOLE, step);
        // Once more, because files take a while to be flushed.
        self.require_own()?;
        // A run that continued from an older one may have reached this step again. The two are exchanged, because a crash
        // could leave no checkpoint of this step if the old one were moved away first.
        let is_again = is_folder(&whole);
        let named = if is_again { disk.exchange(&partial, &whole) } else { disk.rename(&partial, &whole) };
        named.map_err(CheckpointError::unwritable(&whole))?;
        disk.sync_dir(&self.path).map_err(CheckpointError::unwritable(&self.path))?;
        let replaced = if is_again { remove(disk, &partial) } else { Ok(()) };
        replaced
            .and_then(|()| self.remove_old(disk, step, keep))
            .map_err(|(path, source)| CheckpointError::NotRemoved { written: whole.clone(), path, source })?;
        Ok(whole)
    }

    /// Removes the checkpoints that are no longer needed after a new one. Newer ones stay, because they belong to a run
    /// that this one did not continue.
    fn remove_old(&self, disk: &dyn Disk, step: u64, keep: Option<NonZeroU64>) -> Result<(), (PathBuf, io::Error)> {
        let here = |source| (self.path.clone(), source);
        let mut old: Vec<PathBuf> = Vec::new();
        let mut whole: Vec<u64> = Vec::new();
        for name in disk.list(&self.path).map_err(here)? {
            let is_here = is_folder(&self.path.join(&name));
            match (step_of(&name, WHOLE), step_of(&name, OLD)) {
                (Some(one), _) if is_here && one <= step => whole.push(one),
                (_, Some(_)) if is_here => old.push(self.path.join(name)),
                _ => {}
            }
        }
        whole.sort_unstable_by_key(|&step| std::cmp::Reverse(step));
        let kept = keep.map_or(whole.len(), |keep| usize::try_from(keep.get()).unwrap_or(usize::MAX));
        let needless = whole.get(kept..).unwrap_or_default();
        for &step in needless {
            let (from, to) = (folder(&self.path, WHOLE, step), folder(&self.path, OLD, step));
            disk.rename(&from, &to).map_err(|source| (from, source))?;
            old.push(to);
        }
        if !needless.is_empty() {
            // Otherwise files could be gone after a crash while their folder still has its name.
            disk.sync_dir(&self.path).map_err(here)?;
        }
        old.iter().try_for_each(|path| remove(disk, path))
    }

    /// Gives up the checkpoint of a step. The next save removes what cannot be removed now.
    pub fn abandon(&self, disk: &dyn Disk, step: u64) {
        if self.lock.is_own() {
            let _ = remove(disk, &Self::partial(&self.path, step));
        }
    }
}

/// Removes a folder of files; the error names what could not be removed.
fn remove(disk: &dyn Disk, path: &Path) -> Result<(), (PathBuf, io::Error)> {
    for name in disk.list(path).map_err(|source| (path.to_owned(), source))? {
        let file = path.join(name);
        disk.remove_file(&file).map_err(|source| (file, source))?;
    }
    disk.remove_dir(path).map_err(|source| (path.to_owned(), source))
}

/// The sums that a rank has left.
fn sums(disk: &dyn Disk, partial: &Path, rank: usize) -> Result<FileSums, CheckpointError> {
    let path = partial.join(sums_name(rank));
    let bytes = disk.read(&path).map_err(CheckpointError::unreadable(&path))?;
    let sums: FileSums = unseal(&bytes).map_err(|what| CheckpointError::manifest(&path, what))?;
    if sums.name != shard_name(rank) {
        return Err(CheckpointError::manifest(
            &path,
            format!("is of `{}`, expected `{}`", sums.name, shard_name(rank)),
        ));
    }
    Ok(sums)
}
