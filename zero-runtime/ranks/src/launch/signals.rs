//! Signals: waits for signals to a launcher, up to a deadline. Never acts on one.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use super::wire;

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

    use signal_hook::consts::{SIGUSR1, SIGUSR2};
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
}
