//! Watch: notices that another rank has failed or died, because its socket closes before it has finished. Rank 0 listens to all
//! ranks and tells the others. Sleeps until something happens. Never prints.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::environment::JobPlace;
use super::error::LaunchError;
use super::finding::RankFindings;
use super::options::{EXIT_AGAIN, EXIT_REPORTED};
use super::wire::{self, Finding, Peer, WireMessage};
use super::{end_process, exit_code};

/// Far longer than another process needs to report what has gone wrong.
const GRACE: Duration = Duration::from_secs(2);

/// How long a rank that has met the others waits for another one to report its error. On a busy machine, that rank first
/// takes a while to release its device. The watching thread ends the wait when it learns of the error, or of that rank's
/// death.
const NEWS: Duration = Duration::from_secs(20);

/// How long a rank waits before it ends because of another one. A launcher kills all ranks when it sees the first one
/// end, so the process that knows the cause best must have reported it by then. If a rank failed, our own launcher knows
/// it best (unless the rank exited early with success, which the launcher does not see as a failure), and after it the
/// reporter.
pub(super) fn grace(launcher_knows: bool, reporter_knows: bool) -> Duration {
    GRACE * (u32::from(launcher_knows) + u32::from(reporter_knows))
}

/// The open connections to the other ranks. If it is dropped without [`Watch::finish`] or an error, this rank counts as lost.
#[derive(Debug)]
pub struct Watch {
    /// Number of ranks, on this host and in all.
    pub(super) here: usize,
    pub(super) world: usize,
    has_own_launcher: bool,
    pub(super) state: Arc<WatchState>,
}

/// State that the rank and its watching thread share.
#[derive(Debug)]
pub(super) struct WatchState {
    pub rank: usize,
    /// The rank that all others of this host are connected to.
    pub host: usize,
    pub peers: Vec<Peer>,
    /// Whether the rank or the thread has begun to end this rank, with an error or in order.
    ended: AtomicBool,
    /// The exit code that this rank ends with.
    code: AtomicU8,
}

impl WatchState {
    pub fn is_host(&self) -> bool {
        self.rank == self.host
    }

    pub fn code(&self) -> u8 {
        self.code.load(Ordering::Acquire)
    }

    pub fn tell_all(&self, message: &WireMessage) {
        for peer in &self.peers {
            // A peer that has gone need not know.
            let _ = peer.send(message);
        }
    }
}

/// News of other ranks.
enum News {
    /// A rank has gone.
    Lost { rank: usize, pid: u32 },
    /// A rank has failed, and leaves the report of its error to this one, which is rank 0.
    Failed(Finding),
    /// The run has ended with an error that another process reports, and with this exit code.
    Told(u8),
}

/// The state of this process's watch, for [`leave`].
static STATE: OnceLock<Weak<WatchState>> = OnceLock::new();

/// Ends this process, which has reported its error, and tells the other ranks that the error has been reported: those of
/// other hosts by `end_others`, which receives the exit code.
pub fn leave(end_others: impl FnOnce(u8)) -> ! {
    let mut code = EXIT_REPORTED;
    if let Some(state) = STATE.get().and_then(Weak::upgrade) {
        state.ended.store(true, Ordering::Release);
        code = state.code();
        state.tell_all(&WireMessage::Told(code));
    }
    end_others(exit_code(code));
    end_process(exit_code(code).into())
}

impl Watch {
    pub(super) fn new(place: &JobPlace, peers: Vec<Peer>) -> Self {
        let state = Arc::new(WatchState {
            rank: place.rank,
            host: place.here.start,
            peers,
            ended: AtomicBool::new(false),
            code: AtomicU8::new(EXIT_REPORTED),
        });
        Watch { here: place.here.len(), world: place.world, has_own_launcher: place.launcher_pid.is_some(), state }
    }

    /// Starts the thread that watches. It calls `on_end` at most once: also for events since the ranks joined, but not
    /// for those after [`Watch::finish`].
    ///
    /// Other threads of this rank may be waiting for the lost one. So `on_end` should print the error that it is given,
    /// if any, and end the process with [`leave`].
    ///
    /// # Errors
    /// Z0332 if the system refuses a thread.
    pub fn start(&self, on_end: impl FnOnce(Option<LaunchError>) + Send + 'static) -> Result<(), LaunchError> {
        // Only a test has several ranks in a process, and it ends in its own way.
        let _ = STATE.set(Arc::downgrade(&self.state));
        let (here, world) = (self.here, self.world);
        let (has_own_launcher, state) = (self.has_own_launcher, Arc::clone(&self.state));
        let watch = move || {
            let Some(end) = wait_for_end(&state) else {
                return;
            };
            let is_reporter = match end {
                News::Lost { rank, .. } => state.rank == state.host + usize::from(rank == state.host),
                News::Failed(_) => true,
                News::Told(_) => false,
            };
            let is_death = matches!(end, News::Lost { .. });
            std::thread::sleep(grace(is_death && has_own_launcher, !is_reporter));
            if state.ended.swap(true, Ordering::AcqRel) {
                return;
            }
            let code = match &end {
                News::Lost { .. } => EXIT_AGAIN,
                News::Failed(finding) => finding.code,
                News::Told(code) => *code,
            };
            state.code.store(code, Ordering::Release);
            on_end(match end {
                News::Lost { rank, pid } => is_reporter.then_some(LaunchError::RankLost { rank, pid }),
                News::Failed(finding) => {
                    // Other ranks now wait until this one has reported the error.
                    state.tell_all(&WireMessage::Told(code));
                    Some(LaunchError::Failed(RankFindings::of(here, world, finding)))
                }
                News::Told(_) => None,
            });
        };
        let thread = std::thread::Builder::new().name("zero-watch".to_owned());
        thread.spawn(watch).map_err(LaunchError::system("start a thread"))?;
        Ok(())
    }

    /// Sets the exit code of this rank if it fails. The code shows whether a restart may help; by default, it would not.
    pub fn fails_with(&self, code: u8) {
        self.state.code.store(code, Ordering::Release);
    }

    /// Announces that this rank ends in order. All ranks call it after their last barrier, when no rank needs another.
    pub fn finish(self) {
        self.state.ended.store(true, Ordering::Release);
        // A peer that has gone after the last barrier is not missed.
        self.state.tell_all(&WireMessage::Finished);
    }

    /// Ends this rank because of an error that it alone has found, as far as it knows. Returns the error that this rank
    /// should print, if any: rank 0 prints for all, and only for the first that fails.
    pub fn fail(self, error: &str) -> Option<LaunchError> {
        let code = self.state.code();
        let finding = Finding { rank: self.state.rank as u64, code, error: error.to_owned() };
        if self.state.ended.swap(true, Ordering::AcqRel) {
            // The run is ending for another reason, and this process will soon end with it.
            std::thread::sleep(grace(true, true));
            return None;
        }
        if self.state.is_host() {
            self.state.tell_all(&WireMessage::Told(code));
        } else {
            self.state.tell_all(&WireMessage::Failed(finding.clone()));
            if self.state.peers.iter().any(has_told) {
                std::thread::sleep(grace(false, true));
                return None;
            }
        }
        Some(LaunchError::Failed(RankFindings::of(self.here, self.world, finding)))
    }

    /// Ends this rank because of an error whose report the others leave to it, whichever of them can still speak. Returns
    /// whether this rank should print it, and then end the process with [`leave`].
    pub fn fail_for_all(&self) -> bool {
        let speaks = !self.state.ended.swap(true, Ordering::AcqRel);
        if !speaks {
            std::thread::sleep(grace(true, true));
        }
        speaks
    }

    /// [`Self::fail_after`] for use after [`Self::start`]: if another rank reports its error, the watching thread ends
    /// this one.
    pub fn fail_by_news(self) {
        std::thread::sleep(NEWS);
        self.fail_after();
    }

    /// Ends this rank because of an error that another one reports, after the other one has had time to do so.
    pub fn fail_after(self) {
        std::thread::sleep(grace(false, true));
        self.state.ended.store(true, Ordering::Release);
        // A rank that was stopped until now may not have heard of the error from the rank that reported it.
        self.state.tell_all(&WireMessage::Told(self.state.code()));
    }

    /// Ends this rank because of an error that all ranks have agreed on. Returns whether this rank should print it.
    pub fn fail_together(self) -> bool {
        self.state.ended.store(true, Ordering::Release);
        let speaks = self.state.is_host();
        if speaks {
            self.state.tell_all(&WireMessage::Told(self.state.code()));
        } else {
            std::thread::sleep(grace(false, true));
        }
        speaks
    }
}

/// Whether rank 0 says in time that it reports the error.
fn has_told(host: &Peer) -> bool {
    let deadline = Instant::now() + grace(true, true);
    loop {
        match wire::wait([&host.socket].into_iter(), Some(deadline)) {
            Ok(ready) if !ready.is_empty() => {}
            _ => return false,
        }
        match wire::receive(&host.socket) {
            Ok(Some((WireMessage::Told(_), _))) => return true,
            Ok(Some(_)) => {}
            _ => return false,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.state.ended.store(true, Ordering::Release);
        self.state.peers.iter().for_each(Peer::hang_up);
    }
}

/// The first news that ends this rank. None once this rank or all others have finished.
fn wait_for_end(state: &WatchState) -> Option<News> {
    let mut present: Vec<&Peer> = state.peers.iter().collect();
    while !present.is_empty() {
        // Fails only if the kernel lacks memory for a list of sockets.
        let ready = wire::wait(present.iter().map(|peer| &peer.socket), None).expect("poll of open sockets");
        if state.ended.load(Ordering::Acquire) {
            return None;
        }
        // From the last to the first, so that removing one does not change the indices of those to come.
        for index in ready.into_iter().rev() {
            let (rank, pid) = match wire::receive(&present[index].socket) {
                Ok(Some((WireMessage::Finished, _))) => {
                    present.remove(index);
                    continue;
                }
                Ok(Some((WireMessage::Failed(finding), _))) => return Some(News::Failed(finding)),
                Ok(Some((WireMessage::Told(code), _))) => {
                    if state.is_host() {
                        state.tell_all(&WireMessage::Told(code));
                    }
                    return Some(News::Told(code));
                }
                Ok(Some((WireMessage::Lost { rank, pid }, _))) => (rank as usize, pid),
                // Closed, or something that no rank would send.
                _ => (present[index].rank, present[index].pid),
            };
            tell_others(state, rank, pid);
            return Some(News::Lost { rank, pid });
        }
    }
    None
}

fn tell_others(state: &WatchState, rank: usize, pid: u32) {
    if state.is_host() {
        for peer in state.peers.iter().filter(|peer| peer.rank != rank) {
            // A peer that has gone, too, need not know.
            let _ = peer.send(&WireMessage::Lost { rank: rank as u64, pid });
        }
    }
}
