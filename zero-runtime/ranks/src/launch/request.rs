//! Request: signals as a request to end, which a process checks for where it can end, up to a time limit.
//! Never ends anything but this process, and only if it was asked twice or has taken too long.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use signal_hook::consts::SIGINT;
use signal_hook::flag;
use signal_hook::iterator::Signals;

use super::error::LaunchError;
use super::options::EXIT_REPORTED;
use super::restarts::EXIT_SIGNAL_BASE;
use super::signals::{URGENT, requests};
use super::{end_process, has_own_launcher, print};

/// How much longer than its launcher a rank waits before it ends itself, because the launcher ends all ranks and
/// reports it.
const AFTER_LAUNCHER: Duration = Duration::from_secs(5);

/// The signal by which this process was asked to end; 0 before.
static ASKED: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Turns SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 into requests to end, the last three unless the process was started with
/// them ignored. From here on they are only noted, for [`asked_to_end`]. SIGTERM or SIGINT ends this process if it comes a second
/// time, and so does a request that is not fulfilled within `grace`. The exit code is 128 plus the number of the signal, as if
/// it had not been caught.
///
/// A rank of our own launcher leaves a second signal to the launcher, ends with `EXIT_REPORTED` a little after
/// `grace`, and does nothing on SIGINT, because a terminal sends SIGINT to both.
///
/// # Errors
/// Z0332 if the system refuses a handler or a thread.
pub fn end_on_request(grace: Duration) -> Result<(), LaunchError> {
    end_on_request_by(grace, || ())
}

/// [`end_on_request`], with a function that is called once at the first request: by which a thread that sleeps hears of it.
///
/// # Errors
/// Those of [`end_on_request`].
pub fn end_on_request_by(grace: Duration, hear: impl FnOnce() + Send + 'static) -> Result<(), LaunchError> {
    let asked = Arc::new(AtomicUsize::new(0));
    if ASKED.set(Arc::clone(&asked)).is_err() {
        return Ok(());
    }
    let listen = |signals: &[i32]| -> std::io::Result<Signals> {
        for &signal in signals {
            if !has_own_launcher() && URGENT.contains(&signal) {
                let again = Arc::new(AtomicBool::new(false));
                // Registered before the flag that notes the first signal, so that only the second finds it set.
                flag::register_conditional_shutdown(signal, EXIT_SIGNAL_BASE + signal, Arc::clone(&again))?;
                flag::register(signal, again)?;
            }
            flag::register_usize(signal, Arc::clone(&asked), signal as usize)?;
        }
        Signals::new(signals)
    };
    let mut heard = requests();
    let grace = if has_own_launcher() {
        // A handler that does nothing: unlike an ignored signal, it is not inherited by the programs that this process
        // starts.
        flag::register(SIGINT, Arc::default()).map_err(LaunchError::system("watch for signals"))?;
        heard.retain(|&signal| signal != SIGINT);
        grace.saturating_add(AFTER_LAUNCHER)
    } else {
        grace
    };
    let signals = listen(&heard).map_err(LaunchError::system("watch for signals"))?;
    let thread = std::thread::Builder::new().name("zero-grace".to_owned());
    thread.spawn(move || limit(signals, grace, hear)).map_err(LaunchError::system("start a thread"))?;
    Ok(())
}

/// The signal by which this process was asked to end, if it was.
pub fn asked_to_end() -> Option<i32> {
    ASKED.get().map(|asked| asked.load(Ordering::Relaxed) as i32).filter(|signal| *signal != 0)
}

/// Ends the process `grace` after the first signal.
fn limit(mut signals: Signals, grace: Duration, hear: impl FnOnce()) {
    if let Some(signal) = signals.forever().next() {
        hear();
        std::thread::sleep(grace);
        print(&LaunchError::OutOfGrace { signal, grace, newest: None }.report());
        // The launcher of a rank only has to know that the error has been printed.
        end_process(if has_own_launcher() { EXIT_REPORTED.into() } else { EXIT_SIGNAL_BASE + signal });
    }
}
