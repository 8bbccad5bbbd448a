//! Restarts: decides whether a run that has ended is started again, and from where. Never starts anything itself.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use signal_hook::consts::SIGCHLD;
use signal_hook::low_level::signal_name;

use super::error::LaunchError;
use super::local_ranks::RunFailure;
use super::options::{EXIT_RANK_FAILED, EXIT_REPORTED, LaunchOptions};
use super::print;
use super::signals::Signals;

/// By convention, the exit code of a program that was ended by a signal is this plus the signal's number.
pub(super) const EXIT_SIGNAL_BASE: i32 = 128;

/// How long a rank of the last start may hold the folder of checkpoints: twice as long as ranks usually wait for one another.
const LEFTOVERS: Duration = Duration::from_secs(10 * 60);
/// The time between two checks of the folder.
const LOOK: Duration = Duration::from_millis(200);

/// Why a run ended early.
pub(super) enum EndCause {
    Interrupted(i32),
    /// It was asked to end by this signal, and has not.
    OutOfGrace(i32),
    Failed(RunFailure),
}

impl<E: Into<RunFailure>> From<E> for EndCause {
    fn from(failure: E) -> Self {
        EndCause::Failed(failure.into())
    }
}

impl RunFailure {
    /// Prints the error, unless a rank has printed it. Returns the exit code.
    pub fn tell(&self) -> ExitCode {
        self.error.iter().for_each(|error| print(&error.report()));
        ExitCode::from(if self.error.is_some() { EXIT_RANK_FAILED } else { EXIT_REPORTED })
    }
}

impl LaunchOptions {
    pub(super) fn newest(&self) -> Option<u64> {
        self.folder.as_ref().and_then(|folder| (folder.newest)(&folder.path))
    }
}

pub(super) fn name_of(signal: i32) -> &'static str {
    signal_name(signal).unwrap_or("a signal")
}

pub(super) fn ended_by(signal: i32) -> ExitCode {
    ExitCode::from((EXIT_SIGNAL_BASE + signal) as u8)
}

/// Calls `attempt` with the number of restarts so far, and again if that may help: as often as `options` say, but only
/// once from the same checkpoint.
pub(super) fn repeat(
    options: &LaunchOptions,
    between: Duration,
    signals: &mut Signals,
    mut attempt: impl FnMut(u64, &mut Signals) -> Result<u8, EndCause>,
) -> Result<u8, EndCause> {
    let mut restarts = 0;
    loop {
        let before = options.newest();
        let failure = match attempt(restarts, signals) {
            Err(EndCause::Failed(failure)) if failure.may_pass && restarts < options.restarts => failure,
            end => return end,
        };
        failure.tell();
        let newest = options.newest();
        if restarts > 0 && newest <= before {
            return Err(LaunchError::NoProgress { newest }.into());
        }
        restarts += 1;
        let from = newest.map_or("the beginning".to_owned(), |step| format!("the checkpoint of step {step}"));
        print(&format!("note: restart {restarts} of {}: all ranks start anew from {from}", options.restarts));
        pause(between, signals)?;
        wait_for_folder(options, signals)?;
    }
}

/// Waits before a restart, unless somebody asks this process to end.
fn pause(duration: Duration, signals: &mut Signals) -> Result<(), EndCause> {
    let end = Instant::now() + duration;
    while Instant::now() < end {
        let heard = signals.wait(Some(end)).map_err(LaunchError::system("wait for signals"))?;
        if let Some(signal) = heard.into_iter().find(|signal| *signal != SIGCHLD) {
            return Err(EndCause::Interrupted(signal));
        }
    }
    Ok(())
}

/// Waits until no rank of the last start holds the folder: a rank on a host that no launcher reaches may end late. If
/// one never does, the next start reports who holds the folder.
fn wait_for_folder(options: &LaunchOptions, signals: &mut Signals) -> Result<(), EndCause> {
    let Some(folder) = &options.folder else { return Ok(()) };
    let (deadline, mut is_told) = (Instant::now() + LEFTOVERS, false);
    while (folder.is_taken)(&folder.path) && Instant::now() < deadline {
        if !is_told {
            print(&format!("note: the restart waits until no rank of the last start uses `{}`", folder.path.display()));
            is_told = true;
        }
        pause(LOOK, signals)?;
    }
    Ok(())
}
