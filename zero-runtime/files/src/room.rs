//! Room: the free space at a path. Never writes.

use std::path::Path;

use rustix::fs::statvfs;

/// Bytes that this user may still write on the disk of an existing path; none if its file system does not say.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let room = statvfs(path).ok()?;
    Some(room.f_bavail.saturating_mul(room.f_frsize))
}
