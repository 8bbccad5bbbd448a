//! Time: the clock by which a profile and reports of waits are read. Never decides how long anything may take.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock: of the host, so that what its ranks record lies on one axis.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
