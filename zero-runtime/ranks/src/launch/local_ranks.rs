//! Local ranks: the ranks of one host, started as copies of this binary, and the meaning of their exits. No rank
//! outlives them, unless the system keeps it. Never decides what happens next.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::SystemTime;

use rustix::process::{Pid, Signal, kill_process};

use super::environment::{JOB, LAUNCHER_PID, PLAIN_LOCAL_RANK, PLAIN_LOCAL_WORLD, PLAIN_RANK, PLAIN_WORLD, RESTART};
use super::error::{LaunchError, PANIC};
use super::member::Member;
use super::options::{EXIT_AGAIN, EXIT_ASKED, EXIT_NOT_SAVED, EXIT_REPORTED};

/// The running program, even if another file lies at its path by now.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Why a run ended early.
pub(super) struct RunFailure {
    /// None if a rank has reported it.
    pub error: Option<LaunchError>,
    /// Whether a restart may help.
    pub may_pass: bool,
}

impl From<LaunchError> for RunFailure {
    fn from(error: LaunchError) -> Self {
        let may_pass = matches!(error, LaunchError::RankKilled { .. } | LaunchError::RankFailed { code: PANIC, .. });
        RunFailure { error: Some(error), may_pass }
    }
}

/// The meaning of the end of a rank.
enum RankEnd {
    /// It has ended by itself, and the others will too.
    Done(u8),
    Failed(RunFailure),
}

/// The ranks that still run. When this is dropped for whatever reason, they are killed and reaped.
pub(super) struct LocalRanks {
    members: Vec<Member>,
    /// Exit codes of the ranks that have ended by themselves.
    codes: Vec<u8>,
}

impl LocalRanks {
    /// Starts `ranks` copies of this binary with its arguments, after `restarts` earlier starts.
    pub fn start(ranks: usize, restarts: u64) -> Result<Self, LaunchError> {
        // If a rank cannot be started, dropping this ends the ranks before it.
        let mut local = LocalRanks { members: Vec::new(), codes: Vec::new() };
        let job = unique_job();
        for rank in 0..ranks {
            let child = command(rank, ranks, restarts, &job).spawn();
            let child = child.map_err(|source| LaunchError::Spawn { rank, source })?;
            local.members.push(Member::new(rank, child));
        }
        Ok(local)
    }

    /// Whether some rank still runs.
    pub fn runs(&self) -> bool {
        !self.members.is_empty()
    }

    /// The exit code of a run whose ranks have all ended by themselves: [`EXIT_NOT_SAVED`] if a rank returned it; otherwise
    /// [`EXIT_ASKED`] if a rank returned it; otherwise 0.
    pub fn code(&self) -> u8 {
        let says = |code: &u8| self.codes.contains(code);
        [EXIT_NOT_SAVED, EXIT_ASKED].into_iter().find(says).unwrap_or(0)
    }

    /// Asks all ranks to end.
    pub fn ask(&self) {
        for member in &self.members {
            // Fails only for a rank that has ended; its id is not reused before it is reaped.
            let _ = kill_process(Pid::from_child(&member.child), Signal::TERM);
        }
    }

    /// Removes the ranks that have ended. If some failed, the error is the first that no rank has printed, if any.
    pub fn reap(&mut self) -> Result<(), RunFailure> {
        let mut failures = Vec::new();
        let mut running = Vec::new();
        for mut member in self.members.drain(..) {
            match member.ended() {
                Ok(None) => running.push(member),
                Ok(Some(status)) => match end_of(&member, status) {
                    RankEnd::Done(code) => self.codes.push(code),
                    RankEnd::Failed(failure) => failures.push(failure),
                },
                Err(source) => failures.push(LaunchError::system("wait for a rank")(source).into()),
            }
        }
        self.members = running;
        if failures.is_empty() {
            return Ok(());
        }
        let may_pass = failures.iter().all(|failure| failure.may_pass);
        Err(RunFailure { error: failures.into_iter().find_map(|failure| failure.error), may_pass })
    }
}

impl Drop for LocalRanks {
    fn drop(&mut self) {
        for member in &mut self.members {
            // Fails only for a rank that has ended.
            let _ = member.child.kill();
        }
        self.members.iter_mut().for_each(Member::reap);
    }
}

fn end_of(member: &Member, status: ExitStatus) -> RankEnd {
    let (rank, pid) = (member.rank, member.child.id());
    let Some(code) = status.code() else {
        let signal = status.signal().unwrap_or_default();
        return RankEnd::Failed(LaunchError::RankKilled { rank, pid, signal }.into());
    };
    match u8::try_from(code).unwrap_or(EXIT_REPORTED) {
        code @ (0 | EXIT_ASKED | EXIT_NOT_SAVED) => RankEnd::Done(code),
        told @ (EXIT_REPORTED | EXIT_AGAIN) => {
            RankEnd::Failed(RunFailure { error: None, may_pass: told == EXIT_AGAIN })
        }
        _ => RankEnd::Failed(LaunchError::RankFailed { rank, pid, code }.into()),
    }
}

fn command(rank: usize, ranks: usize, restarts: u64, job: &str) -> Command {
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
    // A count set by another launcher does not describe these ranks.
    if restarts == 0 {
        command.env_remove(RESTART)
    } else {
        command.env(RESTART, restarts.to_string())
    };
    command
}

/// A name that no other job has: the process id is unique among running processes, and the time distinguishes it from
/// earlier ones.
fn unique_job() -> String {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), time.as_nanos())
}
