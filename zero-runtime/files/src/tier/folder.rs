//! Folder: the folder in whose file system ranks keep states. Refuses file systems that would keep them in memory, or
//! have too little room for all ranks, before anything is allocated.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, StatxFlags, fallocate, fstatfs, fstatvfs, open, statx};
use rustix::io::Errno;
use zero_plan::Bytes;
use zero_plan::lines::BLOCK_BYTES;

use super::DiskTier;

/// The numbers of file systems that keep files in memory (`linux/magic.h`), with their names.
const IN_MEMORY: [(u64, &str); 3] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs"), (0x9584_58f6, "hugetlbfs")];
/// The same of some that keep them on disks.
const ON_DISK: [(u64, &str); 3] = [(0xef53, "ext4"), (0x5846_5342, "XFS"), (0xf2f5_2010, "F2FS")];

/// Why a folder cannot keep states. [`TierError::report`] is its text for a person.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each variant's message names its fields")]
pub enum TierError {
    #[error("cannot keep states in `{}`: {what}", path.display())]
    Folder { path: PathBuf, what: String },
    #[error("`{}` lies in memory: its file system is {file_system}", path.display())]
    Memory { path: PathBuf, file_system: &'static str },
    #[error("`{}` cannot be read and written directly: {what}", path.display())]
    NotDirect { path: PathBuf, what: String },
    #[error("`{}` has room for {}, expected {} for the states of the ranks of this host", path.display(), Bytes(*free), Bytes(*needed))]
    NoRoom { path: PathBuf, free: usize, needed: usize },
}

impl TierError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Folder { .. } => "Z0396",
            Self::Memory { .. } => "Z0397",
            Self::NotDirect { .. } => "Z0398",
            Self::NoRoom { .. } => "Z0399",
        }
    }

    fn help(&self) -> &'static str {
        match self {
            Self::Folder { .. } => "name a folder that exists and can be written to by `--offload`",
            Self::Memory { .. } => "name a folder on a disk, because states in memory would save none",
            Self::NotDirect { .. } => "name a folder on another file system, such as ext4 or XFS on a local disk",
            Self::NoRoom { .. } => "make room, name a folder on another disk, or let more ranks share the states",
        }
    }

    /// The error with its code and the way out.
    pub fn report(&self) -> String {
        format!("error[{}]: {self}\n  = help: {}", self.code(), self.help())
    }
}

/// A folder that can keep states, with an empty file of this rank in it.
#[derive(Debug)]
pub struct StateFolder {
    path: PathBuf,
    file: OwnedFd,
    /// The number of its file system.
    kind: u64,
}

impl StateFolder {
    /// Makes an empty file without a name in a folder, and asks its file system whether it can be read and written
    /// directly.
    ///
    /// # Errors
    /// [`TierError`], unless it can.
    pub fn open(path: &Path) -> Result<Self, TierError> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        let file = open(path, flags, Mode::RUSR | Mode::WUSR).map_err(|errno| Self::unopened(path, errno))?;
        let mut folder = Self { path: path.to_owned(), file, kind: 0 };
        let kind = fstatfs(&folder.file).map_err(|errno| folder.unusable(errno))?.f_type as u64;
        folder.kind = kind;
        if let Some(&(_, file_system)) = IN_MEMORY.iter().find(|(number, _)| *number == kind) {
            return Err(TierError::Memory { path: path.to_owned(), file_system });
        }
        let stat = statx(&folder.file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        let stat = stat.map_err(|errno| folder.unusable(errno))?;
        let aligns = [stat.stx_dio_mem_align, stat.stx_dio_offset_align];
        let is_told = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN);
        let path = path.to_owned();
        match aligns.into_iter().max() {
            _ if !is_told => Err(TierError::NotDirect {
                path,
                what: "its file system does not say how files are aligned".to_owned(),
            }),
            Some(0) | None => Err(TierError::NotDirect { path, what: "its file system has no direct I/O".to_owned() }),
            Some(most) if most as usize > BLOCK_BYTES => {
                let what = format!("its blocks have {most} bytes, expected at most {BLOCK_BYTES}");
                Err(TierError::NotDirect { path, what })
            }
            Some(_) => Ok(folder),
        }
    }

    /// The name of its file system, or its number.
    pub fn file_system(&self) -> String {
        let known = ON_DISK.iter().find(|(number, _)| *number == self.kind);
        known.map_or_else(|| format!("file system {:#x}", self.kind), |(_, name)| (*name).to_owned())
    }

    fn unopened(path: &Path, errno: Errno) -> TierError {
        let (path, what) = (path.to_owned(), system(errno));
        match errno {
            Errno::INVAL => TierError::NotDirect { path, what: "its file system has no direct I/O".to_owned() },
            Errno::OPNOTSUPP | Errno::ISDIR => {
                TierError::NotDirect { path, what: "its file system has no files without a name".to_owned() }
            }
            _ => TierError::Folder { path, what },
        }
    }

    fn unusable(&self, errno: Errno) -> TierError {
        TierError::Folder { path: self.path.clone(), what: system(errno) }
    }

    /// Checks that all ranks of this host together have room for `needed` bytes. None of them has allocated any yet.
    ///
    /// # Errors
    /// [`TierError::NoRoom`].
    pub fn require_room(&self, needed: usize) -> Result<(), TierError> {
        let room = fstatvfs(&self.file).map_err(|errno| self.unusable(errno))?;
        let free = usize::try_from(room.f_bavail.saturating_mul(room.f_frsize)).unwrap_or(usize::MAX);
        if free < needed { Err(TierError::NoRoom { path: self.path.clone(), free, needed }) } else { Ok(()) }
    }

    /// Allocates this rank's bytes, which read as 0. If that fails, the file gives back what it took when it is closed.
    ///
    /// # Errors
    /// [`TierError`], if the file system has no room any more, or cannot allocate without writing.
    pub fn allocate(self, bytes: usize, rank: usize) -> Result<DiskTier, TierError> {
        match fallocate(&self.file, FallocateFlags::empty(), 0, bytes as u64) {
            Ok(()) => DiskTier::new(self.file, bytes, rank)
                .map_err(|error| TierError::Folder { path: self.path, what: error.to_string() }),
            Err(Errno::NOSPC | Errno::DQUOT) => match self.require_room(bytes) {
                Err(error) => Err(error),
                Ok(()) => Err(self.unusable(Errno::NOSPC)),
            },
            Err(Errno::OPNOTSUPP) => {
                let what = "its file system cannot reserve room for a file".to_owned();
                Err(TierError::NotDirect { path: self.path, what })
            }
            Err(errno) => Err(self.unusable(errno)),
        }
    }
}

/// What the system said, with its number.
fn system(errno: Errno) -> String {
    std::io::Error::from(errno).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn z0396_a_folder_that_is_not_there() {
        let missing = tempfile::tempdir().expect("a folder").path().join("missing");
        let error = StateFolder::open(&missing).expect_err("no folder");
        assert!(matches!(error, TierError::Folder { .. }), "{error}");
        assert!(error.report().starts_with("error[Z0396]: cannot keep states in `"), "{}", error.report());
        assert!(error.report().contains("No such file or directory (os error 2)"), "{}", error.report());
    }

    #[test]
    fn z0397_a_folder_in_memory() {
        let error = StateFolder::open(Path::new("/dev/shm")).expect_err("a folder in memory");
        let expected = TierError::Memory { path: "/dev/shm".into(), file_system: "tmpfs" };
        assert_eq!(error, expected);
        assert!(error.report().starts_with("error[Z0397]: `/dev/shm` lies in memory: its file system is tmpfs\n"));
    }

    #[test]
    fn z0398_a_folder_without_direct_io() {
        let error = StateFolder::open(Path::new("/proc")).expect_err("no files of its own");
        assert!(matches!(error, TierError::NotDirect { .. }), "{error}");
        assert!(error.report().starts_with("error[Z0398]: `/proc` cannot be read and written directly: "));
    }

    /// An allocation that the system refuses keeps what it took until its file is closed, so the room is looked at first.
    #[test]
    fn z0399_too_little_room_is_found_before_anything_is_allocated() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        if let Err(error @ (TierError::NotDirect { .. } | TierError::Memory { .. })) = StateFolder::open(folder.path())
        {
            return eprintln!("SKIPPED: no room on a disk: {error}");
        }
        let needed = usize::MAX / 2;
        let error = StateFolder::open(folder.path()).expect("a disk").require_room(needed).expect_err("no room");
        assert!(matches!(error, TierError::NoRoom { needed: found, .. } if found == needed), "{error}");
        assert!(error.report().starts_with("error[Z0399]: `") && error.report().contains("` has room for "));
        let tier = StateFolder::open(folder.path()).expect("a disk").allocate(8192, 0);
        assert!(tier.is_ok(), "no room for two blocks");
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "the file has a name");
        drop(tier);
    }
}
