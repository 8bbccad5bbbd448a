//! Network: measures the network between two hosts with messages like those of a run. Never knows a plan.

use std::ffi::c_int;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Mirror;
use super::progress_thread::{CountedBlocks, MessageBytes, MpiMeeting, ProgressThread, Raise, RaisedCounts};
use crate::launch::{self, LaunchError};
use crate::transport::control::{Control, Count};
use zero_core::device::Failure;

/// Bytes of a message whose time is all latency, and of one whose time is nearly all bandwidth.
const BYTES: [usize; 2] = [8, 16 << 20];
/// Number of exchanges of each, after one that is not timed.
const ROUNDS: [usize; 2] = [101, 7];
/// Number of ranks that measure.
const RANKS: usize = 2;
/// How long they may take to meet.
const PATIENCE: Duration = Duration::from_secs(60);
/// A tag that every library permits.
const TAG: c_int = 1;

/// The speed of the network between two ranks on two hosts that sent messages to one another at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NetworkSpeed {
    /// Bytes a second in each direction.
    pub bytes_per_s: f64,
    /// Seconds that a message of a few bytes takes.
    pub latency_s: f64,
}

/// Measures the network between the two ranks of a world of MPI, one of which is this process. The first rank returns
/// the result, and the other one returns none.
///
/// # Errors
/// Z0450 and Z0451 without an MPI that works; Z0452 if the world does not have two ranks; Z0453 if both are on one
/// host; Z0457 if they do not meet.
pub fn measure_network() -> Result<Option<NetworkSpeed>, LaunchError> {
    let counts = Mirror::new(RANKS);
    let raised = counts.clone();
    let (thread, rank) = ProgressThread::start(1, PATIENCE, move || Box::new(Raised(raised)), require_pair)?;
    let (rank, ending) = (rank?, thread.ending());
    let mut pair = Pair { thread, counts, rank, peer: 1 - rank, exchanges: 0 };
    let seen = pair.measure().map_err(LaunchError::Mpi)?;
    ending.leave();
    Ok((rank == 0).then_some(seen))
}

/// The counts that the thread of MPI raises.
struct Raised(Mirror);

impl RaisedCounts for Raised {
    fn of(&self, whose: CountedBlocks) -> &Control {
        let (CountedBlocks::Own(rank) | CountedBlocks::Host(rank)) = whose;
        self.0.of(rank)
    }

    fn lose(&self, peer: usize) {
        self.0.of(peer).tell_lost(peer);
    }
}

/// The name of this host, cut or padded to the same length on every host.
fn name() -> Vec<u8> {
    let mut name = launch::host().into_bytes();
    name.resize(64, 0);
    name
}

/// The number of this rank, if there are two ranks on two hosts.
fn require_pair(meeting: &MpiMeeting) -> Result<usize, Failure> {
    let (names, size, library) = (meeting.gather(&name())?, meeting.mpi.size, meeting.mpi.words());
    let refused = |code, what| Failure { code, what, help: "start one rank on each of two hosts".to_owned() };
    if size != RANKS {
        let what = format!("MPI has a world of {size} ranks instead of {RANKS}; the library is {library}");
        return Err(refused("Z0452", what));
    }
    if names[0] == names[1] {
        let what = format!("both ranks are on {}, with no network between them", launch::host());
        return Err(refused("Z0453", what));
    }
    Ok(meeting.mpi.rank)
}

/// The words that a rank sends. They differ from one another and from the other rank's.
fn contents(rank: usize, bytes: usize) -> Vec<u8> {
    (0..bytes as u64 / 8).flat_map(|word| (word * RANKS as u64 + rank as u64).to_le_bytes()).collect()
}

/// This rank, and how it reaches the other one.
struct Pair {
    thread: ProgressThread,
    counts: Mirror,
    rank: usize,
    peer: usize,
    exchanges: u32,
}

impl Pair {
    fn measure(&mut self) -> Result<NetworkSpeed, Failure> {
        let [small, large] = [0, 1].map(|kind| self.median(BYTES[kind], ROUNDS[kind]));
        let (small, large) = (small?, large?);
        Ok(NetworkSpeed { bytes_per_s: BYTES[1] as f64 / (large - small).max(f64::EPSILON), latency_s: small })
    }

    /// The median time of an exchange of `bytes` bytes, in seconds.
    fn median(&mut self, bytes: usize, rounds: usize) -> Result<f64, Failure> {
        // The buffers live to the end of the process, as MPI may still write to them after a failure.
        let (sent, received) = (contents(self.rank, bytes).leak(), vec![0; bytes].leak());
        // The first one opens connections.
        self.exchange(sent, received)?;
        let seconds = (0..rounds).map(|_| self.exchange(sent, received));
        let mut seconds: Vec<f64> = seconds.collect::<Result<_, _>>()?;
        seconds.sort_by(f64::total_cmp);
        assert!(*received == contents(self.peer, bytes), "MPI has delivered other bytes than were sent");
        Ok(seconds[rounds / 2])
    }

    /// Exchanges a message in each direction, and returns the seconds that this takes.
    fn exchange(&mut self, sent: &mut [u8], received: &mut [u8]) -> Result<f64, Failure> {
        self.exchanges += 1;
        let (begin, peer, target) = (Instant::now(), self.peer, self.exchanges);
        for (is_sent, bytes, count) in [(false, received, Count::Gathered), (true, sent, Count::Given)] {
            let message = MessageBytes { is_sent, peer, tag: TAG, start: bytes.as_mut_ptr(), bytes: bytes.len() };
            // SAFETY: both live to the end of the process, and are used again only after both counts have been raised.
            #[expect(unsafe_code, reason = "the thread of MPI takes addresses")]
            unsafe {
                self.thread.give(std::iter::once(message), Raise { whose: CountedBlocks::Own(peer), count, target });
            }
        }
        for count in [Count::Gathered, Count::Given] {
            while self.counts.of(peer).signal(count).word().load(Ordering::SeqCst) != target {
                if let Some(failure) = self.thread.failure() {
                    return Err(failure);
                }
                std::thread::yield_now();
            }
        }
        Ok(begin.elapsed().as_secs_f64())
    }
}
