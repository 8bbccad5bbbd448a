//! Launcher: starts the ranks of one host as copies of this binary, waits for them, and ends all when one fails. No
//! rank outlives it. Never takes part in their work.

use std::ffi::CString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::SystemTime;

use rustix::process::Signal;
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

use super::environment::{JOB, LAUNCHER_PID, PLAIN_LOCAL_RANK, PLAIN_LOCAL_WORLD, PLAIN_RANK, PLAIN_WORLD};
use super::error::LaunchError;
use super::options::{EXIT_RANK_FAILED, EXIT_REPORTED, LaunchOptions};

/// By convention, a program that a signal ends has this plus the signal's number as its exit code.
pub(super) const EXIT_SIGNAL_BASE: i32 = 128;
/// The running program, even if another file lies at its path by now.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Starts `ranks` copies of this binary with its arguments, and waits for all of them.
///
/// Succeeds if all ranks succeed. If one fails, or this process is asked to end (SIGINT, SIGTERM), all ranks are killed
/// and reaped, and the reason is printed to standard error, once. The exit code is then 1, or 2 if the rank printed its
/// own error, or 130 or 143 after a signal. Call it from the main thread: ranks die with the thread that starts them.
pub fn launch(ranks: usize, _options: &LaunchOptions) -> ExitCode {
    match run(ranks) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Interrupted(signal)) => {
            let name = signal_name(signal).unwrap_or("a signal");
            super::print(&format!("interrupted by {name}: all {ranks} ranks have ended"));
            ExitCode::from((EXIT_SIGNAL_BASE + signal) as u8)
        }
        Err(Failure::Reported) => ExitCode::from(EXIT_REPORTED),
        Err(Failure::Error(error)) => {
            super::print(&error.report());
            ExitCode::from(EXIT_RANK_FAILED)
        }
    }
}

/// Names this process after its program, for `ps` and `pkill`. Ranks, and what `cargo zero run` starts, are started
/// through `/proc`, and would otherwise be listed under that name.
pub(super) fn take_program_name() {
    let program = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default();
    if let Ok(name) = CString::new(name.as_encoded_bytes()) {
        // A name is not worth an error.
        let _ = rustix::thread::set_name(&name);
    }
}

/// Ties this process's life to its launcher's.
pub(super) fn die_with(launcher_pid: u32) -> Result<(), LaunchError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(LaunchError::system("tie this rank to its launcher"))?;
    // A launcher that died before that call sends no signal.
    let parent_pid = rustix::process::getppid().map(|pid| pid.as_raw_pid() as u32);
    if parent_pid == Some(launcher_pid) { Ok(()) } else { Err(LaunchError::LauncherGone { pid: launcher_pid }) }
}

/// Why a run ended before its time.
enum Failure {
    Interrupted(i32),
    /// A rank failed and has said why.
    Reported,
    Error(LaunchError),
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Self {
        Failure::Error(error)
    }
}

fn run(ranks: usize) -> Result<(), Failure> {
    // Before the first rank starts. Otherwise its end could go unnoticed.
    let mut signals = Signals::new([SIGCHLD, SIGINT, SIGTERM]).map_err(LaunchError::system("watch for signals"))?;
    let mut crew = Crew::default();
    let job = unique_job();
    for rank in 0..ranks {
        let child = command(rank, ranks, &job).spawn().map_err(|source| LaunchError::Spawn { rank, source })?;
        crew.members.push(Member { rank, child });
    }
    while !crew.members.is_empty() {
        // Ctrl-C reaches the ranks, too. It arrives here before the news that they have ended, so it is looked for
        // first.
        if let Some(signal) = signals.wait().find(|signal| *signal != SIGCHLD) {
            return Err(Failure::Interrupted(signal));
        }
        crew.reap()?;
    }
    Ok(())
}

fn command(rank: usize, ranks: usize, job: &str) -> Command {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    // Not by its path: a build may have replaced the file there since this process started.
    let mut command = Command::new(THIS_PROGRAM);
    command
        .arg0(name)
        .args(arguments)
        .stdin(Stdio::null())
        .env(PLAIN_RANK, rank.to_string())
        .env(PLAIN_WORLD, ranks.to_string())
        .env(PLAIN_LOCAL_RANK, rank.to_string())
        .env(PLAIN_LOCAL_WORLD, ranks.to_string())
        .env(JOB, job)
        .env(LAUNCHER_PID, std::process::id().to_string());
    command
}

/// A name that no other job has: the process id is unique among running processes, and the time tells it from earlier
/// ones.
fn unique_job() -> String {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), time.as_nanos())
}

/// The ranks that still run. When this is dropped for whatever reason, they are killed and reaped.
#[derive(Default)]
struct Crew {
    members: Vec<Member>,
}

struct Member {
    rank: usize,
    child: Child,
}

impl Crew {
    /// Removes the ranks that have ended. If some failed, the error names one that has not reported its own.
    fn reap(&mut self) -> Result<(), Failure> {
        let mut failures = Vec::new();
        let mut running = Vec::new();
        for mut member in self.members.drain(..) {
            match member.child.try_wait() {
                Ok(None) => running.push(member),
                Ok(Some(status)) => failures.extend(failure(&member, status)),
                Err(source) => failures.push(LaunchError::system("wait for a rank")(source).into()),
            }
        }
        self.members = running;
        let reported = failures.iter().any(|failure| matches!(failure, Failure::Reported));
        match failures.into_iter().find(|failure| !matches!(failure, Failure::Reported)) {
            Some(unreported) => Err(unreported),
            None if reported => Err(Failure::Reported),
            None => Ok(()),
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.members {
            // Fails only for a rank that has ended.
            let _ = member.child.kill();
        }
        for member in &mut self.members {
            // Fails only for a rank that was reaped.
            let _ = member.child.wait();
        }
    }
}

fn failure(member: &Member, status: ExitStatus) -> Option<Failure> {
    let (rank, pid) = (member.rank, member.child.id());
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) if code == i32::from(EXIT_REPORTED) => Some(Failure::Reported),
        (Some(code), _) => Some(LaunchError::RankFailed { rank, pid, code }.into()),
        (None, signal) => Some(LaunchError::RankKilled { rank, pid, signal: signal.unwrap_or_default() }.into()),
    }
}
