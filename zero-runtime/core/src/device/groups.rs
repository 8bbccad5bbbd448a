//! Groups: how much memory the control groups of this process leave it. Reads both versions of groups, and every level
//! up to the root, because a limit holds for all groups below it. Never changes a group.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// The memory that one limit leaves.
#[derive(Debug, PartialEq, Eq)]
pub struct Room {
    /// Directory of the group.
    pub group: PathBuf,
    /// The most memory that its processes may use together.
    pub limit_bytes: u64,
    /// The unused part of the limit. Files that they have cached count as free, because the kernel can reclaim that memory.
    pub free_bytes: u64,
}

/// The names of the files of one version.
struct VersionFiles {
    file_system: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// Rows of `memory.stat`, of a group and all below it.
    caches: [&'static str; 2],
}

const V1: VersionFiles = VersionFiles {
    file_system: "cgroup",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    caches: ["total_inactive_file", "total_active_file"],
};
const V2: VersionFiles = VersionFiles {
    file_system: "cgroup2",
    limit: "memory.max",
    usage: "memory.current",
    caches: ["inactive_file", "active_file"],
};

/// A mounted hierarchy of groups.
struct Mount {
    file_system: String,
    options: String,
    /// The group that is mounted.
    root: PathBuf,
    point: PathBuf,
}

/// The limits that hold for this process. `root` is the directory that has `/proc` and the hierarchies.
pub fn rooms(root: &Path) -> Vec<Room> {
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
    let (groups, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let mounts: Vec<Mount> = mounts.lines().filter_map(mount).collect();
    groups.lines().flat_map(|line| rooms_of(line, &mounts, root)).collect()
}

/// The limits of one hierarchy, from a line with its number, its controllers (none in version 2) and the process's
/// group, with colons between them.
fn rooms_of(line: &str, mounts: &[Mount], root: &Path) -> Vec<Room> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { return Vec::new() };
    let names = match controllers {
        "" => &V2,
        _ if controllers.split(',').any(|name| name == "memory") => &V1,
        _ => return Vec::new(),
    };
    let has_memory = |mount: &&Mount| {
        let is_v2 = names.file_system == V2.file_system;
        mount.file_system == names.file_system && (is_v2 || mount.options.split(',').any(|option| option == "memory"))
    };
    let directories = mounts.iter().filter(has_memory).flat_map(|mount| mount.directories(Path::new(group)));
    directories.filter_map(|directory| room(directory, names, root)).collect()
}

impl Mount {
    /// The directory of a group, and those above it.
    fn directories(&self, group: &Path) -> Vec<PathBuf> {
        let is_outside = group.components().any(|part| part == Component::ParentDir);
        let below = match group.strip_prefix(&self.root) {
            Ok(below) if !is_outside => below,
            // Inside a container the group's path may not exist. The limit is then that of the mounted group.
            _ => Path::new(""),
        };
        // Collected, because joining a path with an empty one appends a slash.
        let own: PathBuf = self.point.join(below).components().collect();
        own.ancestors().take_while(|directory| directory.starts_with(&self.point)).map(Path::to_owned).collect()
    }
}

/// A line of mountinfo (proc_pid_mountinfo(5)): fields 4 and 5 are root and mount point; after a dash come the file
/// system, its source, and options.
fn mount(line: &str) -> Option<Mount> {
    let (place, what) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3).map(|field| PathBuf::from(unescaped(field)));
    let mut what = what.split(' ');
    Some(Mount {
        root: place.next()?,
        point: place.next()?,
        file_system: what.next()?.to_owned(),
        options: what.nth(1)?.to_owned(),
    })
}

/// A field of mountinfo, in which spaces and the like are a backslash and three octal digits.
fn unescaped(field: &str) -> OsString {
    let (mut bytes, mut rest) = (Vec::new(), field.as_bytes());
    while let Some((&first, others)) = rest.split_first() {
        let digits = others.get(..3).and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        let (byte, others) = match digits {
            Some(byte) if first == b'\\' => (byte, &others[3..]),
            _ => (first, others),
        };
        bytes.push(byte);
        rest = others;
    }
    OsString::from_vec(bytes)
}

/// The memory that a group leaves. `None` if it has no limit: its file says `max`, or does not exist, as at the root.
fn room(group: PathBuf, names: &VersionFiles, root: &Path) -> Option<Room> {
    let directory = root.join(group.strip_prefix("/").unwrap_or(&group));
    let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let limit_bytes = number(names.limit)?;
    let statistics = read("memory.stat").unwrap_or_default();
    let rows = statistics.lines().filter_map(|row| row.split_once(' '));
    let cached =
        rows.filter(|(name, _)| names.caches.contains(name)).filter_map(|(_, bytes)| bytes.parse::<u64>().ok());
    let in_use = number(names.usage).unwrap_or(0).saturating_sub(cached.sum());
    Some(Room { group, limit_bytes, free_bytes: limit_bytes.saturating_sub(in_use) })
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const GIB: u64 = 1 << 30;
    /// The value of version 1 if there is no limit.
    const UNLIMITED: &str = "9223372036854771712";

    /// A made-up system.
    fn system(groups: &str, mounts: &[&str], files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        let mounts = mounts.join("\n");
        for (name, content) in [("proc/self/cgroup", groups), ("proc/self/mountinfo", &mounts)].iter().chain(files) {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    /// The directory of each limit, and the bytes that it leaves.
    fn found(root: &TempDir) -> Vec<(String, u64)> {
        let rooms = rooms(root.path()).into_iter();
        rooms.map(|room| (room.group.display().to_string(), room.free_bytes)).collect()
    }

    const UNIFIED: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";
    const MEMORY: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory";

    #[test]
    fn version_2_gives_each_limit_on_the_way_up() {
        let files = [
            ("sys/fs/cgroup/a/memory.max", "3221225472\n"),
            ("sys/fs/cgroup/a/memory.current", "2147483648\n"),
            (
                "sys/fs/cgroup/a/memory.stat",
                "anon 5\nfile 1073741824\ninactive_file 536870912\nactive_file 268435456\n",
            ),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "7\n"),
            ("sys/fs/cgroup/a/b/c/memory.max", "2147483648\n"),
            ("sys/fs/cgroup/a/b/c/memory.current", "1073741824\n"),
            // Not above the process's group.
            ("sys/fs/cgroup/d/memory.max", "1\n"),
        ];
        let root = system("0::/a/b/c\n", &[UNIFIED], &files);
        // Of 3 GiB, 2 are in use. Three quarters of a GiB of them are cached files.
        let expected = [("/sys/fs/cgroup/a/b/c", GIB), ("/sys/fs/cgroup/a", 3 * GIB - 2 * GIB + GIB / 4 * 3)];
        assert_eq!(found(&root), expected.map(|(group, free)| (group.to_owned(), free)));
        assert_eq!(rooms(root.path())[1].limit_bytes, 3 * GIB);
    }

    #[test]
    fn version_1_is_the_hierarchy_of_memory() {
        let files = [
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "536870912\n"),
            (
                "sys/fs/cgroup/memory/job/memory.stat",
                "inactive_file 9\ntotal_inactive_file 4096\ntotal_active_file 1\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED),
            ("sys/fs/cgroup/cpu/job/memory.limit_in_bytes", "1\n"),
        ];
        let cpu = "31 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu";
        let root = system("5:cpu:/job\n4:cpuset,memory:/job\n0::/\n", &[cpu, MEMORY], &files);
        let found = found(&root);
        assert_eq!(found[0], ("/sys/fs/cgroup/memory/job".to_owned(), GIB / 2 + 4097));
        assert!(found.len() == 2 && found[1].1 > 1 << 62, "{found:?}");
    }

    /// Version 2 may be mounted beside version 1, without the memory controller.
    #[test]
    fn of_a_hybrid_both_are_asked() {
        let unified = "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw";
        let v1 = ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4096\n");
        let groups = "4:memory:/a\n0::/b\n";
        assert_eq!(found(&system(groups, &[MEMORY, unified], &[v1])), [("/sys/fs/cgroup/memory/a".to_owned(), 4096)]);
        let v2 = ("sys/fs/cgroup/unified/b/memory.max", "8192\n");
        assert_eq!(found(&system(groups, &[MEMORY, unified], &[v1, v2])).len(), 2);
    }

    /// A container may see its own group only, mounted as if it were the top.
    #[test]
    fn a_group_is_found_below_what_is_mounted() {
        let files = [("sys/fs/cgroup/memory.max", "4096\n"), ("sys/fs/cgroup/x/memory.max", "2048\n")];
        let mount = "30 23 0:26 /pod/one /sys/fs/cgroup ro - cgroup2 cgroup2 rw";
        for (group, limits) in [("/pod/one/x", 2), ("/pod/one", 1), ("/pod/two/x", 1), ("/", 1)] {
            assert_eq!(found(&system(&format!("0::{group}\n"), &[mount], &files)).len(), limits, "{group}");
        }
    }

    /// For a process that was moved out of the root of its namespace, or that has entered another namespace.
    #[test]
    fn a_group_outside_of_the_namespace_has_the_limit_of_what_is_mounted() {
        let files = [("sys/fs/cgroup/memory.max", "4096\n"), ("sys/memory.max", "1\n"), ("memory.max", "1\n")];
        let above = "30 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        for (group, mount) in [("/../..", UNIFIED), ("/../../x", UNIFIED), ("/", above)] {
            let root = system(&format!("0::{group}\n"), &[mount], &files);
            assert_eq!(found(&root), [("/sys/fs/cgroup".to_owned(), 4096)], "{group}");
        }
    }

    #[test]
    fn names_may_have_spaces_and_colons() {
        let mount = r"30 23 0:26 / /my\040groups rw - cgroup2 cgroup2 rw";
        let root = system("0::/a:b\n", &[mount], &[("my groups/a:b/memory.max", "4096\n")]);
        assert_eq!(found(&root), [("/my groups/a:b".to_owned(), 4096)]);
    }

    #[test]
    fn without_limits_or_without_groups_there_is_nothing() {
        assert_eq!(found(&system("0::/a\n", &[UNIFIED], &[("sys/fs/cgroup/a/memory.max", "max\n")])), []);
        assert_eq!(found(&system("", &[], &[])), []);
        assert_eq!(found(&tempfile::tempdir().unwrap()), []);
    }
}
