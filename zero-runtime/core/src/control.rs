//! Control: the words in shared memory by which ranks report their progress, and how they wait for one another: a short
//! spin if every rank has a processor, then sleep on a futex. Never carries parameters or gradients.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;

use zero_plan::footprint::CONTROL_BYTES;
use zero_plan::{Axis, Config, Parcel, Pass};

use crate::lost::{Life, Lost};
use crate::time::now_ns;

const _: () = assert!(size_of::<Control>() <= CONTROL_BYTES, "the plan has less room for a control block");

/// A rank that has waited this long reports the rank that it waits for, and again whenever the wait has doubled. The
/// wait goes on, because a stopped rank may be continued. The wait ends when the other rank arrives, when a rank ends,
/// or after the timeout of the transport.
pub const NOTICE: Duration = Duration::from_secs(5);

/// The longest sleep between two checks for a rank that has given up.
pub const PATIENCE_MS: u32 = 50;
/// The same duration, as the kernel takes it.
pub const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: PATIENCE_MS as i64 * 1_000_000 };

/// Full-length sleeps in one period of waiting. Sleeps are counted so that a wait needs no clock.
pub const SLEEPS_PER_NOTICE: u32 = NOTICE.as_secs() as u32 * 1000 / PATIENCE_MS;

/// Full-length sleeps in a timeout: at least one.
pub fn sleeps_of(timeout: Duration) -> u32 {
    let sleeps = timeout.as_millis().div_ceil(PATIENCE_MS.into());
    u32::try_from(sleeps).unwrap_or(u32::MAX).max(1)
}

/// How long a report from another host about a rank counts as current. Reports come far more often than that.
const FRESH_NS: u64 = 2_000_000_000;

/// How long a number of sleeps takes.
pub fn timeout_of(sleeps: u32) -> Duration {
    Duration::from_millis(u64::from(PATIENCE_MS) * u64::from(sleeps))
}

/// How often a wait looks at a word before it sleeps.
#[derive(Clone, Copy)]
pub struct Spins(u32);

impl Spins {
    /// Some 10 us, about what a sleep and a wake cost.
    pub const BRIEF: Self = Self(400);
    /// A single look.
    pub const NONE: Self = Self(0);

    /// For `ranks` of one host: none if there are more ranks than processors, because the awaited rank may then need
    /// the processor of the waiting rank.
    pub fn of(ranks: usize) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        if ranks > processors { Self::NONE } else { Self::BRIEF }
    }
}

/// The counts that a rank raises for other ranks, each in its own [`Signal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Shards of parameters published.
    Published,
    /// Buckets offered for reduction.
    Offered,
    /// Buckets summed over this host: host peers' staging, or their sums over a replica, have been read.
    Subtotalled,
    /// Buckets settled: peers' staging has been read, and this rank's shards of the sum are there.
    Settled,
    /// Buckets combined: the partial sums of other replicas have been read, and this rank's parts are there.
    Combined,
    /// Buckets whose parts are complete and may be spread along `replica`; from another host: they have arrived.
    Joined,
    /// Buckets whose shards are whole and may be spread along `zero`; from another host: they have arrived.
    Whole,
    /// Exchanges entered.
    Entered,
    /// Exchanges for which a device has left its numbers.
    Exchanged,
    /// Gathers for which this rank's shard is there: in a slot in common, or, from another host, it has arrived.
    Gathered,
    /// Gathers released, if ranks of a host gather together.
    Released,
    /// Gathers and spreads for which this rank has sent everything that another host needs from it.
    Given,
    /// Parcels of a kind sent.
    Sent(Parcel),
    /// Parcels of a kind taken.
    Taken(Parcel),
}

impl Count {
    /// The number of counts.
    pub const NUMBER: usize = 12 + 2 * Parcel::ALL.len();

    /// Whether a rank also signals to its host peers that data of another host has arrived, because they read it from this rank.
    pub const fn is_for_host_peers(self, config: &Config) -> bool {
        match self {
            Count::Gathered | Count::Whole => config.ranks_per_host(Axis::Zero) > 1,
            Count::Joined => config.ranks_per_host(Axis::Replica) > 1,
            _ => false,
        }
    }

    /// The number of this count.
    #[inline]
    pub const fn index(self) -> usize {
        match self {
            Count::Published => 0,
            Count::Offered => 1,
            Count::Settled => 2,
            Count::Combined => 3,
            Count::Joined => 4,
            Count::Whole => 5,
            Count::Entered => 6,
            Count::Exchanged => 7,
            Count::Gathered => 8,
            Count::Given => 9,
            Count::Released => 10,
            Count::Subtotalled => 11,
            Count::Sent(parcel) => 12 + parcel as usize,
            Count::Taken(parcel) => 12 + Parcel::ALL.len() + parcel as usize,
        }
    }
}

/// The words by which one rank reports its progress to other ranks. All zero at start. Aligned so that no two ranks write to
/// one pair of cache lines.
#[repr(C, align(128))]
#[derive(Default)]
pub struct Control {
    signals: [Signal; Count::NUMBER],
    /// The op that this rank is at.
    doing: AtomicU64,
    /// The op that this rank was in when a wait for it was last reported, and the periods of that wait: see
    /// [`Control::claim_notice`].
    noticed: AtomicU64,
    /// The count that this rank waits for while it sleeps, 0 otherwise: see [`AwaitedCount`].
    awaited: AtomicU64,
    /// 1 + the rank that gave up first, as reported to this rank.
    lost: AtomicU32,
    /// The id of this rank's process, 0 until the process has begun.
    pid: AtomicU32,
    /// For a rank of another host: when its last report came, and whether the rank is alive according to it. See
    /// [`Control::note_report`].
    reported: AtomicU64,
}

/// The words about a rank that are sent to other hosts: the count that it waits for, and the op that it is in.
pub type Words = [u64; 2];

/// Words that hold all counts of a rank, two counts in each.
pub const COUNT_WORDS: usize = Count::NUMBER / 2;
const _: () = assert!(Count::NUMBER.is_multiple_of(2), "a count is left out of the words");

/// The op that a rank is at, by its index in the schedule of its pipeline stage, and the number of ops that the rank
/// has begun, which distinguishes the same op in two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doing(u64);

impl Doing {
    /// The lower half: 0 if there is no op.
    const OP_BITS: u32 = 32;

    /// The op, if there is one.
    #[inline]
    pub fn op(self) -> Option<(Pass, usize)> {
        let code = (self.0 as u32).checked_sub(1)?;
        Some((Pass::ALL[code as usize % Pass::ALL.len()], code as usize / Pass::ALL.len()))
    }

    #[inline]
    fn count(self) -> u32 {
        (self.0 >> Self::OP_BITS) as u32
    }

    #[inline]
    fn next(self, op: Option<(Pass, usize)>) -> Self {
        let code = op.map_or(0, |(pass, index)| 1 + (index * Pass::ALL.len() + pass as usize) as u32);
        Self(u64::from(self.count().wrapping_add(1)) << Self::OP_BITS | u64::from(code))
    }
}

/// A count that a sleeping rank waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedCount {
    /// The rank that raises the count.
    pub rank: usize,
    /// Which of that rank's signals.
    signal: u16,
    target: u32,
}

impl AwaitedCount {
    /// The wait for a count of `rank` to reach `target`.
    #[inline]
    pub fn new(rank: usize, count: Count, target: u32) -> Self {
        Self { rank, signal: count.index() as u16, target }
    }

    /// The number of the count, and the value that it is to reach.
    #[inline]
    pub fn awaits(self) -> (usize, u32) {
        (self.signal.into(), self.target)
    }

    /// The same count of another rank.
    pub fn of(self, rank: usize) -> Self {
        Self { rank, ..self }
    }

    /// Whether this count may come from another host through a host peer that receives it for all ranks of this host.
    pub fn may_be_taken(self) -> bool {
        [Count::Entered, Count::Gathered, Count::Whole].iter().any(|count| count.index() == usize::from(self.signal))
    }

    /// As one nonzero word, so that no rank ever reads half of it: target, signal, and 1 + rank.
    #[inline]
    fn encode(self) -> u64 {
        u64::from(self.target) << 32 | u64::from(self.signal) << 16 | (self.rank as u64 + 1)
    }

    fn decode(word: u64) -> Option<Self> {
        let rank = usize::from(word as u16).checked_sub(1)?;
        Some(Self { rank, signal: (word >> 16) as u16, target: (word >> 32) as u32 })
    }
}

/// How a rank waits for another one.
pub struct Waiter<'a> {
    /// The waiting rank's own block.
    pub own: &'a Control,
    /// The rank that is waited for.
    pub rank: usize,
    /// How often it looks before it sleeps.
    pub spins: Spins,
    /// The longest sleep between two checks for a rank that has given up; `None` to sleep until woken.
    pub patience: Option<&'a Timespec>,
    /// Called after each period of [`NOTICE`] with the number of periods so far.
    pub notice: &'a dyn Fn(u32),
    /// Full-length sleeps before the waiter gives up.
    pub sleeps_max: u32,
    /// Called when the waiter gives up; returns the error of the wait.
    pub give_up: &'a dyn Fn() -> Lost,
}

/// Sleeps until woken, unless `word` no longer equals `seen`.
fn sleep(word: &AtomicU32, seen: u32, patience: Option<&Timespec>) -> Result<(), Errno> {
    // Miri rejects the type of the pointer that `rustix` passes to the system, and stops.
    if cfg!(miri) {
        std::thread::yield_now();
        return Ok(());
    }
    futex::wait(word, futex::Flags::empty(), seen, patience)
}

/// A count that only grows, and that other ranks wait for. It wraps around.
#[repr(C)]
#[derive(Default)]
pub struct Signal {
    count: AtomicU32,
    sleepers: AtomicU32,
}

impl Signal {
    /// Raises the count by one, and wakes its waiters. They see everything that was written before.
    #[inline]
    pub fn raise(&self) {
        // Sequentially consistent, as are the waiter's two accesses: either the waiter sees the new count, or the
        // waiter is seen here.
        self.count.fetch_add(1, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 && cfg!(not(miri)) {
            // Fails only for a wrong address, and this is the address of the word.
            let _ = futex::wake(&self.count, futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Raises the count to `target`, which is beyond it, and wakes its waiters, as [`Signal::raise`] does. Only one
    /// rank may raise a count in this way.
    #[inline]
    pub fn raise_to(&self, target: u32) {
        self.count.store(target, Ordering::SeqCst);
        self.wake();
    }

    /// Whether the count is `target` or beyond it.
    #[inline]
    fn has_reached(&self, target: u32) -> Result<(), u32> {
        let count = self.count.load(Ordering::SeqCst);
        if count.wrapping_sub(target) as i32 >= 0 { Ok(()) } else { Err(count) }
    }

    /// The count itself, for a device that writes it and waits for it. A write by a device wakes nobody.
    #[inline]
    pub fn word(&self) -> &AtomicU32 {
        &self.count
    }

    fn sleep_until(&self, target: u32, waiter: &Waiter) -> Result<(), Lost> {
        let mut sleeps: u32 = 0;
        while let Err(count) = self.has_reached(target) {
            if let Some(lost) = waiter.own.lost() {
                return Err(lost);
            }
            // Whatever ends the sleep (a wake, the count having changed, a signal, the timeout), look again.
            let slept = sleep(&self.count, count, waiter.patience);
            if slept == Err(Errno::TIMEDOUT) {
                sleeps += 1;
                if sleeps.is_multiple_of(SLEEPS_PER_NOTICE) {
                    (waiter.notice)(sleeps / SLEEPS_PER_NOTICE);
                }
                if sleeps >= waiter.sleeps_max && self.has_reached(target).is_err() {
                    return Err((waiter.give_up)());
                }
            }
        }
        Ok(())
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

    /// Records what this rank does from now on. Only the rank itself may call this.
    #[inline]
    pub fn begin(&self, op: Option<(Pass, usize)>) {
        self.doing.store(self.doing().next(op).0, Ordering::Relaxed);
    }

    /// The op that this rank is at.
    #[inline]
    pub fn doing(&self) -> Doing {
        Doing(self.doing.load(Ordering::Relaxed))
    }

    /// Records the count that this rank sleeps for.
    #[inline]
    pub fn awaits(&self, awaited: Option<AwaitedCount>) {
        // A reader that sees a wait end because a rank was given up also sees that the rank was given up.
        self.awaited.store(awaited.map_or(0, AwaitedCount::encode), Ordering::Release);
    }

    /// The count that this rank waits for, if it has waited long enough to sleep. The count may have reached its target
    /// by now: a rank that was stopped in its sleep does not notice.
    pub fn awaited(&self) -> Option<AwaitedCount> {
        AwaitedCount::decode(self.awaited.load(Ordering::Acquire))
    }

    /// The words about this rank: the count that it waits for, passed by the caller, and the op that it is in.
    pub fn words(&self, awaited: Option<AwaitedCount>) -> Words {
        [awaited.map_or(0, AwaitedCount::encode), self.doing().0]
    }

    /// Stores a report about this rank, which is on another host.
    pub fn note_report(&self, [awaited, doing]: Words, life: Life) {
        self.awaited.store(awaited, Ordering::Relaxed);
        self.doing.store(doing, Ordering::Relaxed);
        self.reported.store(now_ns() << Life::BITS | life as u64, Ordering::Release);
    }

    /// The counts of this rank, as they are sent to other hosts.
    pub fn counts(&self) -> [u64; COUNT_WORDS] {
        let count = |index: usize| u64::from(self.word_at(index).load(Ordering::SeqCst));
        std::array::from_fn(|pair| count(2 * pair) | count(2 * pair + 1) << 32)
    }

    /// Stores reported counts of this rank, which is on another host. Counts of exchanges arrive in messages of their own.
    pub fn note_counts(&self, words: [u64; COUNT_WORDS]) {
        let counts = words.into_iter().flat_map(|word| [word as u32, (word >> 32) as u32]);
        for (index, told) in counts.enumerate().filter(|(index, _)| *index != Count::Entered.index()) {
            let newer = |known: u32| (told.wrapping_sub(known) as i32 > 0).then_some(told);
            let _ = self.word_at(index).fetch_update(Ordering::SeqCst, Ordering::SeqCst, newer);
        }
    }

    /// The state of this rank of another host, by a recent report. The rest of that report is then visible, too.
    pub fn reported(&self) -> Option<Life> {
        let word = self.reported.load(Ordering::Acquire);
        let age_ns = now_ns().saturating_sub(word >> Life::BITS);
        (word != 0 && age_ns < FRESH_NS).then(|| Life::of_code(word))
    }

    /// Whether this rank has yet to reach the count that another rank waits for.
    pub fn owes(&self, awaited: AwaitedCount) -> bool {
        // Numbers from another process may have any value.
        let signal = self.signals.get(usize::from(awaited.signal));
        signal.is_some_and(|signal| signal.has_reached(awaited.target).is_err())
    }

    /// Whether this rank raises counts of this kind, and has not reached the value that a rank awaits from another one.
    pub fn is_behind(&self, awaited: AwaitedCount) -> bool {
        let signal = self.signals.get(usize::from(awaited.signal));
        signal.is_some_and(|signal| signal.word().load(Ordering::SeqCst) != 0) && self.owes(awaited)
    }

    /// The word of the count with this number.
    pub fn word_at(&self, index: usize) -> &AtomicU32 {
        self.signals[index].word()
    }

    /// The signal of one of this rank's counts.
    #[inline]
    pub fn signal(&self, count: Count) -> &Signal {
        &self.signals[count.index()]
    }

    /// Waits until a count of this rank, which `waiter` waits for, is at least `target`.
    ///
    /// # Errors
    /// The rank that gave up, as reported to the waiting rank; or the waiter's own error if the waiter gives up.
    #[inline]
    pub fn wait(&self, count: Count, target: u32, waiter: &Waiter) -> Result<(), Lost> {
        let signal = self.signal(count);
        for _ in 0..=waiter.spins.0 {
            if signal.has_reached(target).is_ok() {
                return Ok(());
            }
            core::hint::spin_loop();
        }
        waiter.own.awaits(Some(AwaitedCount::new(waiter.rank, count, target)));
        signal.sleepers.fetch_add(1, Ordering::SeqCst);
        let reached = signal.sleep_until(target, waiter);
        signal.sleepers.fetch_sub(1, Ordering::SeqCst);
        waiter.own.awaits(None);
        reached
    }

    /// Whether the caller is the one that reports the wait, among all ranks that have waited for `periods` while this
    /// rank was in one op.
    pub fn claim_notice(&self, what: Doing, periods: u32) -> bool {
        let notice = Doing(u64::from(what.count()) << Doing::OP_BITS | u64::from(periods));
        let said = Doing(self.noticed.load(Ordering::SeqCst));
        let is_news = said.count() != notice.count() || (said.0 as u32) < periods;
        is_news && self.noticed.compare_exchange(said.0, notice.0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Tells this rank that `rank` has given up, or was given up, unless it already knows of such a rank. Returns
    /// whether this was news.
    pub fn tell_lost(&self, rank: usize) -> bool {
        self.lost.compare_exchange(0, rank as u32 + 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Records this process as the rank's. Only the rank itself may call this.
    pub fn tell_pid(&self) {
        self.pid.store(std::process::id(), Ordering::Relaxed);
    }

    /// Stores the process of a rank of another host.
    pub fn note_pid(&self, pid: u32) {
        self.pid.store(pid, Ordering::Relaxed);
    }

    /// The process of this rank, once the rank has recorded it.
    pub fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
    }

    /// The rank that gave up, if this rank was told of one.
    #[inline]
    pub fn lost(&self) -> Option<Lost> {
        match self.lost.load(Ordering::SeqCst) {
            0 => None,
            rank => Some(Lost::Ended { rank: rank as usize - 1 }),
        }
    }
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
