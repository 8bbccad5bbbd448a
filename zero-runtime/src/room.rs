//! Room: how much can still be written where a path lies. Never writes.

use std::path::Path;

use rustix::fs::statvfs;

/// Bytes that are free for us on the disk of an existing path; none where its file system does not tell.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    let room = statvfs(path).ok()?;
    Some(room.f_bavail.saturating_mul(room.f_frsize))
}
