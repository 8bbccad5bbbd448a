//! Processors: which of them a thread may use, and keeps to. Never decides which.

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
