//! Launcher: starts the ranks of one host, waits for them, and ends all when one fails or when it is asked to end;
//! restarts them if that may help. Never takes part in their work.

use std::ffi::CString;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use signal_hook::consts::SIGCHLD;

use super::error::LaunchError;
use super::local_ranks::{LocalRanks, RunFailure};
use super::options::LaunchOptions;
use super::print;
use super::restarts::{EndCause, ended_by, name_of, repeat};
use super::signals::{Requests, Signals, is_request, requests};

/// The time between the end of the ranks and their next start, in which the cause of the end can pass. It need not grow,
/// because ranks are restarted only once from the same checkpoint.
const PAUSE: Duration = Duration::from_secs(1);

/// How often to look for ranks of whose end the system sends no news, because a thread of theirs hangs.
const LOOK: Duration = Duration::from_secs(1);

/// Starts `ranks` copies of this binary with its arguments, and waits for all of them.
///
/// If all end by themselves, the exit code is 0, or 75 if they were asked to end, or 74 if they could not write their
/// last checkpoint. If one fails, all ranks are killed and reaped, and the reason is printed to standard error, once.
/// A rank that the system keeps, because one of its threads hangs in a call, counts as ended and is left behind.
/// The exit code is then 1, or 2 if the rank printed its own error. If a restart may help (a rank was killed, has
/// panicked, or has given up waiting for another one), `options` may ask for restarts: as many as they say, but only one
/// from the same checkpoint.
/// If this process is asked to end (SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2), it asks the ranks to end, provided that `options`
/// say that they finish their step. If not, or if SIGTERM or SIGINT comes again, or if they take too long, they are killed, and
/// the exit code is 128 plus the number of the signal.
///
/// Call it from the main thread: ranks die with the thread that starts them.
pub fn launch(ranks: usize, options: &LaunchOptions) -> ExitCode {
    match run(ranks, options) {
        Ok(code) => ExitCode::from(code),
        Err(EndCause::Interrupted(signal)) => {
            print(&format!("interrupted by {}: all {ranks} ranks have ended", name_of(signal)));
            ended_by(signal)
        }
        Err(EndCause::OutOfGrace(signal)) => {
            let newest = Some(options.newest());
            print(&LaunchError::OutOfGrace { signal, grace: options.grace, newest }.report());
            ended_by(signal)
        }
        Err(EndCause::Failed(failure)) => failure.tell(),
    }
}

/// Names this process after its program, for `ps` and `pkill`. Ranks, and the binary that `cargo zero run` starts, are
/// started through `/proc`, and would otherwise be listed under the name of a file there.
pub(super) fn take_program_name() {
    let program = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default();
    if let Ok(name) = CString::new(name.as_encoded_bytes()) {
        // A missing name is no reason to fail.
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

/// A request to end that was passed on to the ranks.
struct Wish {
    signal: i32,
    deadline: Instant,
}

fn run(ranks: usize, options: &LaunchOptions) -> Result<u8, EndCause> {
    // Done before the first rank starts. Otherwise its end could go unnoticed.
    let mut signals =
        Signals::new(&[vec![SIGCHLD], requests()].concat()).map_err(LaunchError::system("watch for signals"))?;
    repeat(options, PAUSE, &mut signals, |restarts, signals| attempt(ranks, options, restarts, signals))
}

/// Starts all ranks and waits for them. Returns the exit code that they ask for.
fn attempt(ranks: usize, options: &LaunchOptions, restarts: u64, signals: &mut Signals) -> Result<u8, EndCause> {
    let mut local = LocalRanks::start(ranks, restarts)?;
    let (mut wish, mut before) = (None::<Wish>, Requests::default());
    while local.runs() {
        let look = Instant::now() + LOOK;
        let deadline = wish.as_ref().map_or(look, |wish| wish.deadline.min(look));
        let heard = signals.wait(Some(deadline)).map_err(LaunchError::system("wait for signals"))?;
        // Ctrl-C reaches the ranks, too. It arrives here before the news that they have ended, so check for it first.
        for signal in heard.into_iter().filter(|signal| *signal != SIGCHLD) {
            if before.urges(signal) || !options.finishes_on_signal {
                return Err(EndCause::Interrupted(signal));
            }
            wish.get_or_insert_with(|| options.ask(&local, signal));
        }
        match (local.reap(), &wish) {
            (Ok(()), _) => {}
            (Err(failure), None) => return Err(EndCause::Failed(failure)),
            (Err(failure), Some(wish)) => return Err(wish.failed(failure)),
        }
        if let Some(wish) = wish.as_ref().filter(|wish| local.runs() && wish.deadline <= Instant::now()) {
            return Err(EndCause::OutOfGrace(wish.signal));
        }
    }
    Ok(local.code())
}

impl LaunchOptions {
    /// Passes `signal` on to the ranks, and says so.
    fn ask(&self, local: &LocalRanks, signal: i32) -> Wish {
        local.ask();
        print(&format!(
            "note: asked to end by {}: the ranks finish their step and write a checkpoint, in at most {} s; \
             SIGTERM or SIGINT, sent twice, ends them at once",
            name_of(signal),
            self.grace.as_secs_f64()
        ));
        Wish { signal, deadline: Instant::now() + self.grace }
    }
}

impl Wish {
    /// The end of a rank that was to finish. It is not restarted, because somebody has asked for its end.
    fn failed(&self, failure: RunFailure) -> EndCause {
        match failure.error {
            // It had not yet begun to listen for signals.
            Some(LaunchError::RankKilled { signal, .. }) if is_request(signal) => EndCause::Interrupted(self.signal),
            error => EndCause::Failed(RunFailure { error, may_pass: false }),
        }
    }
}
