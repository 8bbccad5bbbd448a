//! Time: the clocks of profiles and of reports of waits, and sleeps between looks. Never decides how long anything may
//! take.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the host's monotonic clock, so that records of its ranks lie on one axis.
pub fn now_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// Nanoseconds that all threads of this process together have had a core. Reading them is a system call.
pub fn core_ns() -> u64 {
    clock_ns(ClockId::ProcessCPUTime)
}

fn clock_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The first sleep between two looks at something that may be ready at once.
const SLEEP_FIRST: Duration = Duration::from_micros(4);
/// Each sleep is longer than the last by one part in this many, so that the time slept too long is a small part of the
/// wait.
const SLEEP_GROWTH: u32 = 64;
/// The longest sleep.
pub const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Sleeps between looks at something, each a little longer than the last.
pub struct LongerSleeps(Duration);

/// The sleeps of a wait that begins.
impl Default for LongerSleeps {
    fn default() -> Self {
        Self(SLEEP_FIRST)
    }
}

impl LongerSleeps {
    /// Sleeps, and returns for how long it meant to.
    pub fn sleep(&mut self) -> Duration {
        let slept = self.0;
        std::thread::sleep(slept);
        self.0 = (slept + slept / SLEEP_GROWTH).min(SLEEP_MAX);
        slept
    }
}
