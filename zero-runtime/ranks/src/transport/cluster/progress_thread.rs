//! Progress thread: the one thread of a rank that calls MPI. It begins the sends and receives that it is given, and
//! polls MPI for their ends, because no library makes progress by itself. When a batch has ended, it raises the count
//! that others wait for, as ranks that share memory do themselves. Never knows what the bytes are.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::clock::Unread;
use super::mpi::{Mpi, MpiRequest};
use super::progress::Progress;
use crate::launch::LaunchError;
use crate::transport::ClockLook;
use crate::transport::control::{Control, Count};
use zero_core::device::Failure;

/// The time between two looks at what is under way: much shorter than a transfer, and much longer than a look.
pub(super) const LOOK: Duration = Duration::from_micros(20);
/// How long a world may take to end, once it is aborted.
const ABORT: Duration = Duration::from_secs(2);
/// How long a rank waits for its launcher to pass on its output: some launchers drop it when they end a world.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How long ranks may take to leave a world together: the first may have to wait for one that still writes its results.
const LEAVE: Duration = Duration::from_secs(60);

/// Number of messages and counts for which there is room from the start.
pub(super) const ROOM: usize = 1024;

/// The control blocks in which a count is raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountedBlocks {
    /// The blocks in which this rank alone keeps the counts of another one.
    Own(usize),
    /// The blocks that all ranks of this host read.
    Host(usize),
}

/// A count that is raised to `target` once a batch has ended. Batches for one count end in the order in which they were
/// given.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raise {
    pub whose: CountedBlocks,
    pub count: Count,
    pub target: u32,
}

/// A range of memory that is sent or received.
#[derive(Clone, Copy)]
pub(super) struct MessageBytes {
    pub is_sent: bool,
    pub peer: usize,
    pub tag: c_int,
    pub start: *mut u8,
    pub bytes: usize,
}

// SAFETY: an address and its purpose; the caller that gives a message promises that the thread may read or write its
// bytes.
unsafe impl Send for MessageBytes {}

/// An order to the thread.
#[derive(Clone, Copy)]
pub(super) enum ThreadOrder {
    /// A message of the batch that ends with the next raise.
    Message(MessageBytes),
    Raise(Raise),
}

/// How the thread is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadEnd {
    /// All ranks have done their work: leave the world with them.
    Leave,
    /// End all ranks of the world, with this exit code.
    Abort(u8),
}

/// State that a rank and its thread share.
pub(super) struct ThreadState {
    pub told: Mutex<Inbox>,
    pub wakes: Condvar,
    has_ended: AtomicBool,
    /// Whether all ranks have come to the end of the world.
    pub is_leaving: AtomicBool,
    /// The first failure, until it is reported.
    pub failure: Mutex<Option<Failure>>,
}

pub(super) struct Inbox {
    pub told: VecDeque<ThreadOrder>,
    pub clocks: Option<ComparedClocks>,
    pub end: Option<ThreadEnd>,
}

impl Inbox {
    /// The order to compare clocks, once nothing else is to be done: another rank may wait for what is under way, and begin
    /// the comparison only after it. An order whose deadline has passed is taken too, and is given up at once.
    pub fn take_clocks(&mut self, is_idle: bool) -> Option<ComparedClocks> {
        let is_free = is_idle && self.told.is_empty();
        self.clocks.take_if(|clocks| is_free || Instant::now() >= clocks.deadline)
    }
}

/// An order to compare clocks, for the first of `ranks_per_host` ranks of each host.
pub(super) struct ComparedClocks {
    pub ranks_per_host: usize,
    pub deadline: Instant,
    pub tell: SyncSender<Result<ClockLook, Unread>>,
}

/// The counts that a thread raises, wherever they are stored.
pub(super) trait RaisedCounts: Send + 'static {
    /// The counts of a rank, in the blocks `whose`.
    fn of(&self, whose: CountedBlocks) -> &Control;

    /// Whether counts of other hosts, except those of exchanges, arrive only by reports, because ops receive nothing.
    fn come_by_reports(&self) -> bool {
        false
    }

    /// Notes that a message from or to `peer` has failed for good.
    fn lose(&self, peer: usize);
}

/// A rank's handle to its thread.
pub(super) struct ProgressThread(Arc<ThreadState>);

/// The start of a world that a process has joined: here ranks exchange what they must know first, all in the same
/// order.
pub(super) struct MpiMeeting {
    pub mpi: Mpi,
    begin: Instant,
    patience: Duration,
}

impl MpiMeeting {
    /// Gathers one message from each rank. All have the same length.
    ///
    /// # Errors
    /// Z0451 if MPI fails; Z0457 if another rank does not come in time.
    pub fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let (own, mut all) = (own.to_vec(), vec![0; own.len() * self.mpi.size]);
        // SAFETY: both live until the request has come to its end.
        let request = unsafe { self.mpi.gather(&own, &mut all) }?;
        let (own, all) = self.wait(request, (own, all))?;
        Ok(all.chunks(own.len().max(1)).map(<[u8]>::to_vec).collect())
    }

    /// Sends the message of rank 0 to all ranks.
    ///
    /// # Errors
    /// As for [`MpiMeeting::gather`].
    pub fn hear(&self, said: Option<&[u8]>) -> Result<Vec<u8>, Failure> {
        let len = self.broadcast(said.map_or(0, <[u8]>::len).to_le_bytes().to_vec())?;
        let len = usize::from_le_bytes(*len.first_chunk().expect("a number"));
        self.broadcast(said.map_or_else(|| vec![0; len], <[u8]>::to_vec))
    }

    fn broadcast(&self, mut bytes: Vec<u8>) -> Result<Vec<u8>, Failure> {
        // SAFETY: they live until the request has come to its end.
        let request = unsafe { self.mpi.broadcast(&mut bytes) }?;
        self.wait(request, bytes)
    }

    /// Waits for the end of a request that uses these buffers. A request that does not end may use them forever.
    fn wait<B>(&self, mut request: MpiRequest, buffers: B) -> Result<B, Failure> {
        loop {
            match self.mpi.has_ended(&mut request) {
                Ok(true) => return Ok(buffers),
                Ok(false) if self.begin.elapsed() < self.patience => std::thread::sleep(LOOK),
                in_vain => {
                    std::mem::forget(buffers);
                    return Err(in_vain.err().unwrap_or_else(|| late(self.patience)));
                }
            }
        }
    }
}

impl ProgressThread {
    /// Starts the thread, joins the world, and calls `meet` in it. Gives up after `patience`. `here` is the number of ranks
    /// on this host. If `meet` fails, the thread still runs, so that it can end the others.
    ///
    /// # Errors
    /// Those of [`Mpi::join`]; Z0457 if the others have not come in time; Z0332 if the system refuses a thread.
    pub fn start<T: Send + 'static>(
        here: usize,
        patience: Duration,
        counts: impl FnOnce() -> Box<dyn RaisedCounts> + Send + 'static,
        meet: impl FnOnce(&MpiMeeting) -> Result<T, Failure> + Send + 'static,
    ) -> Result<(Self, Result<T, LaunchError>), LaunchError> {
        let inbox = Mutex::new(Inbox { told: VecDeque::with_capacity(ROOM), clocks: None, end: None });
        let state = Arc::new(ThreadState {
            told: inbox,
            wakes: Condvar::new(),
            has_ended: AtomicBool::new(false),
            is_leaving: AtomicBool::new(false),
            failure: Mutex::default(),
        });
        let (tell, hear) = std::sync::mpsc::sync_channel(1);
        let own = Arc::clone(&state);
        let work = move || {
            let begin = Instant::now();
            match Mpi::join(here) {
                Ok(mpi) => {
                    let meeting = MpiMeeting { mpi, begin, patience };
                    if tell.send(Ok(meet(&meeting))).is_ok() {
                        Progress::new(meeting.mpi, here, counts(), &own).run();
                    }
                }
                Err(failure) => {
                    let _ = tell.send(Err(failure));
                }
            }
            own.has_ended.store(true, Ordering::Release);
        };
        let thread = std::thread::Builder::new().name("zero-mpi".to_owned());
        thread.spawn(work).map_err(LaunchError::system("start a thread"))?;
        // The thread gives up first, unless the library does not return.
        let met =
            hear.recv_timeout(patience + ABORT).unwrap_or_else(|_| Err(late(patience))).map_err(LaunchError::Mpi)?;
        Ok((Self(state), met.map_err(LaunchError::Mpi)))
    }

    /// Passes a batch of messages to the thread, and the count that it raises once all of them have ended.
    ///
    /// # Safety
    /// Until the count is raised nobody writes what is sent, or reads or writes what is received.
    pub unsafe fn give(&self, messages: impl Iterator<Item = MessageBytes>, raise: Raise) {
        let mut inbox = lock(&self.0.told);
        inbox.told.extend(messages.map(ThreadOrder::Message));
        inbox.told.push_back(ThreadOrder::Raise(raise));
        drop(inbox);
        self.0.wakes.notify_one();
    }

    /// Has the thread compare this host's clock with that of rank 0's, and send the result. It does nothing else
    /// meanwhile, so it begins after everything that other ranks wait for has left.
    pub fn compare_clocks(&self, ranks_per_host: usize, patience: Duration) -> Receiver<Result<ClockLook, Unread>> {
        let (tell, compared) = std::sync::mpsc::sync_channel(1);
        lock(&self.0.told).clocks = Some(ComparedClocks { ranks_per_host, deadline: Instant::now() + patience, tell });
        self.0.wakes.notify_one();
        compared
    }

    /// The failure, if there is one; only the first caller receives it.
    pub fn failure(&self) -> Option<Failure> {
        lock(&self.0.failure).take()
    }

    /// The same thread, for code that ends the process.
    pub fn ending(&self) -> WorldEnd {
        WorldEnd(Arc::clone(&self.0))
    }
}

/// The end of a world, from any thread.
pub(crate) struct WorldEnd(Arc<ThreadState>);

impl WorldEnd {
    /// Leaves the world together with all its ranks, which have done their work; waits no longer than [`LEAVE`].
    pub fn leave(&self) {
        self.end(ThreadEnd::Leave, LEAVE);
    }

    /// Ends all ranks of the world. Returns after a moment if the launcher does not end this process.
    pub fn abort(&self, code: u8) {
        std::thread::sleep(LAST_WORDS);
        self.end(ThreadEnd::Abort(code), ABORT);
    }

    fn end(&self, end: ThreadEnd, patience: Duration) {
        lock(&self.0.told).end = Some(end);
        self.0.wakes.notify_one();
        let mut deadline = Instant::now() + patience;
        while !self.0.has_ended.load(Ordering::Acquire) && Instant::now() < deadline {
            if self.0.is_leaving.load(Ordering::Acquire) {
                // No rank waits for this one any more; only a library that does not return could hold it up.
                deadline = deadline.min(Instant::now() + ABORT);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn late(patience: Duration) -> Failure {
    Failure {
        code: "Z0457",
        what: format!("after {} s, not all ranks have joined the world of MPI", patience.as_secs()),
        help: "check the launcher's output, whether a rank has ended on another host, and whether the hosts reach one another; \
               ZERO_JOIN_TIMEOUT_S sets how long to wait, in seconds"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An inbox with an order to compare clocks, which is given up `patience` from now.
    fn inbox(patience: Duration) -> Inbox {
        let (tell, _) = std::sync::mpsc::sync_channel(1);
        let clocks = ComparedClocks { ranks_per_host: 1, deadline: Instant::now() + patience, tell };
        Inbox { told: VecDeque::new(), clocks: Some(clocks), end: None }
    }

    #[test]
    fn clocks_are_compared_after_everything_under_way() {
        let hour = Duration::from_secs(3600);
        let order = ThreadOrder::Raise(Raise { whose: CountedBlocks::Own(0), count: Count::Entered, target: 1 });
        let mut waiting = inbox(hour);
        assert!(waiting.take_clocks(false).is_none(), "a message has not left");
        waiting.told.push_back(order);
        assert!(waiting.take_clocks(true).is_none(), "a message has not begun");
        waiting.told.clear();
        assert!(waiting.take_clocks(true).is_some());
        assert!(waiting.take_clocks(true).is_none(), "it was taken");
        assert!(inbox(Duration::ZERO).take_clocks(false).is_some(), "nobody gives it up");
    }
}
