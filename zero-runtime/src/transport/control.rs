//! Control: the words in shared memory by which ranks tell one another how far they are, and how they wait for one
//! another: a short spin where every rank has a processor, then sleep on a futex. Never carries parameters or gradients.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;
use rustix::time::Timespec;

use zero_plan::Parcel;

use super::Lost;

/// Bytes of one rank's control block.
pub const CONTROL_BYTES: usize = size_of::<Control>();

/// The longest sleep between two looks whether a rank has given up.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// How often a wait looks at a word before it sleeps.
#[derive(Clone, Copy)]
pub struct Spins(u32);

impl Spins {
    /// Some 10 us, about what a sleep and a wake cost.
    const BRIEF: Self = Self(400);

    /// For `ranks` of one host: none where there are more of them than processors, as then whoever is waited for may need
    /// this one.
    pub fn of(ranks: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        if ranks > processors { Self(0) } else { Self::BRIEF }
    }
}

/// What one rank tells the others. All zero at start. Aligned so that no two ranks write to one pair of cache lines.
#[repr(C, align(128))]
pub struct Control {
    /// Shards of parameters published so far.
    pub published: Signal,
    /// Buckets offered for reduction so far.
    pub offered: Signal,
    /// Buckets settled so far: peers' staging has been read, and this rank's shards of the sum are there.
    pub settled: Signal,
    /// Buckets combined so far: the partial sums of other replicas have been read, and this rank's parts are there.
    pub combined: Signal,
    /// Buckets whose parts have all that is added to them, and may be spread along `replica`.
    pub joined: Signal,
    /// Buckets whose shards are whole, and may be spread along `zero`.
    pub whole: Signal,
    /// Parcels of each kind sent so far.
    pub sent: [Signal; Parcel::ALL.len()],
    /// Parcels of each kind taken so far.
    pub taken: [Signal; Parcel::ALL.len()],
    /// Exchanges entered so far.
    pub entered: Signal,
    /// 1 + the rank that gave up first, as this rank heard it.
    lost: AtomicU32,
}

/// A count that only grows, and that others wait for. Wraps around.
#[repr(C)]
pub struct Signal {
    count: AtomicU32,
    sleepers: AtomicU32,
}

impl Signal {
    /// Raises the count by one, and wakes who waits for it. All that was written before is seen by who has waited.
    pub fn raise(&self) {
        // Sequentially consistent, as is the waiter's pair of accesses: either it sees the new count, or it is seen here.
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // Fails only where the address is wrong, and it is this word's.
            let _ = futex::wake(&self.count, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Whether the count is `target` or beyond it.
    fn has_reached(&self, target: u32) -> Result<(), u32> {
        let count = self.count.load(Ordering::SeqCst);
        if count.wrapping_sub(target) as i32 >= 0 { Ok(()) } else { Err(count) }
    }

    /// Waits until the count is at least `target`.
    ///
    /// # Errors
    /// The rank that gave up, as told to `own`.
    pub fn wait(&self, target: u32, own: &Control, spins: Spins) -> Result<(), Lost> {
        for _ in 0..=spins.0 {
            if self.has_reached(target).is_ok() {
                return Ok(());
            }
            core::hint::spin_loop();
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let reached = loop {
            match self.has_reached(target) {
                Ok(()) => break Ok(()),
                Err(count) => {
                    if let Some(lost) = own.lost() {
                        break Err(lost);
                    }
                    // Whatever ends the sleep (a wake, the count having changed, a signal, the timeout), look again.
                    let _ = futex::wait(&self.count, futex::Flags::empty(), count, Some(&PATIENCE));
                }
            }
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        reached
    }
}

impl Control {
    /// The control block of `rank` in a segment.
    ///
    /// # Safety
    /// `segment` is the start of a mapping that lives for `'a`, was zero at first, begins with one block for each rank,
    /// and whose blocks are only used through this type.
    pub unsafe fn of<'a>(segment: *mut u8, rank: usize) -> &'a Control {
        // SAFETY: within the mapping by the caller's promise, aligned since mappings start on a page and the size of a
        // block is a multiple of its alignment, valid since every field is an atomic for which zero is a value.
        unsafe { &*segment.cast::<Control>().add(rank) }
    }

    /// Tells this rank that `rank` has given up, unless it knows of another one.
    pub fn tell_lost(&self, rank: usize) {
        let _ = self.lost.compare_exchange(0, rank as u32 + 1, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// The rank that gave up, as far as this rank was told.
    pub fn lost(&self) -> Option<Lost> {
        match self.lost.load(Ordering::SeqCst) {
            0 => None,
            rank => Some(Lost { rank: rank as usize - 1 }),
        }
    }
}
