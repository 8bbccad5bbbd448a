//! The kernel's view of processes and of the memory that they share. Only reads it.

use std::fs;

use rustix::process::Pid;

/// Living processes of a group.
pub fn members(group: Pid) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let ours = pids.filter(|pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the name, which may contain anything: state, parent, group.
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        matches!(fields[..], [state, _, its_group, ..]
            if !matches!(state, "Z" | "X") && its_group == group.as_raw_pid().to_string())
    });
    ours.filter_map(Pid::from_raw).collect()
}

/// The rank that a process was started as.
pub fn rank_of(pid: Pid) -> Option<usize> {
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).ok()?;
    let rank = environment.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(b"RANK="))?;
    str::from_utf8(rank).ok()?.parse().ok()
}

/// Names of shared memory that could belong to our processes.
pub fn shared_memory_files() -> Vec<String> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("zero")).collect()
}

/// The files of the mappings that a process shares and may write to.
pub fn shared_mappings(pid: Pid) -> Vec<String> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", pid.as_raw_pid())).unwrap();
    let shared = maps.lines().filter(|line| line.split(' ').nth(1) == Some("rw-s"));
    shared.map(|line| line.split_once('/').map_or(String::new(), |(_, name)| format!("/{name}"))).collect()
}

/// The names of a process's threads.
pub fn thread_names(pid: Pid) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid())).unwrap().flatten();
    // A thread may end while its name is read.
    let names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names.map(|name| name.trim_end().to_owned()).collect()
}
