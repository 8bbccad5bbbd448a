//! Pointer: what a clone of a repository has in place of a large file if Git LFS did not fetch it. It is a text of three lines, so it
//! would be learned as text, and otherwise looks like a file that was cut off.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The beginning of the first line (Git LFS's specification of pointers, version 1).
const BEGINNING: &[u8] = b"version https://git-lfs.github.com/spec/";

/// The error of a pointer.
#[derive(Debug, thiserror::Error)]
#[error("`{}` is a pointer of Git LFS, not the file itself", .0.display())]
pub struct Pointer(pub PathBuf);

impl Pointer {
    /// The stable code.
    pub const CODE: &str = "Z0356";
    /// How to get the file.
    pub const HELP: &str =
        "fetch the file itself: `git lfs pull` in its repository, or download it again by another tool";

    /// The error, if the file at `path` is a pointer.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn at(path: &Path) -> io::Result<Option<Self>> {
        let mut beginning = Vec::new();
        File::open(path)?.take(BEGINNING.len() as u64).read_to_end(&mut beginning)?;
        Ok(Self::of(path, &beginning))
    }

    /// The error, if the contents of the file at `path`, which begin so, are a pointer.
    pub fn of(path: &Path, beginning: &[u8]) -> Option<Self> {
        beginning.starts_with(BEGINNING).then(|| Self(path.to_owned()))
    }
}
