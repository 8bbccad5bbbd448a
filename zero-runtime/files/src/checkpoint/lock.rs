//! Lock: marks a folder as in use by a run, for as long as its process lives. Where the file system has no locks, the words in
//! the file are the lock, which ends with the process that they name.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::error::CheckpointError;

/// The file in the folder.
pub(super) const LOCK: &str = "lock";
/// The most bytes of another run's lock that are read.
const HOLDER_BYTES_MAX: u64 = 400;
/// The last of these words if they alone are the lock.
const BY_WORDS: &str = "by-words";
const BY_SYSTEM: &str = "by-system";

/// The lock of a folder, which is free again when this is dropped or when the process ends, however it ends.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    /// Takes the lock of a folder.
    ///
    /// # Errors
    /// Z0381 if another run has it, Z0380 if it cannot be taken at all.
    pub fn take(folder: &Path) -> Result<Self, CheckpointError> {
        Self::take_by(folder, |file| flock(file, FlockOperation::NonBlockingLockExclusive))
    }

    /// [`Self::take`], with the system's way to lock a file.
    fn take_by(folder: &Path, lock: impl FnOnce(&File) -> Result<(), Errno>) -> Result<Self, CheckpointError> {
        let path = folder.join(LOCK);
        let refused = |what: String| CheckpointError::Folder { path: folder.to_owned(), what };
        let opened = options().write(true).create(true).truncate(false).open(&path);
        let mut file = opened.map_err(|error| refused(format!("its file `{LOCK}` cannot be opened: {error}")))?;
        if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return Err(refused(format!("its `{LOCK}` is not a file")));
        }
        let holder = Holder::read(&file);
        let has_locks = match lock(&file) {
            Ok(()) => true,
            Err(Errno::WOULDBLOCK) => {
                // The file is empty for a moment, while the other run writes it.
                return Err(CheckpointError::Locked { path: folder.to_owned(), holder: named(holder) });
            }
            Err(error) if is_unknown(error) => false,
            Err(error) => return Err(refused(format!("its file `{LOCK}` cannot be locked: {error}"))),
        };
        if let Some(holder) = holder.filter(|holder| !has_locks || holder.is_by_words) {
            match holder.lives() {
                Some(false) => {}
                Some(true) => return Err(CheckpointError::Locked { path: folder.to_owned(), holder: holder.name }),
                None => return Err(CheckpointError::Held { lock: path, holder: holder.name }),
            }
        }
        let written = if has_locks { write_words(&mut file, BY_SYSTEM) } else { replace(folder, &path, &mut file) };
        written.map_err(|error| refused(format!("its file `{LOCK}` cannot be written: {error}")))?;
        let lock = Self { path, file };
        if lock.is_own() {
            return Ok(lock);
        }
        // Another run has replaced the file at the same time; the last one has the lock.
        let holder = File::open(&lock.path).ok().and_then(|file| Holder::read(&file));
        Err(CheckpointError::Locked { path: folder.to_owned(), holder: named(holder) })
    }

    /// Whether the file at its path is still this lock. It is not if the folder was renamed.
    pub fn is_own(&self) -> bool {
        let number = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
        let (own, there) = (self.file.metadata().map(number), fs::symlink_metadata(&self.path).map(number));
        own.is_ok_and(|own| there.is_ok_and(|there| own == there))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Without words, it is free for a host that cannot see this process.
        let _ = self.file.set_len(0);
    }
}

/// Whether a run holds the lock of a folder. False if that cannot be found out. Changes nothing.
pub(super) fn is_taken(folder: &Path) -> bool {
    options().open(folder.join(LOCK)).is_ok_and(|file| {
        let by_words = || Holder::read(&file).and_then(|holder| holder.lives());
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Holder::read(&file).is_some_and(|holder| holder.is_by_words && holder.lives() == Some(true)),
            Err(error) => error == Errno::WOULDBLOCK || is_unknown(error) && by_words() == Some(true),
        }
    })
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32);
    options
}

/// Whether a file system says by this error that it has no locks.
fn is_unknown(error: Errno) -> bool {
    matches!(error, Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK)
}

/// Writes who holds the lock.
fn write_words(file: &mut File, by: &str) -> io::Result<()> {
    let process = std::process::id();
    let started = started(process).unwrap_or_default();
    file.set_len(0)?;
    file.write_all(format!("process {process} on {}\n{} {started} {by}\n", host(), machine()).as_bytes())
}

/// Puts another file with words in the place of the lock, at once, so that nobody reads a part of them.
fn replace(folder: &Path, path: &Path, file: &mut File) -> io::Result<()> {
    let new = folder.join(format!(".{LOCK}-{}", std::process::id()));
    *file = options().write(true).create(true).truncate(true).open(&new)?;
    write_words(file, BY_WORDS).and_then(|()| fs::rename(&new, path)).inspect_err(|_| {
        // What is left of it is in nobody's way.
        let _ = fs::remove_file(&new);
    })
}

/// The process that the words in a lock name.
struct Holder {
    /// For a person.
    name: String,
    is_by_words: bool,
    /// Its machine, and when it started there.
    whereabouts: String,
}

/// The name of the holder, for a person.
fn named(holder: Option<Holder>) -> String {
    holder.map_or("of an unknown process".to_owned(), |holder| holder.name)
}

impl Holder {
    /// None if there are no words, as in a lock that is free.
    fn read(mut file: &File) -> Option<Self> {
        let mut text = String::new();
        let _ = file.take(HOLDER_BYTES_MAX).read_to_string(&mut text);
        let _ = io::Seek::rewind(&mut file);
        let (name, rest) = text.trim().split_once('\n').unwrap_or((text.trim(), ""));
        let (whereabouts, by) = rest.rsplit_once(' ').unwrap_or((rest, ""));
        let (name, whereabouts) = (name.to_owned(), whereabouts.to_owned());
        (!name.is_empty()).then_some(Self { name, is_by_words: by == BY_WORDS, whereabouts })
    }

    /// Whether it still runs; none if that cannot be seen from here.
    fn lives(&self) -> Option<bool> {
        let (machine, since) = self.whereabouts.rsplit_once(' ')?;
        let (process, host) = self.name.strip_prefix("process ")?.split_once(" on ")?;
        let is_here = machine == self::machine() && host == self::host();
        is_here.then(|| process.parse().ok().and_then(started).is_some_and(|started| started == since))
    }
}

/// The name of this machine.
fn host() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    if host.is_empty() { "a host without a name".to_owned() } else { host }
}

/// One word for the start of this machine and for the numbers by which processes here know one another.
fn machine() -> String {
    let start = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let numbers = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{}/{}", start.trim(), numbers.display())
}

/// When a process here started, unless it has ended: its number may be another one's by now.
fn started(process: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // From the end of the name in brackets, which may hold any character: the state, and 19 fields later the start.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X");
    (!has_ended).then(|| fields.nth(18).map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_taken_for_as_long_as_its_lock_is_held() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_taken(&folder.path().join("none")) && !is_taken(folder.path()));
        assert!(!folder.path().join(LOCK).exists());
        let held = Lock::take(folder.path()).unwrap();
        assert!(is_taken(folder.path()) && held.is_own());
        drop(held);
        assert!(!is_taken(folder.path()));
    }

    #[test]
    fn words_are_a_lock_that_ends_with_their_process() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LOCK);
        let own = format!("process {} on {}\n{}", std::process::id(), host(), machine());
        let since = started(std::process::id()).unwrap();
        let found = |words: String| {
            fs::write(&path, words).unwrap();
            (is_taken(folder.path()), Lock::take(folder.path()).map(drop).map_err(|error| error.report()))
        };
        let (is_taken, error) = found(format!("{own} {since} {BY_WORDS}\n"));
        assert!(is_taken && error.unwrap_err().starts_with("error[Z0381]: "));
        // Another process had the number of this one, or there is none with that number.
        assert_eq!(found(format!("{own} 1 {BY_WORDS}\n")), (false, Ok(())));
        let gone = own.replace(&format!("process {} ", std::process::id()), "process 4194305 ");
        assert_eq!(found(format!("{gone} {since} {BY_WORDS}\n")), (false, Ok(())));
        // If the system had the lock, it has freed it.
        assert_eq!(found(format!("{own} {since} {BY_SYSTEM}\n")), (false, Ok(())));
        let (is_taken, error) = found(format!("process 7 on elsewhere\nboot/pid:[1] 5 {BY_WORDS}\n"));
        let error = error.unwrap_err();
        assert!(
            !is_taken && error.starts_with("error[Z0381]: ") && error.contains("process 7 on elsewhere"),
            "{error}"
        );
        assert!(error.contains(&format!("`{}`", path.display())) && error.contains("remove this file"), "{error}");
    }

    #[test]
    fn where_the_system_has_no_locks_words_are_enough() {
        let folder = tempfile::tempdir().unwrap();
        for error in [Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOLCK] {
            let take = || Lock::take_by(folder.path(), |_| Err(error));
            let held = take().unwrap();
            assert!(held.is_own() && is_taken(folder.path()));
            // Also for a run that sees the folder from where the system has locks.
            for error in [take().unwrap_err(), Lock::take(folder.path()).unwrap_err()] {
                let own = format!("in use by another run: process {} on ", std::process::id());
                assert!(error.report().contains(&own), "{}", error.report());
            }
            drop(held);
            assert!(!is_taken(folder.path()));
        }
        drop(Lock::take(folder.path()).unwrap());
        let error = Lock::take_by(folder.path(), |_| Err(Errno::IO)).unwrap_err().report();
        assert!(error.starts_with("error[Z0380]: ") && error.contains("cannot be locked"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the lock");
    }

    #[test]
    fn a_lock_that_was_replaced_is_not_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(LOCK);
        let mut first = Lock::take(folder.path()).unwrap();
        replace(folder.path(), &path, &mut first.file).unwrap();
        assert!(first.is_own());
        let mut second = File::open(&path).unwrap();
        replace(folder.path(), &path, &mut second).unwrap();
        assert!(!first.is_own());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "only the lock");
    }
}
