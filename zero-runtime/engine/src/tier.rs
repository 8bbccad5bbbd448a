//! Tier: gives the fetches and stores of a plan to the tier of this rank, and waits for them where the plan says so.
//! Between steps, brings the parts of states that are read or set to the window and takes them back. Never decides what
//! travels in a step.
#![allow(unsafe_code)]

use core::cell::{Cell, RefCell};
use core::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use zero_plan::lines::BLOCK_BYTES;
use zero_plan::place::{Kept, PieceOfState, Place};
use zero_plan::{Home, Op, Pass, Piece, Queued, Stream, TierBytes, TierKind};

use super::Engine;
use zero_core::arena::Arena;
use zero_core::device::Device;
use zero_core::lost::{Broken, Lost};
use zero_core::tier::{After, Direction, TRANSFERS_MAX, Tier, Transfer};
use zero_core::transport::Transport;
use zero_core::watchdog::Watchdog;

/// How long a rank that ends waits for the transfer that its tier is in.
const LAST_TRANSFER: Duration = Duration::from_secs(1);

/// The tier of a rank.
pub(super) struct TierOfRank<'p, D: Device> {
    tier: RefCell<Box<dyn Tier>>,
    /// Keeps the memory of transfers.
    pub(super) arena: Arc<Arena<'p, D>>,
    pub watchdog: Arc<dyn Watchdog + 'p>,
    /// How long a wait for the tier may last.
    pub timeout: Duration,
    /// For each op of a step and of an evaluation, how many orders of its stream are given up to it.
    numbers: [Vec<u64>; Pass::ALL.len()],
    /// The pass that the last order belongs to.
    pass: Cell<Pass>,
    /// Orders that have been given to each queue, and those of them that were given before this pass; and the bytes that
    /// had travelled before it.
    given: [Cell<u64>; 2],
    given_before: [Cell<u64>; 2],
    moved_before: Cell<TierBytes>,
}

/// The queue of a stream; none if the stream belongs to the device.
fn direction(stream: Stream) -> Option<Direction> {
    match stream {
        Stream::Fetch => Some(Direction::Fetch),
        Stream::Store => Some(Direction::Store),
        _ => None,
    }
}

/// For each op of a pass, how many orders of its stream are given up to it: one for each op, or one for each part that passes
/// through the relay.
fn numbers<D: Device>(arena: &Arena<D>, pass: Pass) -> Vec<u64> {
    let (mut counts, stage) = ([0; Stream::ALL.len()], arena.pipeline_stage());
    let number = |(queued, &op): (&Queued, &Op)| {
        let orders = if D::QUEUES { arena.places().relayed_by(op).count() } else { 1 };
        counts[queued.stream as usize] += orders as u64;
        counts[queued.stream as usize]
    };
    stage.queue(pass).iter().zip(stage.ops(pass)).map(number).collect()
}

impl<'p, D: Device> TierOfRank<'p, D> {
    pub fn new(
        tier: Box<dyn Tier>,
        arena: Arc<Arena<'p, D>>,
        watchdog: Arc<dyn Watchdog + 'p>,
        timeout: Duration,
    ) -> Self {
        assert_eq!(tier.bytes(), arena.memory().bytes_of(Home::Disk), "the tier does not have the planned size");
        let numbers = Pass::ALL.map(|pass| numbers(&arena, pass));
        let pass = Cell::new(Pass::Train);
        let (given, given_before, moved_before) = Default::default();
        let tier = RefCell::new(tier);
        Self { tier, arena, watchdog, timeout, numbers, pass, given, given_before, moved_before }
    }

    /// Begins a pass, before which everything was awaited.
    pub fn begin_pass(&self) {
        self.given_before.iter().zip(&self.given).for_each(|(before, given)| before.set(given.get()));
        self.moved_before.set(self.tier.borrow().moved());
    }

    /// Orders that have been given to a queue.
    pub(super) fn given(&self, direction: Direction) -> u64 {
        self.given[direction as usize].get()
    }

    /// Waits for everything that has been ordered, unless `is_over`, because the device that asks for it has failed.
    pub fn end_pass(&self, is_over: &dyn Fn() -> bool) -> Result<(), Lost> {
        Direction::ALL.into_iter().try_for_each(|direction| {
            self.wait_unless(direction, self.given(direction), Some(is_over))?;
            self.require()
        })
    }

    /// Begins an op of a pass, so that errors name it.
    pub fn begin_op(&self, pass: Pass) {
        self.pass.set(pass);
    }

    /// Before an op of the rank's own thread: waits for the op of the tier that it needs, if it needs one.
    pub fn enter(&self, pass: Pass, index: usize) -> Result<(), Lost> {
        let queue = self.arena.pipeline_stage().queue(pass);
        let (None, Some(before)) = (direction(queue[index].stream), queue[index].waits_for()) else { return Ok(()) };
        let Some(direction) = direction(queue[before].stream) else { return Ok(()) };
        self.wait(direction, self.given_before[direction as usize].get() + self.numbers[pass as usize][before])
    }

    /// Orders the fetch or store that is op `index` of a pass.
    ///
    /// # Safety
    /// The op is the next of this rank's table, which has been proven.
    pub unsafe fn order(&self, (pass, index): (Pass, usize), op: Op) {
        self.begin_op(pass);
        let (queue, numbers) = (self.arena.pipeline_stage().queue(pass), &self.numbers[pass as usize]);
        let direction = direction(queue[index].stream).expect("an op of a tier");
        let other = direction.other();
        let is_other = |before: &usize| self::direction(queue[*before].stream) == Some(other);
        let after = queue[index].waits_for().filter(is_other).map_or(0, |before| numbers[before]);
        let after = if after > 0 { self.given_before[other as usize].get() + after } else { 0 };
        let mut transfers = [Transfer { offset: 0, memory: core::ptr::null_mut(), len: 0 }; TRANSFERS_MAX];
        let mut states = 0;
        for trip in self.arena.places().trips(op) {
            transfers[states] = self.transfer(trip);
            states += 1;
        }
        // SAFETY: by the caller's promise, and the proof that ops that conflict with this one wait for it.
        unsafe { self.give(direction, &transfers[..states], After::Orders(after)) };
    }

    /// The transfer between a place in the tier and one in memory.
    pub(super) fn transfer(&self, (kept, window): (Place, Place)) -> Transfer {
        let offset = self.arena.memory().region(kept.region).offset_bytes + kept.offset_bytes;
        // SAFETY: nothing is read or written here.
        let memory = unsafe { self.arena.bytes_mut(window) };
        Transfer { offset, memory: memory.address(), len: window.len_bytes }
    }

    /// # Safety
    /// As for [`Tier::order`].
    pub(super) unsafe fn give(&self, direction: Direction, transfers: &[Transfer], after: After) {
        let given = &self.given[direction as usize];
        given.set(given.get() + 1);
        // SAFETY: by the caller's promise.
        unsafe { self.tier.borrow_mut().order(direction, transfers, after) };
    }

    /// Waits until the first `count` orders of a queue have ended, and checks that nothing has failed.
    fn wait(&self, direction: Direction, count: u64) -> Result<(), Lost> {
        self.wait_for_end(direction, count)?;
        self.require()
    }

    pub(super) fn wait_for_end(&self, direction: Direction, count: u64) -> Result<(), Lost> {
        self.wait_unless(direction, count, None)
    }

    /// `is_over` of a pass. A device that asks for nothing waits for another rank, whose own tier is to be named first, so
    /// its time counts half.
    fn wait_unless(&self, direction: Direction, count: u64, is_over: Option<&dyn Fn() -> bool>) -> Result<(), Lost> {
        if !self.tier.borrow_mut().is_done(direction, count, Duration::ZERO) {
            let work = match direction {
                Direction::Fetch => "states from disk",
                Direction::Store => "states on their way to disk",
            };
            let waited = self.watchdog.wait_for(work, Some(self.timeout), &mut |patience| {
                let mut tier = self.tier.borrow_mut();
                let looks = if is_over.is_some() && !self.owes() { 2 } else { 1 };
                (0..looks).any(|_| {
                    let is_done = tier.is_done(direction, count, patience);
                    is_done || tier.failed().is_some() || is_over.is_some_and(|is_over| is_over())
                })
            });
            waited.map_err(|lost| self.naming(lost))?;
        }
        Ok(())
    }

    /// Adds the transfer that hangs to the error of a wait for this tier: the first of a pass that has not ended, because
    /// none waits for a later one.
    fn naming(&self, lost: Lost) -> Lost {
        let open = |direction: Direction| {
            let before = self.given_before[direction as usize].get();
            let hangs = |number: &u64| !self.tier.borrow_mut().is_done(direction, *number, Duration::ZERO);
            let number = (before + 1..=self.given[direction as usize].get()).find(hangs)?;
            self.index_of(direction, number - before)
        };
        let first = Direction::ALL.into_iter().filter_map(open).min();
        match (lost, first.map(|at| self.ops()[at])) {
            (Lost::Silent(mut silent), Some(op)) if silent.rank == self.arena.rank() => {
                let places = self.arena.places();
                let bytes = places.trips(op).map(|trip| {
                    let Transfer { offset, len, .. } = self.transfer(trip);
                    format!("{len} bytes at byte {offset}")
                });
                let bytes = bytes.collect::<Vec<_>>().join(", ");
                silent.wait += &format!(": {} {bytes} of its file", self.order_of(op));
                Lost::Silent(silent)
            }
            (lost, _) => lost,
        }
    }

    /// The op of an order, with its unit and its piece, or its bucket.
    fn order_of(&self, op: Op) -> String {
        let title = self.arena.plan().title(op);
        match op.traits().piece {
            Some(piece) => format!("`{title}`, piece {piece},"),
            None if matches!(op, Op::FetchShard { .. }) => format!("`{title}`, this rank's shard of it,"),
            None if op.micro_batch().is_some() => format!("`{title}`, its activations,"),
            None => format!("`{title}`, the sums of that bucket,"),
        }
    }

    /// Checks that nothing is known to have failed.
    pub fn require(&self) -> Result<(), Lost> {
        let Some(failed) = self.tier.borrow().failed() else { return Ok(()) };
        if let Some(lost) = self.watchdog.fails() {
            return Err(lost);
        }
        let mut broken = self.arena.broken(failed.failure);
        let number = failed.number.checked_sub(self.given_before[failed.direction as usize].get());
        if let Some(at) = number.and_then(|number| self.index_of(failed.direction, number)) {
            broken = Broken { doing: self.order_of(self.ops()[at]), ..broken };
        }
        Err(Lost::Device(Box::new(broken)))
    }

    /// The ops of the pass that the last order belongs to.
    fn ops(&self) -> &'p [Op] {
        self.arena.pipeline_stage().ops(self.pass.get())
    }

    /// The op of that pass that gave order `number` of a queue, by its place in the table.
    fn index_of(&self, wanted: Direction, number: u64) -> Option<usize> {
        let pass = self.pass.get();
        let (queue, numbers) = (self.arena.pipeline_stage().queue(pass), &self.numbers[pass as usize]);
        let is_it = |&at: &usize| direction(queue[at].stream) == Some(wanted) && numbers[at] >= number;
        (0..queue.len()).find(is_it)
    }

    /// Bytes that have travelled since the last pass began, all of which have arrived.
    pub fn moved_in_pass(&self) -> TierBytes {
        let (now, before) = (self.tier.borrow().moved(), self.moved_before.get());
        TierBytes { read: now.read - before.read, written: now.written - before.written }
    }

    /// Moves a part of a piece, from `start` to `end` in bytes of it, in whole blocks, and waits for it. After a failure it
    /// does nothing: the next call that can tell of it does.
    ///
    /// # Safety
    /// No pass is under way, and the window is not in use.
    unsafe fn carry(&self, device: &D, direction: Direction, part: &PieceOfState, bytes: Range<usize>) {
        let start = bytes.start / BLOCK_BYTES * BLOCK_BYTES;
        let len = bytes.end.next_multiple_of(BLOCK_BYTES) - start;
        let (kept, window) = part.blocks();
        // SAFETY: by the caller's promise. A failure stays until it is told.
        let _ = unsafe { self.carry_trip(device, direction, (kept.cut(start, len), window.cut(start, len))) };
    }

    /// # Safety
    /// As for [`Self::carry`].
    unsafe fn carry_trip(&self, device: &D, direction: Direction, trip: (Place, Place)) -> Result<(), Lost> {
        if self.tier.borrow().failed().is_some() {
            return Ok(());
        }
        if D::QUEUES {
            // SAFETY: by the caller's promise.
            return unsafe { self.relay_now(device, direction, trip) };
        }
        // SAFETY: by the caller's promise; the order ends before anybody touches these bytes.
        unsafe { self.give(direction, &[self.transfer(trip)], After::Orders(0)) };
        self.wait_for_end(direction, self.given[direction as usize].get())
    }
}

impl<D: Device> Drop for TierOfRank<'_, D> {
    fn drop(&mut self) {
        self.answer_device();
        if !self.tier.borrow_mut().quit(LAST_TRANSFER) {
            // A thread that hangs in a transfer may still write there.
            core::mem::forget(Arc::clone(&self.arena));
        }
    }
}

impl<'p, D: Device, T: Transport<'p, D>> Engine<'p, D, T> {
    /// Keeps the states that the plan has on disk in this tier, which has the planned size. It comes before parameters
    /// are set.
    ///
    /// # Panics
    /// If the plan has no states on disk.
    pub fn keep_states_in(&mut self, tier: Box<dyn Tier>) {
        assert!(self.plan.config.offload.uses(TierKind::Disk), "a tier for a plan that keeps nothing on disk");
        assert_eq!(self.loaded, 0, "states lie elsewhere already");
        let watchdog = self.ranks.transport.watchdog();
        self.tier = Some(TierOfRank::new(tier, Arc::clone(&self.arena), watchdog, self.timeout));
    }

    /// Bytes that have travelled from tiers to the window in steps so far, and back: counted op by op, once all had arrived.
    pub fn moved_by_tier(&self) -> TierBytes {
        self.tier_moved
    }

    /// The tier, if the plan has states on disk.
    ///
    /// # Panics
    /// If it has, but [`Engine::keep_states_in`] was not called.
    pub(super) fn tier(&self) -> Option<&TierOfRank<'p, D>> {
        let is_there = self.tier.is_some() || !self.plan.config.offload.uses(TierKind::Disk);
        assert!(is_there, "`keep_states_in` comes first: the plan keeps states on disk");
        self.tier.as_ref()
    }

    /// The tier, if it keeps this place: otherwise the device itself reaches it.
    pub(super) fn tier_of(&self, kept: Place) -> Option<&TierOfRank<'p, D>> {
        self.tier().filter(|_| self.arena.memory().region(kept.region).home == Home::Disk)
    }

    /// Moves bytes between steps, and waits for them.
    ///
    /// # Errors
    /// [`Lost`] if the tier has failed.
    ///
    /// # Safety
    /// No pass is under way, and nobody uses these places in memory.
    pub(super) unsafe fn carry_now(
        &self,
        direction: Direction,
        trips: impl Iterator<Item = (Place, Place)>,
    ) -> Result<(), Lost> {
        for trip in trips {
            match self.tier_of(trip.0) {
                // SAFETY: by the caller's promise.
                Some(tier) => unsafe { tier.carry_trip(&self.ranks.device, direction, trip) }?,
                // SAFETY: likewise.
                None => unsafe { self.carry(direction, trip) },
            }
        }
        self.tier().map_or(Ok(()), TierOfRank::require)
    }

    /// Calls `each` with places in memory that together have some elements of a state that this rank stores, in order,
    /// and with the elements in each. A state in a tier comes to the window part by part; if `each` `writes` them, they
    /// are taken back.
    ///
    /// # Errors
    /// The first error of `each`, which ends the call.
    ///
    /// # Safety
    /// No pass is under way, and nobody else reads or writes the state.
    pub(super) unsafe fn in_memory<E>(
        &self,
        (kept, unit): (Kept, usize),
        elements: Range<usize>,
        writes: bool,
        mut each: impl FnMut(Place, Range<usize>) -> Result<(), E>,
    ) -> Result<(), E> {
        let places = self.arena.places();
        let Some((stretch, place)) = places.kept(kept, unit) else { return Ok(()) };
        let element = place.len_bytes / stretch.len;
        // A device reads and writes what its host updates where that lies.
        if !self.arena.memory().region(place.region).home.is_tier() || self.plan.config.updates_on_host() {
            let start = elements.start - stretch.start;
            return each(place.cut(start * element, elements.len() * element), elements);
        }
        let tier = self.tier_of(place);
        // SAFETY: by the caller's promise.
        let carry = |direction, part: &PieceOfState, bytes: Range<usize>| unsafe {
            match tier {
                Some(tier) => tier.carry(&self.ranks.device, direction, part, bytes),
                None => self
                    .carry(direction, [part.kept, part.window].map(|place| place.cut(bytes.start, bytes.len())).into()),
            }
        };
        for index in 0..self.plan.tables().pieces(unit) {
            let part = places.piece_of(kept, unit, Piece { index, slot: 0 }).expect("a piece of a state in a tier");
            let own = part.stretch.elements();
            let common = own.start.max(elements.start)..own.end.min(elements.end);
            if common.is_empty() {
                continue;
            }
            let bytes = (common.start - own.start) * element..(common.end - own.start) * element;
            carry(Direction::Fetch, &part, bytes.clone());
            each(part.window.cut(bytes.start, bytes.len()), common)?;
            if writes {
                carry(Direction::Store, &part, bytes);
            }
        }
        Ok(())
    }
}
