//! Signals: what a process does about signals that it inherits, and about those that ask it to end; waits for signals to a
//! launcher, up to a deadline. Never acts on one.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use nix::sys::signal::SigSet;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use super::error::LaunchError;
use super::wire;

/// Requests to end that a person repeats in order to end a process at once. The others come twice by themselves: a shell passes
/// on the SIGHUP that its terminal has sent to all.
pub(super) const URGENT: [i32; 2] = [SIGTERM, SIGINT];
/// Requests to end that are not heard if the process was started with them ignored, as `nohup` does.
const IGNORABLE: [i32; 3] = [SIGHUP, SIGUSR1, SIGUSR2];

/// Undoes what the process that started this one may have left: blocked signals, by which nobody could end this process or learn
/// of the end of its children, and an ignored SIGCHLD. From here on, a file that may not grow (`ulimit -f`) is an error of that
/// file, and does not end the process. Call it before any thread starts. Programs that this process starts inherit none of it.
///
/// # Errors
/// Z0332 if the system refuses it.
pub fn take_signals() -> Result<(), LaunchError> {
    let taken = || -> io::Result<()> {
        SigSet::empty().thread_set_mask()?;
        for signal in [SIGCHLD, SIGXFSZ] {
            // A handler that does nothing.
            flag::register(signal, Arc::default())?;
        }
        Ok(())
    };
    taken().map_err(LaunchError::system("take over signals"))
}

/// Whether a signal asks a process to end.
pub(super) fn is_request(signal: i32) -> bool {
    URGENT.contains(&signal) || IGNORABLE.contains(&signal)
}

/// The signals that ask this process to end: those of a person, a terminal or a scheduler.
pub(super) fn requests() -> Vec<i32> {
    let ignored = ignored(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
    let heard = IGNORABLE.into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
    URGENT.into_iter().chain(heard).collect()
}

/// The signals that a process ignores, one a bit, from its status as the kernel tells it.
fn ignored(status: &str) -> u64 {
    let digits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    digits.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(0)
}

/// The requests to end that have come so far.
#[derive(Default)]
pub(super) struct Requests(Vec<i32>);

impl Requests {
    /// Notes a request. Returns whether the end is wanted at once: if the same was sent before, unless it is one that comes twice by
    /// itself. A request of another kind is not: a scheduler sends SIGTERM some time after SIGUSR1.
    pub fn urges(&mut self, signal: i32) -> bool {
        let is_again = self.0.contains(&signal);
        self.0.push(signal);
        is_again && URGENT.contains(&signal)
    }
}

/// From its creation on, signals have no effect until [`Signals::wait`] returns them.
pub(super) struct Signals {
    delivery: SignalDelivery<OwnedFd, SignalOnly>,
}

impl Signals {
    pub fn new(signals: &[i32]) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let delivery = SignalDelivery::with_pipe(OwnedFd::from(read), write, SignalOnly, signals)?;
        Ok(Self { delivery })
    }

    /// Sleeps until signals arrive, and returns each of them once; none if the deadline passes first.
    pub fn wait(&mut self, deadline: Option<Instant>) -> io::Result<Vec<i32>> {
        wire::wait([self.delivery.get_read()].into_iter(), deadline)?;
        Ok(self.delivery.pending().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use signal_hook::low_level::raise;

    use super::*;

    #[test]
    fn what_has_come_is_taken_once_and_a_deadline_is_kept() {
        let mut signals = Signals::new(&[SIGUSR1, SIGUSR2]).unwrap();
        raise(SIGUSR1).unwrap();
        raise(SIGUSR1).unwrap();
        assert_eq!(signals.wait(None).unwrap(), [SIGUSR1]);
        raise(SIGUSR2).unwrap();
        assert_eq!(signals.wait(Some(Instant::now() + Duration::from_secs(60))).unwrap(), [SIGUSR2]);
        assert_eq!(signals.wait(Some(Instant::now())).unwrap(), [0; 0]);
    }

    #[test]
    fn only_what_a_person_repeats_wants_the_end_at_once() {
        let urges = |sent: &[i32]| {
            let mut requests = Requests::default();
            sent.iter().map(|&signal| requests.urges(signal)).collect::<Vec<_>>()
        };
        assert_eq!(urges(&[SIGTERM, SIGINT, SIGTERM]), [false, false, true]);
        assert_eq!(urges(&[SIGUSR1, SIGUSR1, SIGHUP, SIGHUP, SIGUSR2, SIGTERM]), [false; 6]);
    }

    #[test]
    fn what_is_ignored_is_read_from_the_status() {
        assert_eq!(ignored("SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n"), 1 << 12 | 1 << (SIGHUP - 1));
        assert_eq!(ignored(""), 0);
    }
}
