//! Flush: waits until the names in a folder are on its disk. Never writes.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::io::Errno;

/// Waits until the names in a folder are on its disk. A file system that knows no such wait, as many in user space, says that it is
/// invalid or not supported; then there is nothing to wait for.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    match File::open(path)?.sync_all() {
        Err(error) if is_unknown(&error) => Ok(()),
        flushed => flushed,
    }
}

fn is_unknown(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::INVAL | Errno::OPNOTSUPP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_wait_that_is_unknown_is_passed_over() {
        let is_passed_over = |error: Errno| is_unknown(&error.into());
        assert!(is_passed_over(Errno::INVAL) && is_passed_over(Errno::OPNOTSUPP));
        assert!(!is_passed_over(Errno::IO) && !is_passed_over(Errno::NOSPC) && !is_passed_over(Errno::ROFS));
        sync_dir(tempfile::tempdir().unwrap().path()).unwrap();
    }
}
