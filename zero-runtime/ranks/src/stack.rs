//! Stack: work on a stack of known size, whatever limit (`ulimit -s`) the main thread of a process was given. Otherwise a small one would
//! overflow, which ends a process without a word about the limit.

use std::panic::resume_unwind;
use std::thread::{Builder, scope};

use rustix::process::{Resource, getrlimit};
use zero_core::device::STACK_BYTES;

use crate::launch::LaunchError;

/// Does the work of a main thread there, or in a thread of its own if the stack of the main thread may not grow to the size that work is
/// made for.
///
/// # Errors
/// Z0332 if there is no room for the thread.
pub fn with_room<R: Send>(work: impl FnOnce() -> R + Send) -> Result<R, LaunchError> {
    if getrlimit(Resource::Stack).current.is_none_or(|bytes| bytes >= STACK_BYTES as u64) {
        return Ok(work());
    }
    scope(|scope| {
        let thread = Builder::new().name("main".to_owned()).stack_size(STACK_BYTES).spawn_scoped(scope, work);
        let thread = thread.map_err(LaunchError::system("start a thread"))?;
        Ok(thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}
