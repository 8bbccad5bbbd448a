//! The processor as kernels see it: how many of its threads share their work. Never computes.

use std::num::NonZeroUsize;

/// This processor, or some of its threads. By default only the calling thread.
#[derive(Clone, Copy, Debug)]
pub struct Cpu {
    pub(super) threads: NonZeroUsize,
    /// Work is shared only if each thread gets this many elements.
    pub(super) elements_min: usize,
}

impl Default for Cpu {
    fn default() -> Self {
        Self::ONE_THREAD
    }
}
