//! Lock: marks a folder as in use by a run, for as long as its process lives. Never waits.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::error::CheckpointError;

/// The file in the folder.
pub(super) const LOCK: &str = "lock";
/// The file in which the system names this machine.
const HOST: &str = "/proc/sys/kernel/hostname";
/// The most bytes of another run's lock that a message shows.
const HOLDER_BYTES_MAX: u64 = 200;

/// Takes the lock of a folder. The system frees it when the file is closed, at the latest when the process ends,
/// however it ends.
///
/// # Errors
/// Z0381 if another run has it, Z0380 if it cannot be taken at all.
pub(super) fn take(folder: &Path) -> Result<File, CheckpointError> {
    let path = folder.join(LOCK);
    let refused = |what: String| CheckpointError::Folder { path: folder.to_owned(), what };
    let flags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32;
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(&path);
    let mut file = opened.map_err(|error| refused(format!("its file `{LOCK}` cannot be opened: {error}")))?;
    if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        return Err(refused(format!("its `{LOCK}` is not a file")));
    }
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            let mut holder = String::new();
            // The file is empty for a moment, while the other run writes it.
            let _ = file.take(HOLDER_BYTES_MAX).read_to_string(&mut holder);
            let holder = if holder.trim().is_empty() { "of an unknown process" } else { holder.trim() };
            return Err(CheckpointError::Locked { path: folder.to_owned(), holder: holder.to_owned() });
        }
        Err(error) => return Err(refused(format!("its file `{LOCK}` cannot be locked: {error}"))),
    }
    let host = std::fs::read_to_string(HOST).unwrap_or_default();
    let host = if host.trim().is_empty() { "a host without a name" } else { host.trim() };
    let said = file.set_len(0).and_then(|()| writeln!(file, "process {} on {host}", std::process::id()));
    said.map_err(|error| refused(format!("its file `{LOCK}` cannot be written: {error}")))?;
    Ok(file)
}

/// Whether a run holds the lock of a folder. Changes nothing.
pub(super) fn is_taken(folder: &Path) -> bool {
    let flags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32;
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(folder.join(LOCK));
    opened.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_taken_for_as_long_as_its_lock_is_held() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_taken(&folder.path().join("none")) && !is_taken(folder.path()));
        assert!(!folder.path().join(LOCK).exists());
        let held = take(folder.path()).unwrap();
        assert!(is_taken(folder.path()));
        drop(held);
        assert!(!is_taken(folder.path()));
    }
}
