//! Outside: what of a device's memory is in no arena, as the driver counts it. Never takes any.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

use super::context::DeviceContext;

/// What is known of the memory of a device besides what the driver says.
#[derive(Default)]
pub(super) struct KnownMemory {
    /// What was taken of the device before anything was asked for: its context, and what other programs have.
    before: AtomicUsize,
    /// What arenas have of it.
    pub arenas: AtomicUsize,
    /// Memory of the host that the device reaches at any time, segments that ranks share left out.
    pub pinned: AtomicUsize,
}

impl DeviceContext {
    /// The context is made: what has been taken by now, nobody here has asked for.
    pub fn begin_to_count(&self) {
        self.taken.before.store(self.taken_of_device(), Ordering::Relaxed);
    }

    /// What is in no arena. What other programs have taken or given back since the context was made counts, too.
    pub fn outside(&self) -> Vec<(&'static str, usize)> {
        let [before, arenas, pinned] =
            [&self.taken.before, &self.taken.arenas, &self.taken.pinned].map(|bytes| bytes.load(Ordering::Relaxed));
        let since = self.taken_of_device().saturating_sub(before + arenas);
        vec![
            ("on its GPU before it began", before),
            ("on its GPU outside arenas", since),
            ("pinned for its GPU", pinned),
        ]
    }

    /// Bytes of the device that somebody has.
    fn taken_of_device(&self) -> usize {
        let (mut free_bytes, mut total_bytes) = (0, 0);
        // SAFETY: room for two numbers. Where the driver does not know them, they stay 0.
        let _ = unsafe { (self.libraries.driver.cuMemGetInfo_v2)(&mut free_bytes, &mut total_bytes) };
        total_bytes.saturating_sub(free_bytes)
    }
}
