//! Watch: notices that another rank has died, by its socket closing without a goodbye. Rank 0 hears all ranks and
//! tells the others. Sleeps until then. Never ends the process: that is for the callback.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::environment::Place;
use super::error::LaunchError;
use super::wire::{self, Message, Peer};

/// Far longer than another process needs to tell what went wrong.
const GRACE: Duration = Duration::from_secs(2);

/// How long a rank waits before it ends because of another one. The first to end may be all that its launcher sees
/// before it kills the rest, so whoever knows best must have spoken by then: our own launcher about a rank that failed
/// (where it sees no failure, because the rank left early with success, the survivors do speak), then the reporter.
pub(super) fn grace(launcher_knows: bool, reporter_knows: bool) -> Duration {
    GRACE * (u32::from(launcher_knows) + u32::from(reporter_knows))
}

/// A rank that ended without a goodbye, as seen by a survivor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostRank {
    /// Its global rank.
    pub rank: usize,
    /// Its process id.
    pub pid: u32,
    /// Whether this survivor is the one that should say so; the others end without a word.
    pub is_reporter: bool,
}

impl From<LostRank> for LaunchError {
    fn from(lost: LostRank) -> Self {
        LaunchError::RankLost { rank: lost.rank, pid: lost.pid }
    }
}

/// The open connections to the other ranks. Dropped without [`Watch::goodbye`], this rank counts as lost.
#[derive(Debug)]
pub struct Watch {
    rank: usize,
    has_own_launcher: bool,
    links: Arc<Links>,
}

/// What the rank and its watching thread share.
#[derive(Debug)]
struct Links {
    peers: Vec<Peer>,
    ended: AtomicBool,
}

impl Watch {
    pub(super) fn new(place: &Place, peers: Vec<Peer>) -> Self {
        let links = Arc::new(Links { peers, ended: AtomicBool::new(false) });
        Watch { rank: place.rank, has_own_launcher: place.launcher_pid.is_some(), links }
    }

    /// Starts the thread that watches. It calls `on_lost` at most once; what happened since the ranks joined
    /// counts too, what happens after [`Watch::goodbye`] does not.
    ///
    /// The other threads of this rank may be waiting for the lost one: `on_lost` should print the error if it is the
    /// reporter, and end the process with [`EXIT_REPORTED`](super::EXIT_REPORTED).
    ///
    /// # Errors
    /// Z0332 if the system has no thread to give.
    pub fn start(&self, on_lost: impl FnOnce(LostRank) + Send + 'static) -> Result<(), LaunchError> {
        let (rank, has_own_launcher, links) = (self.rank, self.has_own_launcher, Arc::clone(&self.links));
        let watch = move || {
            let Some(lost) = wait_for_loss(rank, &links) else {
                return;
            };
            std::thread::sleep(grace(has_own_launcher, !lost.is_reporter));
            if !links.ended.load(Ordering::Acquire) {
                on_lost(lost);
            }
        };
        let thread = std::thread::Builder::new().name("zero-watch".to_owned());
        thread.spawn(watch).map_err(LaunchError::system("start a thread"))?;
        Ok(())
    }

    /// Says that this rank ends in order. To be called by all ranks after their last barrier, when none needs another.
    pub fn goodbye(self) {
        self.links.ended.store(true, Ordering::Release);
        for peer in &self.links.peers {
            // A peer that has gone after the last barrier is nobody's loss.
            let _ = peer.send(&Message::Goodbye);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.links.ended.store(true, Ordering::Release);
        self.links.peers.iter().for_each(Peer::hang_up);
    }
}

/// The first rank to be lost, or none once this rank or all others have said goodbye.
fn wait_for_loss(own_rank: usize, links: &Links) -> Option<LostRank> {
    let mut present: Vec<&Peer> = links.peers.iter().collect();
    while !present.is_empty() {
        // Fails only if the kernel lacks memory for a list of sockets.
        let ready = wire::wait(present.iter().map(|peer| &peer.socket), None).expect("poll of open sockets");
        if links.ended.load(Ordering::Acquire) {
            return None;
        }
        // From the back, so that removing one leaves the indices of the others alone.
        for index in ready.into_iter().rev() {
            let (rank, pid) = match wire::receive(&present[index].socket) {
                Ok(Some((Message::Goodbye, _))) => {
                    present.remove(index);
                    continue;
                }
                Ok(Some((Message::Lost { rank, pid }, _))) => (rank as usize, pid),
                // Closed, or no rank any more.
                _ => (present[index].rank, present[index].pid),
            };
            tell_others(own_rank, rank, pid, &links.peers);
            return Some(LostRank { rank, pid, is_reporter: own_rank == usize::from(rank == 0) });
        }
    }
    None
}

fn tell_others(own_rank: usize, rank: usize, pid: u32, peers: &[Peer]) {
    if own_rank == 0 {
        for peer in peers.iter().filter(|peer| peer.rank != rank) {
            // One that has gone too need not know.
            let _ = peer.send(&Message::Lost { rank: rank as u64, pid });
        }
    }
}
