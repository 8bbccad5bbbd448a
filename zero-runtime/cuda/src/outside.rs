//! Outside: the memory of a device outside all arenas, as the driver counts it. Never allocates any.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering;

use super::context::DeviceContext;

impl DeviceContext {
    /// Begins to count once the context is made: memory that is in use by then was not requested here.
    pub fn begin_to_count(&self) {
        self.taken.before.store(self.taken_of_device(), Ordering::Relaxed);
    }

    /// The memory outside all arenas, and outside the host memory of states. It includes memory that other programs have
    /// allocated since the context was made, less the memory that they have freed.
    pub fn outside(&self) -> Vec<(&'static str, usize)> {
        let [before, arenas, pinned, states] =
            [&self.taken.before, &self.taken.arenas, &self.taken.pinned, &self.taken.states]
                .map(|bytes| bytes.load(Ordering::Relaxed));
        let since = self.taken_of_device().saturating_sub(before + arenas);
        vec![
            ("on its GPU before it began", before),
            ("on its GPU outside arenas", since),
            ("pinned for its GPU", pinned - states),
        ]
    }

    /// Bytes of the device that are in use by any program.
    fn taken_of_device(&self) -> usize {
        let [taken_bytes, _] = self.memory_of_device();
        taken_bytes
    }

    /// The same, and all bytes of the device.
    pub fn memory_of_device(&self) -> [usize; 2] {
        let (mut free_bytes, mut total_bytes) = (0, 0);
        // SAFETY: room for two numbers. If the driver does not know them, they stay 0.
        let _ = unsafe { (self.libraries.driver.cuMemGetInfo_v2)(&mut free_bytes, &mut total_bytes) };
        [total_bytes.saturating_sub(free_bytes), total_bytes]
    }
}
