//! Disk: carries out the orders of a rank's tier on its file, in two threads. A thread waits for its orders, and for the
//! orders of the other thread, or the request of a device, that they come after; it reads or writes whole blocks at their places, directly between the
//! file and the memory of the rank. A failure stays: no later order of either thread is carried out.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::io::{Errno, pread, pwrite};
use zero_core::device::Failure;
use zero_core::tier::{After, Direction, FailedOrder, TRANSFERS_MAX, Tier, Transfer};
use zero_plan::{Offload, TierBytes};

/// The code of a failure of the disk during a run.
const FAILED: &str = "Z0413";

/// How often a thread looks whether a device has asked for the next order.
const LOOK: Duration = Duration::from_micros(50);

/// Orders that a queue has room for: a window in a step has no more at a time, unless a device asks for them.
const ROOM: usize = Offload::SLOTS_MAX + 2;

/// Bytes of the stack of a thread that only calls the system.
const STACK_BYTES: usize = 256 << 10;

/// An order that a thread has not begun.
#[derive(Clone, Copy)]
struct GivenOrder {
    transfers: [Option<Transfer>; TRANSFERS_MAX],
    after: After,
}

/// What a rank and its threads share.
struct SharedState {
    file: OwnedFd,
    rank: usize,
    progress: Mutex<Progress>,
    changed: Condvar,
}

struct Progress {
    /// By [`Direction`]: orders that are not begun, orders that have ended, and whether one is under way.
    given: [VecDeque<GivenOrder>; 2],
    ended: [u64; 2],
    is_busy: [bool; 2],
    failed: Option<FailedOrder>,
    moved: TierBytes,
    /// Whether the threads are to end.
    quits: bool,
}

/// The states of a rank in a file.
pub struct DiskTier {
    shared: Arc<SharedState>,
    threads: [Option<JoinHandle<()>>; 2],
    bytes: usize,
}

impl DiskTier {
    /// Starts the threads of a file of this many bytes, which are allocated.
    pub(crate) fn new(file: OwnedFd, bytes: usize, rank: usize) -> io::Result<Self> {
        let given = [(); 2].map(|()| VecDeque::with_capacity(ROOM));
        let moved = TierBytes::default();
        let progress = Progress { given, ended: [0; 2], is_busy: [false; 2], failed: None, moved, quits: false };
        let shared = SharedState { file, rank, progress: Mutex::new(progress), changed: Condvar::new() };
        let mut tier = Self { shared: Arc::new(shared), threads: [None, None], bytes };
        for (direction, name) in [(Direction::Fetch, "fetch"), (Direction::Store, "store")] {
            let shared = Arc::clone(&tier.shared);
            let thread = Builder::new().name(format!("{name} {rank}")).stack_size(STACK_BYTES);
            tier.threads[direction as usize] = Some(thread.spawn(move || shared.carry_out_orders(direction))?);
        }
        Ok(tier)
    }
}

impl SharedState {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has changed. Nothing wakes a thread when a device asks for an order, so it looks again.
    fn wait<'a>(&self, progress: MutexGuard<'a, Progress>, direction: Direction) -> MutexGuard<'a, Progress> {
        let next = progress.given[direction as usize].front();
        match next.filter(|_| progress.may_go_on()) {
            Some(GivenOrder { after: After::Request(_), .. }) => {
                self.changed.wait_timeout(progress, LOOK).unwrap_or_else(PoisonError::into_inner).0
            }
            _ => self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// The work of a thread, until it is to end.
    fn carry_out_orders(&self, direction: Direction) {
        let mut progress = self.progress();
        loop {
            let Some(order) = progress.next(direction) else {
                if progress.quits {
                    return;
                }
                progress = self.wait(progress, direction);
                continue;
            };
            progress.is_busy[direction as usize] = true;
            drop(progress);
            let done = order.transfers.iter().flatten().try_for_each(|transfer| self.carry_out(direction, transfer));
            progress = self.progress();
            progress.is_busy[direction as usize] = false;
            match done {
                Ok(()) => {
                    progress.ended[direction as usize] += 1;
                    if let After::Request(request) = order.after {
                        // SAFETY: whoever gave the order promised that the counts stay.
                        unsafe { request.answer() };
                    }
                }
                Err(failure) => {
                    let number = progress.ended[direction as usize] + 1;
                    progress.failed.get_or_insert(FailedOrder { direction, number, failure });
                }
            }
            self.changed.notify_all();
        }
    }

    /// Moves the bytes of a transfer, and counts them.
    fn carry_out(&self, direction: Direction, transfer: &Transfer) -> Result<(), Failure> {
        let mut done = 0;
        while done < transfer.len {
            match self.move_some(direction, transfer, done) {
                Ok(0) => return Err(self.failure(direction, transfer, "it ended early")),
                Ok(moved) => done += moved,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failure(direction, transfer, &io::Error::from(errno).to_string())),
            }
        }
        let moved = &mut self.progress().moved;
        match direction {
            Direction::Fetch => moved.read += transfer.len,
            Direction::Store => moved.written += transfer.len,
        }
        Ok(())
    }

    /// Reads or writes the rest of a transfer, as far as the system does in one call.
    fn move_some(&self, direction: Direction, transfer: &Transfer, done: usize) -> Result<usize, Errno> {
        let Transfer { offset, memory, len } = *transfer;
        let (at, rest) = ((offset + done) as u64, len - done);
        let memory = memory.wrapping_add(done);
        match direction {
            // SAFETY: whoever gave the order promised that nobody else reads or writes these bytes until it has ended.
            Direction::Fetch => pread(&self.file, unsafe { core::slice::from_raw_parts_mut(memory, rest) }, at),
            // SAFETY: likewise, nobody writes them.
            Direction::Store => pwrite(&self.file, unsafe { core::slice::from_raw_parts(memory, rest) }, at),
        }
    }

    fn failure(&self, direction: Direction, transfer: &Transfer, why: &str) -> Failure {
        let (reads, Transfer { offset, len, .. }, rank) = (direction == Direction::Fetch, *transfer, self.rank);
        let verb = if reads { "read" } else { "write" };
        Failure {
            code: FAILED,
            what: format!("cannot {verb} {len} bytes at byte {offset} of the file of rank {rank}: {why}"),
            help: "the run goes on from its last checkpoint; if it happens again, name a folder on another disk by \
                   `--offload`"
                .to_owned(),
        }
    }
}

impl Progress {
    /// Takes the next order of a queue, if it may begin.
    fn next(&mut self, direction: Direction) -> Option<GivenOrder> {
        let (others, may_go_on) = (self.ended[direction.other() as usize], self.may_go_on());
        self.given[direction as usize].pop_front_if(|order| {
            may_go_on
                && match order.after {
                    After::Orders(after) => after <= others,
                    // SAFETY: whoever gave the order promised that the counts stay.
                    After::Request(request) => unsafe { request.is_made() },
                }
        })
    }

    const fn may_go_on(&self) -> bool {
        self.failed.is_none() && !self.quits
    }
}

// SAFETY: a thread touches only the bytes of its order's transfers, and only between `is_busy` being set and cleared, both
// under the lock; an order counts as ended after that.
unsafe impl Tier for DiskTier {
    fn bytes(&self) -> usize {
        self.bytes
    }

    unsafe fn order(&mut self, direction: Direction, transfers: &[Transfer], after: After) {
        let order = GivenOrder { transfers: core::array::from_fn(|at| transfers.get(at).copied()), after };
        self.shared.progress().given[direction as usize].push_back(order);
        self.shared.changed.notify_all();
    }

    fn is_done(&mut self, direction: Direction, count: u64, patience: Duration) -> bool {
        let is_open = |progress: &mut Progress| progress.ended[direction as usize] < count && progress.failed.is_none();
        let waited = self.shared.changed.wait_timeout_while(self.shared.progress(), patience, is_open);
        waited.unwrap_or_else(PoisonError::into_inner).0.ended[direction as usize] >= count
    }

    fn failed(&self) -> Option<FailedOrder> {
        self.shared.progress().failed.clone()
    }

    fn moved(&self) -> TierBytes {
        self.shared.progress().moved
    }

    fn quit(&mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut progress = self.shared.progress();
        progress.quits = true;
        self.shared.changed.notify_all();
        while progress.is_busy.contains(&true) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            progress = self.shared.changed.wait_timeout(progress, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(progress);
        self.threads.iter_mut().filter_map(Option::take).for_each(|thread| drop(thread.join()));
        true
    }
}

impl Drop for DiskTier {
    /// Ends the threads. One that hangs in a call of the system is left behind; it holds the file.
    fn drop(&mut self) {
        self.quit(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests;
