//! Processors: lists those that a thread may use, keeps a thread to one, and parses a number of threads. Never chooses one.

use std::num::NonZeroUsize;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The numbers of the processors that the calling thread may use, in order.
pub fn allowed() -> Result<Vec<usize>, Errno> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor)).collect())
}

/// Keeps the calling thread, and threads that it starts, to one processor.
pub fn keep_to(processor: usize) -> Result<(), Errno> {
    let mut own = CpuSet::new();
    own.set(processor);
    sched_setaffinity(None, &own)
}

/// More threads than cores only wait for one another, and no host has more cores than this. A larger number must be a
/// mistake.
pub const THREADS_MAX: usize = 1024;

/// Parses a number of threads.
pub fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let threads = text.parse().ok().filter(|threads: &NonZeroUsize| threads.get() <= THREADS_MAX);
    threads.ok_or_else(|| format!("expected a whole number from 1 to {THREADS_MAX}: no host has more cores"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_threads_may_be_asked_for_as_a_host_has_cores() {
        assert_eq!(["1", "1024"].map(|good| threads(good).map(NonZeroUsize::get)), [Ok(1), Ok(THREADS_MAX)]);
        assert!(["0", "1025", "100000", "-1", ""].into_iter().all(|bad| threads(bad).is_err()));
    }
}
