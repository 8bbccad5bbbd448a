//! Watch: notices that another rank has failed, or died, by its socket closing without a goodbye. Rank 0 hears all ranks
//! and tells the others. Sleeps until then. Never prints.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::environment::Place;
use super::error::LaunchError;
use super::finding::Findings;
use super::launcher::EXIT_REPORTED;
use super::wire::{self, Finding, Message, Peer};

/// Far longer than another process needs to tell what went wrong.
const GRACE: Duration = Duration::from_secs(2);

/// How long a rank waits before it ends because of another one. The first to end may be all that its launcher sees
/// before it kills the rest, so whoever knows best must have spoken by then: our own launcher about a rank that failed
/// (where it sees no failure, because the rank left early with success, the survivors do speak), then the reporter.
pub(super) fn grace(launcher_knows: bool, reporter_knows: bool) -> Duration {
    GRACE * (u32::from(launcher_knows) + u32::from(reporter_knows))
}

/// The open connections to the other ranks. Dropped without a word of how it ended, this rank counts as lost.
#[derive(Debug)]
pub struct Watch {
    world: usize,
    has_own_launcher: bool,
    links: Arc<Links>,
}

/// What the rank and its watching thread share.
#[derive(Debug)]
struct Links {
    rank: usize,
    peers: Vec<Peer>,
    /// Whether one of the two has taken it upon itself to end this rank, or to let it end in order.
    ended: AtomicBool,
}

impl Links {
    fn tell_all(&self, message: &Message) {
        for peer in &self.peers {
            // One that has gone need not know.
            let _ = peer.send(message);
        }
    }
}

/// What a rank hears of the others.
enum News {
    /// One is gone.
    Lost { rank: usize, pid: u32 },
    /// One has failed and leaves it to this rank, which is rank 0, to say why.
    Failed(Finding),
    /// The run has ended with an error that somebody tells.
    Told,
}

/// The links of this process, for [`leave`].
static LINKS: OnceLock<Weak<Links>> = OnceLock::new();

/// Ends this process, which has told why, and lets the other ranks know that it has.
pub fn leave() -> ! {
    if let Some(links) = LINKS.get().and_then(Weak::upgrade) {
        links.ended.store(true, Ordering::Release);
        links.tell_all(&Message::Told);
    }
    std::process::exit(EXIT_REPORTED.into())
}

impl Watch {
    pub(super) fn new(place: &Place, peers: Vec<Peer>) -> Self {
        let links = Arc::new(Links { rank: place.rank, peers, ended: AtomicBool::new(false) });
        Watch { world: place.world, has_own_launcher: place.launcher_pid.is_some(), links }
    }

    /// Starts the thread that watches. It calls `on_end` at most once; what happened since the ranks joined
    /// counts too, what happens after [`Watch::goodbye`] does not.
    ///
    /// The other threads of this rank may be waiting for the lost one: `on_end` should print the error, if it is this
    /// rank's to tell, and end the process with [`leave`].
    ///
    /// # Errors
    /// Z0332 if the system has no thread to give.
    pub fn start(&self, on_end: impl FnOnce(Option<LaunchError>) + Send + 'static) -> Result<(), LaunchError> {
        // A process that is several ranks is a test, and leaves in its own way.
        let _ = LINKS.set(Arc::downgrade(&self.links));
        let (world, has_own_launcher, links) = (self.world, self.has_own_launcher, Arc::clone(&self.links));
        let watch = move || {
            let Some(end) = wait_for_end(&links) else {
                return;
            };
            let is_reporter = match end {
                News::Lost { rank, .. } => links.rank == usize::from(rank == 0),
                News::Failed(_) => true,
                News::Told => false,
            };
            let is_death = matches!(end, News::Lost { .. });
            std::thread::sleep(grace(is_death && has_own_launcher, !is_reporter));
            if links.ended.swap(true, Ordering::AcqRel) {
                return;
            }
            on_end(match end {
                News::Lost { rank, pid } => is_reporter.then_some(LaunchError::RankLost { rank, pid }),
                News::Failed(finding) => {
                    // They have time until this rank has spoken.
                    links.tell_all(&Message::Told);
                    Some(LaunchError::Failed(Findings::of(world, finding)))
                }
                News::Told => None,
            });
        };
        let thread = std::thread::Builder::new().name("zero-watch".to_owned());
        thread.spawn(watch).map_err(LaunchError::system("start a thread"))?;
        Ok(())
    }

    /// Says that this rank ends in order. To be called by all ranks after their last barrier, when none needs another.
    pub fn goodbye(self) {
        self.links.ended.store(true, Ordering::Release);
        // A peer that has gone after the last barrier is nobody's loss.
        self.links.tell_all(&Message::Goodbye);
    }

    /// Ends this rank because of an error that it alone has found, as far as it knows. Gives what is to be printed, if it is
    /// for this rank to do: rank 0 speaks for all, and only for the first that fails.
    pub fn fail(self, error: &str) -> Option<LaunchError> {
        let finding = Finding { rank: self.links.rank as u64, error: error.to_owned() };
        if self.links.ended.swap(true, Ordering::AcqRel) {
            // The run is ending for another reason, and so will this process, before long.
            std::thread::sleep(grace(true, true));
            return None;
        }
        if self.links.rank == 0 {
            self.links.tell_all(&Message::Told);
        } else {
            self.links.tell_all(&Message::Failed(finding.clone()));
            if self.links.peers.iter().any(has_told) {
                std::thread::sleep(grace(false, true));
                return None;
            }
        }
        Some(LaunchError::Failed(Findings::of(self.world, finding)))
    }

    /// Ends this rank because of an error that all ranks have agreed on. Gives whether it is for this rank to print it.
    pub fn fail_together(self) -> bool {
        self.links.ended.store(true, Ordering::Release);
        let speaks = self.links.rank == 0;
        if speaks {
            self.links.tell_all(&Message::Told);
        } else {
            std::thread::sleep(grace(false, true));
        }
        speaks
    }
}

/// Whether rank 0 takes over to tell an error.
fn has_told(host: &Peer) -> bool {
    let deadline = Instant::now() + grace(true, true);
    loop {
        match wire::wait([&host.socket].into_iter(), Some(deadline)) {
            Ok(ready) if !ready.is_empty() => {}
            _ => return false,
        }
        match wire::receive(&host.socket) {
            Ok(Some((Message::Told, _))) => return true,
            Ok(Some(_)) => {}
            _ => return false,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.links.ended.store(true, Ordering::Release);
        self.links.peers.iter().for_each(Peer::hang_up);
    }
}

/// The first news that end this rank, or none once it or all others have said goodbye.
fn wait_for_end(links: &Links) -> Option<News> {
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
                Ok(Some((Message::Failed(finding), _))) => return Some(News::Failed(finding)),
                Ok(Some((Message::Told, _))) => {
                    if links.rank == 0 {
                        links.tell_all(&Message::Told);
                    }
                    return Some(News::Told);
                }
                Ok(Some((Message::Lost { rank, pid }, _))) => (rank as usize, pid),
                // Closed, or no rank any more.
                _ => (present[index].rank, present[index].pid),
            };
            tell_others(links, rank, pid);
            return Some(News::Lost { rank, pid });
        }
    }
    None
}

fn tell_others(links: &Links, rank: usize, pid: u32) {
    if links.rank == 0 {
        for peer in links.peers.iter().filter(|peer| peer.rank != rank) {
            // One that has gone too need not know.
            let _ = peer.send(&Message::Lost { rank: rank as u64, pid });
        }
    }
}
