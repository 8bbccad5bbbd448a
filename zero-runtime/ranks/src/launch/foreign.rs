//! Foreign: another launcher, such as mpirun, which starts the ranks of all hosts. Waits for its process, and restarts
//! it if that may help. Never sees its ranks.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGINT};

use super::error::LaunchError;
use super::local_ranks::RunFailure;
use super::options::{EXIT_AGAIN, EXIT_ASKED, EXIT_NOT_SAVED, EXIT_REPORTED, LaunchOptions};
use super::print;
use super::restarts::{EXIT_SIGNAL_BASE, EndCause, ended_by, name_of, repeat};
use super::signals::{Requests, Signals, requests};

/// The time between the end of a launcher and its next start. Ranks that it has left behind end by themselves after two
/// seconds.
const PAUSE: Duration = Duration::from_secs(3);

/// Whether the last SIGINT came from a terminal, which sends it to the launcher as well.
static IS_OF_TERMINAL: AtomicBool = AtomicBool::new(false);

/// Starts the launcher that `command` returns for the number of earlier starts, and waits for it. The launcher has to
/// set [`super::RESTART`] to that number on all ranks: they then exit as under our own launcher, and after a restart
/// continue from the newest checkpoint.
///
/// The exit code is that of the launcher. If it has failed, and no rank has reported that a restart would not help,
/// `options` may ask for a restart, as for [`super::launch`]. A request to end goes to the launcher, and no restart follows. If
/// ranks finish their step on a signal, it goes as SIGUSR1, which launchers pass on to the ranks: on all other signals, Open MPI's
/// gives them a second.
pub fn launch_by(options: &LaunchOptions, command: impl Fn(u64) -> Command) -> ExitCode {
    let mut code = 0;
    match run(options, &command, &mut code) {
        Ok(code) => ExitCode::from(code),
        Err(EndCause::Interrupted(signal) | EndCause::OutOfGrace(signal)) => {
            print(&format!("interrupted by {}: no ranks start anew", name_of(signal)));
            ended_by(signal)
        }
        // The launcher has already said why.
        Err(EndCause::Failed(RunFailure { error: None, .. })) => ExitCode::from(code),
        Err(EndCause::Failed(failure)) => failure.tell(),
    }
}

fn run(options: &LaunchOptions, command: &impl Fn(u64) -> Command, code: &mut u8) -> Result<u8, EndCause> {
    listen_for_terminal()?;
    let mut signals =
        Signals::new(&[vec![SIGCHLD], requests()].concat()).map_err(LaunchError::system("watch for signals"))?;
    repeat(options, PAUSE, &mut signals, |restarts, signals| {
        let (status, is_asked) = attempt(command(restarts), options.finishes_on_signal, signals)?;
        let may_pass = may_pass(status);
        *code = exit_code(status);
        match cut_short(options).filter(|_| status.success()) {
            _ if is_asked => Ok(*code),
            Some(error) => Err(RunFailure { error: Some(error), may_pass: true }.into()),
            None if status.success() => Ok(*code),
            None => Err(RunFailure { error: None, may_pass }.into()),
        }
    })
}

/// The error of a run whose checkpoints do not reach its last step. It is used if the launcher exits with success, as
/// Open MPI 5's launcher does even after it has lost a host.
fn cut_short(options: &LaunchOptions) -> Option<LaunchError> {
    let (newest, last_step) = (options.newest(), options.last_step?);
    (newest.unwrap_or(0) < last_step).then_some(LaunchError::CutShort { newest, last_step })
}

/// Whether a launcher that ends with this status may be restarted. It passes on the exit code of the failed rank or, if
/// there is none because a rank was killed or a host was lost, returns one of its own.
fn may_pass(status: ExitStatus) -> bool {
    let is_final = |code: i32| [0, EXIT_REPORTED, EXIT_NOT_SAVED, EXIT_ASKED].map(i32::from).contains(&code);
    !status.code().is_some_and(is_final)
}

/// The exit code that a shell would return, but not [`EXIT_AGAIN`], which is meant for this process alone.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| EXIT_SIGNAL_BASE + status.signal().unwrap_or_default());
    match u8::try_from(code).unwrap_or(EXIT_REPORTED) {
        EXIT_AGAIN => EXIT_REPORTED,
        code => code,
    }
}

/// Starts a launcher and waits for its end. Returns its status, and whether it was asked to end.
fn attempt(mut command: Command, finishes: bool, signals: &mut Signals) -> Result<(ExitStatus, bool), LaunchError> {
    let mut launcher = command.spawn().map_err(LaunchError::system("start the launcher of the ranks"))?;
    let (mut is_asked, mut requests) = (false, Requests::default());
    loop {
        for signal in signals.wait(None).map_err(LaunchError::system("wait for signals"))? {
            let signal = match signal {
                SIGCHLD => continue,
                SIGINT if IS_OF_TERMINAL.load(Ordering::Acquire) => None,
                signal if !requests.urges(signal) && finishes => Some(Signal::USR1),
                SIGINT => Some(Signal::INT),
                _ => Some(Signal::TERM),
            };
            is_asked = true;
            // Fails only if it has ended; its id is not reused before it is reaped.
            let _ = signal.map(|signal| kill_process(Pid::from_child(&launcher), signal));
        }
        if let Some(status) = launcher.try_wait().map_err(LaunchError::system("wait for the launcher of the ranks"))? {
            return Ok((status, is_asked));
        }
    }
}

/// Notes the source of each SIGINT from here on. Must be called before any other code listens for SIGINT.
fn listen_for_terminal() -> Result<(), LaunchError> {
    // SAFETY: a signal may interrupt any code; this only stores a word.
    #[expect(unsafe_code, reason = "only handlers learn who sent a signal")]
    let listening = unsafe {
        signal_hook_registry::register_sigaction(SIGINT, |sent| {
            // Above zero if the kernel itself sends it, as it does for a key.
            IS_OF_TERMINAL.store(sent.si_code > 0, Ordering::Release);
        })
    };
    listening.map(|_| ()).map_err(LaunchError::system("watch for signals"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn what_a_rank_has_settled_is_not_tried_again() {
        for code in [0, 2, 74, 75] {
            assert!(!may_pass(exit(code)), "{code}");
            assert_eq!(i32::from(exit_code(exit(code))), code);
        }
        // A rank that was killed under Open MPI and under MPICH, a rank that panicked, hosts that were lost.
        for code in [137, 255, 101, 205, 9, 1] {
            assert!(may_pass(exit(code)), "{code}");
            assert_eq!(i32::from(exit_code(exit(code))), code);
        }
    }

    #[test]
    fn a_rank_that_may_be_started_anew_says_so_to_nobody_else() {
        assert!(may_pass(exit(76)));
        assert_eq!(exit_code(exit(76)), 2);
    }

    #[test]
    fn a_launcher_that_was_killed_may_be_started_anew() {
        let killed = ExitStatus::from_raw(9);
        assert!(may_pass(killed));
        assert_eq!(exit_code(killed), 137);
    }
}
