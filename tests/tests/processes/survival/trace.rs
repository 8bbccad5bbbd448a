//! Trace: a program under ptrace, which is killed before or after one of its system calls. Never changes what a call does.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// A point of a program: before or after a system call that concerns a folder. Threads may run in another order, so calls are
/// counted for each name and file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    pub call: &'static str,
    pub path: PathBuf,
    pub number: usize,
    pub is_after: bool,
}

/// The path of every file without a name.
pub const UNNAMED: &str = "#";

/// How a program ended, and the points that it reached.
pub struct Traced {
    pub code: Option<i32>,
    pub points: Vec<Point>,
}

/// How a call names its file.
enum By {
    /// The argument that is a path.
    Path(usize),
    /// The first argument, which is an open file.
    File,
}

/// System calls that can change the contents of a disk, or that a save or a tier waits for.
fn known(number: u64) -> Option<(&'static str, By)> {
    let by = match number as libc::c_long {
        libc::SYS_openat => ("openat", By::Path(1)),
        libc::SYS_mkdirat => ("mkdirat", By::Path(1)),
        libc::SYS_renameat => ("renameat", By::Path(1)),
        libc::SYS_renameat2 => ("renameat2", By::Path(1)),
        libc::SYS_unlinkat => ("unlinkat", By::Path(1)),
        libc::SYS_write => ("write", By::File),
        libc::SYS_pread64 => ("pread64", By::File),
        libc::SYS_pwrite64 => ("pwrite64", By::File),
        libc::SYS_writev => ("writev", By::File),
        libc::SYS_fsync => ("fsync", By::File),
        libc::SYS_fdatasync => ("fdatasync", By::File),
        libc::SYS_ftruncate => ("ftruncate", By::File),
        libc::SYS_fallocate => ("fallocate", By::File),
        libc::SYS_flock => ("flock", By::File),
        libc::SYS_close => ("close", By::File),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open => ("open", By::Path(0)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir => ("mkdir", By::Path(0)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => ("rename", By::Path(0)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink => ("unlink", By::Path(0)),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rmdir => ("rmdir", By::Path(0)),
        _ => return None,
    };
    Some(by)
}

/// Runs a program to its end, or kills it at a point. Its output is discarded.
pub fn trace(command: &mut Command, folder: &Path, kill_at: Option<&Point>) -> Traced {
    let mut tracer = Tracer { folder: folder.to_owned(), counts: BTreeMap::new(), inside: BTreeMap::new() };
    let program = start(command);
    let mut points = Vec::new();
    loop {
        // Only this thread's children and tracees: other tests have their own.
        let status = waitpid(Pid::from_raw(-1), Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)).unwrap();
        let goes_on = match status {
            WaitStatus::Exited(pid, code) if pid == program => return Traced { code: Some(code), points },
            WaitStatus::Signaled(pid, ..) if pid == program => return Traced { code: None, points },
            WaitStatus::PtraceSyscall(thread) => {
                if let Some(point) = tracer.point(thread) {
                    let is_it = Some(&point) == kill_at;
                    points.push(point);
                    if is_it {
                        kill(program, Signal::SIGKILL).unwrap();
                        continue;
                    }
                }
                ptrace::syscall(thread, None)
            }
            WaitStatus::PtraceEvent(thread, ..) => ptrace::syscall(thread, None),
            // A stop signal is not passed on: the thread continues to its next call.
            WaitStatus::Stopped(thread, Signal::SIGSTOP | Signal::SIGTRAP | Signal::SIGCONT) => {
                ptrace::syscall(thread, None)
            }
            WaitStatus::Stopped(thread, signal) => ptrace::syscall(thread, signal),
            _ => Ok(()),
        };
        // A thread that was just killed has ended.
        assert!(matches!(goes_on, Ok(()) | Err(Errno::ESRCH)), "{goes_on:?}");
    }
}

/// Starts a program that does nothing until it is traced. Its tracer waits for it.
#[expect(clippy::zombie_processes, reason = "its tracer waits for it, and for its threads")]
fn start(command: &mut Command) -> Pid {
    let mut waiting = Command::new("/bin/sh");
    waiting.arg("-c").arg("kill -STOP $$; exec \"$0\" \"$@\"").arg(command.get_program()).args(command.get_args());
    waiting.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    waiting.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let child = waiting.spawn().unwrap();
    let program = Pid::from_raw(child.id() as i32);
    let stopped = waitpid(program, Some(WaitPidFlag::WUNTRACED)).unwrap();
    assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(program, options).unwrap();
    kill(program, Signal::SIGCONT).unwrap();
    program
}

struct Tracer {
    folder: PathBuf,
    /// The number of times that each point was reached.
    counts: BTreeMap<(&'static str, PathBuf), usize>,
    /// The current call of each thread, if it concerns the folder.
    inside: BTreeMap<i32, Option<Point>>,
}

impl Tracer {
    /// The point at which a thread has stopped, if it concerns the folder.
    fn point(&mut self, thread: Pid) -> Option<Point> {
        if let Some(point) = self.inside.remove(&thread.as_raw()) {
            return Some(Point { is_after: true, ..point? });
        }
        let point = self.entry(thread);
        self.inside.insert(thread.as_raw(), point.clone());
        point
    }

    fn entry(&mut self, thread: Pid) -> Option<Point> {
        let info = ptrace::syscall_info(thread).ok()?;
        if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
            return None;
        }
        let (number, arguments) = call_of(thread)?;
        let (call, by) = known(number)?;
        let path = match by {
            By::Path(index) => text_at(thread, arguments[index])?,
            By::File => std::fs::read_link(format!("/proc/{thread}/fd/{}", arguments[0] as i32)).ok()?,
        };
        let path = path.strip_prefix(&self.folder).ok()?;
        // A file without a name is shown with a number, which is another one in each run.
        let path = if path.to_string_lossy().starts_with('#') { PathBuf::from(UNNAMED) } else { path.to_owned() };
        let count = self.counts.entry((call, path.clone())).or_default();
        *count += 1;
        Some(Point { call, path, number: *count, is_after: false })
    }
}

/// The number and the arguments of the system call that a thread is in.
fn call_of(thread: Pid) -> Option<(u64, [u64; 6])> {
    let text = std::fs::read_to_string(format!("/proc/{thread}/syscall")).ok()?;
    let mut words = text.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    }
    Some((number, arguments))
}

/// The text at an address in a thread's memory.
fn text_at(thread: Pid, address: u64) -> Option<PathBuf> {
    let memory = File::open(format!("/proc/{thread}/mem")).ok()?;
    let mut bytes = vec![0; 4096];
    // The next page may not be mapped.
    let to_page = 4096 - (address % 4096) as usize;
    let mut len = memory.read_at(&mut bytes[..to_page], address).ok()?;
    if !bytes[..len].contains(&0) {
        len += memory.read_at(&mut bytes[len..], address + len as u64).unwrap_or(0);
    }
    let end = bytes[..len].iter().position(|&byte| byte == 0)?;
    Some(PathBuf::from(str::from_utf8(&bytes[..end]).ok()?))
}
