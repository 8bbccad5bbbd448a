//! Available: how much memory a run can get from the host and within the limits of control groups. Never allocates any.

use std::path::Path;

use zero_plan::Bytes;
use zero_plan::lines::PAGE_BYTES;

use super::error::DeviceError;
use super::groups::rooms;

/// Checks that this much memory is available, because otherwise the kernel would later kill a process instead of
/// refusing it memory.
///
/// # Errors
/// Z0331 if the host, or a control group of this process, has less than `bytes` available.
pub fn check_available(bytes: usize) -> Result<(), DeviceError> {
    check_below(bytes, 0, Path::new("/"))
}

/// [`check_available`] for all that a run needs. What this process holds already is a part of that, so it counts as available.
///
/// # Errors
/// As for [`check_available`].
pub fn check_available_to_run(bytes: usize) -> Result<(), DeviceError> {
    check_below(bytes, own_bytes(Path::new("/")), Path::new("/"))
}

/// Memory that a run can have now, in bytes.
///
/// # Errors
/// Z0332 if the system does not report it.
pub fn memory_bytes() -> Result<u64, DeviceError> {
    least(Path::new("/")).map(|(bytes, _)| bytes)
}

/// [`check_available`] with the system's files below `root`, if this many bytes are held already.
fn check_below(bytes: usize, held: u64, root: &Path) -> Result<(), DeviceError> {
    let (available, limit) = least(root)?;
    let available = available + held;
    if bytes as u64 > available {
        Err(DeviceError::OutOfMemory { bytes: bytes as u64, available, limit })
    } else {
        Ok(())
    }
}

/// Bytes that only this process holds, from `/proc/self/statm`: its second and third numbers are the pages in memory, and those
/// of them that belong to files.
fn own_bytes(root: &Path) -> u64 {
    let table = std::fs::read_to_string(root.join("proc/self/statm")).unwrap_or_default();
    let pages: Vec<u64> = table.split_whitespace().filter_map(|pages| pages.parse().ok()).collect();
    let &[_, held, of_files, ..] = &*pages else { return 0 };
    held.saturating_sub(of_files) * PAGE_BYTES as u64
}

/// The available memory, and a text that names its limit.
fn least(root: &Path) -> Result<(u64, String), DeviceError> {
    let table = std::fs::read_to_string(root.join("proc/meminfo"));
    let table = table.map_err(DeviceError::system("read /proc/meminfo"))?;
    let host = (available_bytes(&table), "on this host".to_owned());
    // Swap of a group does not count: the group may not be allowed to use it, and training would be slow on it.
    let groups = rooms(root).into_iter().map(|room| {
        let limit = Bytes(room.limit_bytes as usize);
        (room.free_bytes, format!("in the control group `{}`, whose limit is {limit}", room.group.display()))
    });
    Ok(groups.fold(host, |least, next| if next.0 < least.0 { next } else { least }))
}

/// Memory that is available to new programs, plus free swap, from `/proc/meminfo`, whose unit is KiB.
fn available_bytes(table: &str) -> u64 {
    let rows = table.lines().filter(|row| row.starts_with("MemAvailable:") || row.starts_with("SwapFree:"));
    let kib = rows.filter_map(|row| row.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.sum::<u64>() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_free_memory_and_swap() {
        let table = "MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable:   4 kB\nSwapTotal: 8 kB\nSwapFree: 3 kB\n";
        assert_eq!(available_bytes(table), 7 * 1024);
    }

    /// A host with 8 MiB, and a group with `limit` bytes in it, of which 1 MiB is in use.
    fn refused(limit: &str, bytes: usize) -> Option<String> {
        let root = tempfile::tempdir().unwrap();
        for (name, content) in [
            ("proc/meminfo", "MemAvailable: 8192 kB\n"),
            ("proc/self/cgroup", "0::/job\n"),
            ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/job/memory.max", limit),
            ("sys/fs/cgroup/job/memory.current", "1048576\n"),
        ] {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        check_below(bytes, 0, root.path()).err().map(|error| error.report())
    }

    #[test]
    fn the_tightest_limit_counts_to_the_byte_and_is_named() {
        const MIB: usize = 1 << 20;
        assert_eq!(refused("max", 8 * MIB), None);
        assert_eq!(refused("4194304", 3 * MIB), None);
        assert_eq!(refused("1073741824", 8 * MIB), None);
        let host = refused("max", 8 * MIB + 1).expect("a byte too much");
        let expected = "error[Z0331]: the run needs 8.0 MiB of memory, but only 8.0 MiB are available on this host\n";
        assert!(host.starts_with(expected), "{host}");
        let group = refused("4194304", 3 * MIB + 1).expect("a byte too much");
        let expected = "only 3.0 MiB are available in the control group `/sys/fs/cgroup/job`, whose limit is 4.0 MiB\n";
        assert!(group.contains(expected), "{group}");
        assert!(refused("1", 1).is_some(), "a group beyond its limit has nothing to give");
    }

    #[test]
    fn what_a_process_holds_itself_is_a_part_of_what_it_needs() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
        std::fs::write(root.path().join("proc/meminfo"), "MemAvailable: 64 kB\n").unwrap();
        std::fs::write(root.path().join("proc/self/statm"), "99 7 2 1 0 3 0\n").unwrap();
        let (free, held) = (64 << 10, own_bytes(root.path()));
        assert_eq!(held, 5 * 4096);
        assert!(check_below(free + 5 * 4096, held, root.path()).is_ok());
        let report = check_below(free + 5 * 4096 + 1, held, root.path()).expect_err("a byte too much").report();
        assert!(report.contains("only 84.0 KiB are available on this host"), "{report}");
        // More memory for a process that holds some has to be free.
        assert!(check_below(free + 1, 0, root.path()).is_err());
        assert!(own_bytes(Path::new("/")) > 0);
    }
}
