//! Error: the errors of checkpoints and their folders, each with a message, a stable code and a way out. Never
//! prints.

use std::io;
use std::path::{Path, PathBuf};

use crate::weights::FirstTen;
use zero_plan::Bytes;

/// An error of writing, finding or reading a checkpoint. [`CheckpointError::report`] is its text for a person.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant's message names its fields")]
pub enum CheckpointError {
    #[error("cannot keep checkpoints in `{}`: {what}", path.display())]
    Folder { path: PathBuf, what: String },
    #[error("`{}` is in use by another run: {holder}", path.display())]
    Locked { path: PathBuf, holder: String },
    #[error("`{}` says that the folder is in use by {holder}, which cannot be seen from here", lock.display())]
    Held { lock: PathBuf, holder: String },
    #[error("`{}` is no longer the folder that this run has locked: it was renamed, removed or replaced", path.display())]
    NotOwn { path: PathBuf },
    #[error("`{}` has checkpoints of a run already, the newest of step {step}", path.display())]
    Taken { path: PathBuf, step: u64 },
    #[error("`{}` is not a checkpoint: {what}", path.display())]
    NoCheckpoint { path: PathBuf, what: String },
    #[error("the manifest `{}` {what}", path.display())]
    Manifest { path: PathBuf, what: String },
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("`{}` has {found} bytes, expected {expected}", path.display())]
    OtherLength { path: PathBuf, expected: u64, found: u64 },
    #[error("`{}` was changed since it was written, in bytes {start} to {end}: they hold\n      {holds}", path.display())]
    Changed { path: PathBuf, start: u64, end: u64, holds: FirstTen },
    #[error("`{}` is another file: expected rank {} of step {}, found rank {} of step {}", path.display(), expected.0, expected.1, found.0, found.1)]
    Exchanged { path: PathBuf, expected: (usize, u64), found: (usize, u64) },
    #[error("`{}` {what}", path.display())]
    Malformed { path: PathBuf, what: String },
    #[error("`{}` is of another model:\n      {differences}", path.display())]
    OtherModel { path: PathBuf, differences: FirstTen },
    #[error("`{}` is of another run:\n      {differences}", path.display())]
    OtherRun { path: PathBuf, differences: FirstTen },
    #[error("`{}` has room for {}, expected at least {}", path.display(), Bytes(*free as usize), Bytes(*needed as usize))]
    NoRoom { path: PathBuf, free: u64, needed: u64 },
    #[error("cannot write `{}`: {source}", path.display())]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("`{}` is written, but an older checkpoint cannot be removed: `{}`: {source}", written.display(), path.display())]
    NotRemoved { written: PathBuf, path: PathBuf, source: io::Error },
}

impl CheckpointError {
    /// For `map_err`.
    pub(super) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| CheckpointError::Unreadable { path: path.to_owned(), source }
    }

    /// For `map_err`.
    pub fn unwritable(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| CheckpointError::Unwritable { path: path.to_owned(), source }
    }

    pub(super) fn manifest(path: &Path, what: impl Into<String>) -> Self {
        CheckpointError::Manifest { path: path.to_owned(), what: what.into() }
    }

    pub(super) fn malformed(path: &Path, what: impl Into<String>) -> Self {
        CheckpointError::Malformed { path: path.to_owned(), what: what.into() }
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            CheckpointError::Folder { .. } => "Z0380",
            CheckpointError::Locked { .. } | CheckpointError::Held { .. } => "Z0381",
            CheckpointError::Taken { .. } => "Z0382",
            CheckpointError::NoCheckpoint { .. } => "Z0383",
            CheckpointError::Manifest { .. } => "Z0384",
            CheckpointError::Unreadable { .. } => "Z0385",
            CheckpointError::OtherLength { .. } => "Z0386",
            CheckpointError::Changed { .. } => "Z0387",
            CheckpointError::Exchanged { .. } => "Z0388",
            CheckpointError::Malformed { .. } => "Z0389",
            CheckpointError::OtherModel { .. } => "Z0390",
            CheckpointError::NoRoom { .. } => "Z0391",
            CheckpointError::Unwritable { .. } => "Z0392",
            CheckpointError::NotRemoved { .. } => "Z0393",
            CheckpointError::OtherRun { .. } => "Z0394",
            CheckpointError::NotOwn { .. } => "Z0395",
        }
    }

    /// Whether a checkpoint was damaged since it was written, so that an older one may be whole.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            CheckpointError::NoCheckpoint { .. }
                | CheckpointError::Manifest { .. }
                | CheckpointError::Unreadable { .. }
                | CheckpointError::OtherLength { .. }
                | CheckpointError::Changed { .. }
                | CheckpointError::Exchanged { .. }
                | CheckpointError::Malformed { .. }
        )
    }

    /// How to continue.
    pub fn help(&self) -> &'static str {
        match self {
            CheckpointError::Folder { .. } => "name a folder that can be written, or one that does not exist yet",
            CheckpointError::Locked { .. } => "wait until that run has ended, or name another folder",
            CheckpointError::Held { .. } => {
                "if that process has ended, remove this file; otherwise wait until it has, or name another folder"
            }
            CheckpointError::NotOwn { .. } => {
                "give the folder its name back: the next save finds it; the checkpoints so far are in it, whatever its name"
            }
            CheckpointError::Taken { .. } => "continue from them with --resume, or name another folder",
            CheckpointError::NoCheckpoint { .. } => {
                "name the folder of a run, or one of the folders `step-...` in it, which has manifest.jsonl"
            }
            CheckpointError::Manifest { .. }
            | CheckpointError::Unreadable { .. }
            | CheckpointError::OtherLength { .. }
            | CheckpointError::Changed { .. }
            | CheckpointError::Exchanged { .. } => {
                "restore it from a copy, or continue from an older checkpoint: `--resume newest` takes the newest whole one"
            }
            CheckpointError::Malformed { .. } => {
                "its hash is right, so it was written like this: read it with the version of zero that wrote it"
            }
            CheckpointError::OtherModel { .. } => {
                "start the binary of the model that it was saved from; a checkpoint can change its layout, but not its model"
            }
            CheckpointError::OtherRun { .. } => {
                "use what it was written with; to train these parameters in another way, begin a new run with --init"
            }
            CheckpointError::NoRoom { .. } => {
                "free space on its disk, keep fewer by --keep, or name a folder on another one"
            }
            CheckpointError::Unwritable { .. } => "free space on its disk, or name a folder that can be written",
            CheckpointError::NotRemoved { .. } => "check why it cannot be removed; the next save tries again",
        }
    }

    /// The whole error as text for a person.
    pub fn report(&self) -> String {
        format!("error[{}]: {self}\n  = help: {}", self.code(), self.help())
    }
}
