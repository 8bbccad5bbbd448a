//! Resident: the memory that this process has in use, as the kernel counts it. Never allocates on behalf of others.

/// The most memory that this process has held: `VmHWM`, which includes shared pages it touched.
pub fn peak_bytes() -> usize {
    status_bytes("VmHWM:")
}

/// Shared memory that this process has touched, its own or another rank's: `RssShmem`.
pub fn shared_bytes() -> usize {
    status_bytes("RssShmem:")
}

/// The result of a call, and the most memory that the process has held beyond what it held before. If other threads allocate meanwhile,
/// or if the process has held more before, this is too much.
pub(crate) fn growth<T>(call: impl FnOnce() -> T) -> (T, usize) {
    let before = status_bytes("VmRSS:");
    let result = call();
    (result, peak_bytes().saturating_sub(before))
}

/// A size of this process in bytes, which the kernel reports in KiB.
fn status_bytes(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kilobytes.unwrap_or(0) * 1024
}
