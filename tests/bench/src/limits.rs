//! Limits: control groups of version 1 in which a run has only so much memory, or a disk of only so many bytes a second. They are
//! made as root and removed when they are dropped. Never limits this process.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{major, minor};

use crate::Outcome;

const HIERARCHIES: &str = "/sys/fs/cgroup";
/// Moves a shell to the group whose folder is its first argument, and becomes the program that the others are.
const ENTER: &str = "echo $$ > \"$1/cgroup.procs\" && shift && exec \"$@\"";

/// A group, or none: what runs there has no limits.
pub struct Limits(Option<PathBuf>);

impl Limits {
    /// No limits.
    pub const NONE: Self = Self(None);

    /// At most this much memory, the cache of files included.
    ///
    /// # Errors
    /// If this machine does not permit it.
    pub fn memory(bytes: u64) -> Outcome<Self> {
        Self::new("memory", &[("memory.limit_in_bytes", bytes.to_string())])
    }

    /// At most this many bytes a second read from the disk of a folder, and as many written to it.
    ///
    /// # Errors
    /// If this machine does not permit it.
    pub fn disk(folder: &Path, bytes_per_s: u64) -> Outcome<Self> {
        let rule = format!("{} {bytes_per_s}", disk_of(folder)?);
        Self::new("blkio", &["read", "write"].map(|way| (format!("blkio.throttle.{way}_bps_device"), rule.clone())))
    }

    fn new(controller: &str, rules: &[(impl AsRef<Path>, String)]) -> Outcome<Self> {
        let folder = Path::new(HIERARCHIES).join(controller).join(format!("zero-bench-{}", std::process::id()));
        let untold = |error| format!("no control group {}: {error}", folder.display());
        fs::create_dir(&folder).map_err(untold)?;
        let group = Self(Some(folder.clone()));
        rules.iter().try_for_each(|(file, rule)| fs::write(folder.join(file), rule)).map_err(untold)?;
        Ok(group)
    }

    /// The same command within these limits.
    pub fn within(&self, command: &Command) -> Command {
        let mut inner = match &self.0 {
            None => Command::new(command.get_program()),
            Some(folder) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", ENTER, "sh"]).arg(folder).arg(command.get_program());
                shell
            }
        };
        inner.args(command.get_args());
        inner.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        inner
    }

    /// The most memory that was in use, files' cache included, and the processes that were killed for want of it.
    ///
    /// # Errors
    /// If the group has no such figures.
    pub fn used(&self) -> Outcome<(u64, u64)> {
        let folder = self.0.as_deref().ok_or("nothing is limited")?;
        let events = fs::read_to_string(folder.join("memory.oom_control"))?;
        let killed = events.lines().find_map(|line| line.strip_prefix("oom_kill ")).ok_or("no count of kills")?;
        Ok((fs::read_to_string(folder.join("memory.max_usage_in_bytes"))?.trim().parse()?, killed.parse()?))
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            // All of its processes have ended. If not, the group is left behind, which limits nothing else.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// The numbers of the disk that a folder lies on: of the whole disk, because a partition cannot be throttled.
fn disk_of(folder: &Path) -> Outcome<String> {
    let device = fs::metadata(folder)?.dev();
    let numbers = format!("{}:{}", major(device), minor(device));
    let block = Path::new("/sys/dev/block").join(&numbers);
    if block.join("partition").exists() {
        return Ok(fs::read_to_string(fs::canonicalize(block)?.join("../dev"))?.trim().to_owned());
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_limits_a_command_is_itself() {
        let mut command = Command::new("echo");
        command.args(["a b", "c"]);
        assert_eq!(Limits::NONE.within(&command).output().expect("echo").stdout, b"a b c\n");
        let mut command = Command::new("sh");
        command.args(["-c", "echo $THREADS"]).env("THREADS", "2");
        assert_eq!(Limits::NONE.within(&command).output().expect("a shell").stdout, b"2\n");
        assert!(Limits::NONE.used().is_err());
    }

    #[test]
    fn a_process_in_a_group_is_held_to_its_memory() {
        let limits = match Limits::memory(64 << 20) {
            Ok(limits) => limits,
            Err(error) => return eprintln!("SKIPPED: no limit of memory: {error}"),
        };
        let mut command = Command::new("sh");
        command.args(["-c", "cat /proc/self/cgroup && head -c 256M /dev/zero | tail -c 128M > /dev/null"]);
        let output = limits.within(&command).output().expect("a shell");
        assert!(String::from_utf8_lossy(&output.stdout).contains(&format!("zero-bench-{}", std::process::id())));
        let (most, killed) = limits.used().expect("figures");
        assert!(most <= 64 << 20 && killed > 0, "{most} bytes, {killed} killed");
        let folder = limits.0.clone().expect("a group");
        drop(limits);
        assert!(!folder.exists());
    }
}
