//! Tiers in memory: they carry out orders as early or as late as the plan lets them, or at random, count, fail, fall silent
//! or lie.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use zero_core::device::Failure;
use zero_core::random::mix;
use zero_core::tier::{After, Direction, FailedOrder, Tier, Transfer};
use zero_files::tier::{StateFolder, TierError};
use zero_plan::{Config, Home, Offload, Plan, TierBytes, TierKind};

use crate::long::report_skipped;

/// Optimizer states on disk, in the shortest pieces.
pub const ON_DISK: Offload = Offload { optimizer: TierKind::Disk, prefetch: 1, piece_bytes: 8192, ..Offload::NONE };

/// A plan's configuration with optimizer states in a tier.
pub const fn offloaded(config: Config, prefetch: usize) -> Config {
    Config { offload: Offload { prefetch, ..ON_DISK }, ..config }
}

/// A plan's configuration with summed gradients in a tier, alone or beside optimizer states.
pub const fn offloaded_sums(config: Config, prefetch: usize, optimizer: TierKind) -> Config {
    Config { offload: Offload { optimizer, gradients: TierKind::Disk, prefetch, ..ON_DISK }, ..config }
}

/// A plan's configuration with shards of parameters in a tier, beside what others are there.
pub const fn offloaded_shards(config: Config, prefetch: usize, [optimizer, gradients]: [TierKind; 2]) -> Config {
    let offload = Offload { optimizer, gradients, parameters: TierKind::Disk, prefetch, ..ON_DISK };
    Config { offload, ..config }
}

/// Whether the file system of a folder can keep states. Otherwise reports that `what` is skipped.
///
/// # Panics
/// If the folder cannot be used at all.
pub fn can_keep_states(folder: &Path, what: &str) -> bool {
    match StateFolder::open(folder) {
        Ok(_) => true,
        Err(error @ (TierError::Memory { .. } | TierError::NotDirect { .. })) => {
            report_skipped(what, &error.to_string());
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// The file of a rank in a folder, which must be on a disk.
///
/// # Panics
/// If the folder cannot keep states.
pub fn disk_tier(folder: &Path, plan: &Plan, rank: usize) -> Box<dyn Tier> {
    let bytes = plan.of_rank(rank).memory.bytes_of(Home::Disk);
    let made = StateFolder::open(folder).and_then(|folder| folder.allocate(bytes, rank));
    Box::new(made.unwrap_or_else(|error| panic!("{error}")))
}

/// When a tier carries out an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haste {
    /// As soon as it may.
    AtOnce,
    /// When somebody waits for it.
    AtLast,
    /// At any moment, and in any order of the two queues that the orders allow. The number is a seed.
    AtRandom(u64),
}

/// What is wrong with a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// An order fails: its queue, and its number in it, from 1.
    Fails(Direction, u64),
    /// An order never ends.
    Hangs(Direction, u64),
    /// Orders do not wait for those of the other queue, as if the engine did not name any.
    Overtakes,
    /// It says at once that an order has ended, as if the engine did not wait.
    SaysDone,
}

/// A tier in memory. From the start of a fetch to its end, the memory that it writes is poisoned.
pub struct MemoryTier {
    bytes: Vec<u8>,
    haste: Haste,
    /// Random numbers drawn so far.
    drawn: u64,
    /// By direction: orders that have not ended, whether the first of them has begun, and the number of those that have ended.
    given: [VecDeque<(Vec<Transfer>, u64)>; 2],
    is_begun: [bool; 2],
    ended: [u64; 2],
    moved: TierBytes,
    flaw: Option<Flaw>,
    failed: Option<FailedOrder>,
}

impl MemoryTier {
    /// The tier of a rank.
    pub fn new(plan: &Plan, rank: usize, haste: Haste) -> Self {
        let haste = match haste {
            Haste::AtRandom(seed) => Haste::AtRandom(mix(seed, rank as u64)),
            other => other,
        };
        let bytes = vec![0; plan.of_rank(rank).memory.bytes_of(Home::Disk)];
        let (drawn, given, is_begun, ended, moved) = Default::default();
        Self { bytes, haste, drawn, given, is_begun, ended, moved, flaw: None, failed: None }
    }

    /// The same with a flaw.
    pub fn with_flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    /// Begins the first order of each queue, if it may.
    fn begin(&mut self) {
        for direction in Direction::ALL {
            let queue = &self.given[direction as usize];
            let may_begin = |&&(_, after): &&(Vec<Transfer>, u64)| after <= self.ended[direction.other() as usize];
            let Some((transfers, _)) = queue.front().filter(may_begin) else { continue };
            if !std::mem::replace(&mut self.is_begun[direction as usize], true) && direction == Direction::Fetch {
                for Transfer { memory, len, .. } in transfers {
                    // SAFETY: whoever gave the order promised that nobody else touches these bytes from here to its end. They
                    // become numbers that are NaN in every width.
                    unsafe { memory.write_bytes(0xff, *len) };
                }
            }
        }
    }

    /// Carries out the first order of a queue. Returns whether that was possible.
    fn carry_out_one(&mut self, direction: Direction) -> bool {
        let number = self.ended[direction as usize] + 1;
        if !self.is_begun[direction as usize] || self.failed.is_some() {
            return false;
        }
        if self.flaw == Some(Flaw::Fails(direction, number)) {
            let failure = Failure { code: "Z0413", what: "no disk".to_owned(), help: "none".to_owned() };
            self.failed = Some(FailedOrder { direction, number, failure });
            return false;
        }
        if self.flaw == Some(Flaw::Hangs(direction, number)) {
            return false;
        }
        let (transfers, _) = self.given[direction as usize].pop_front().expect("the order that has begun");
        transfers.into_iter().for_each(|transfer| self.carry(direction, transfer));
        (self.ended[direction as usize], self.is_begun[direction as usize]) = (number, false);
        self.begin();
        true
    }

    /// Carries out orders until `count` of a queue have ended, and no more of the other queue than they need; at random, any.
    fn carry_out(&mut self, direction: Direction, count: u64) {
        while self.ended[direction as usize] < count {
            let first = if matches!(self.haste, Haste::AtRandom(_)) { self.any_direction() } else { direction };
            if !self.carry_out_one(first) && !self.carry_out_one(first.other()) {
                return;
            }
        }
    }

    /// Carries out some orders, as many as chance has it.
    fn carry_out_some(&mut self) {
        while self.draw().is_multiple_of(2) {
            let direction = self.any_direction();
            self.carry_out_one(direction);
        }
    }

    fn any_direction(&mut self) -> Direction {
        Direction::ALL[(self.draw() % 2) as usize]
    }

    fn draw(&mut self) -> u64 {
        let Haste::AtRandom(seed) = self.haste else { return 1 };
        self.drawn += 1;
        mix(seed, self.drawn)
    }

    fn carry(&mut self, direction: Direction, Transfer { offset, memory, len }: Transfer) {
        assert!([offset, memory as usize, len].iter().all(|bytes| bytes.is_multiple_of(4096)), "no whole blocks");
        let kept = &mut self.bytes[offset..offset + len];
        match direction {
            // SAFETY: whoever gave the order promised that nobody else touches these bytes until it has ended.
            Direction::Fetch => unsafe { kept.as_ptr().copy_to(memory, len) },
            // SAFETY: likewise.
            Direction::Store => unsafe { kept.as_mut_ptr().copy_from(memory, len) },
        }
        match direction {
            Direction::Fetch => self.moved.read += len,
            Direction::Store => self.moved.written += len,
        }
    }
}

// SAFETY: orders are carried out within calls, before they count as ended.
unsafe impl Tier for MemoryTier {
    fn bytes(&self) -> usize {
        self.bytes.len()
    }

    unsafe fn order(&mut self, direction: Direction, transfers: &[Transfer], after: After) {
        let After::Orders(after) = after else { panic!("a device asks a tier without threads") };
        let after = if self.flaw == Some(Flaw::Overtakes) { 0 } else { after };
        self.given[direction as usize].push_back((transfers.to_vec(), after));
        self.begin();
        match self.haste {
            Haste::AtOnce => while Direction::ALL.into_iter().any(|direction| self.carry_out_one(direction)) {},
            Haste::AtLast => {}
            Haste::AtRandom(_) => self.carry_out_some(),
        }
    }

    fn is_done(&mut self, direction: Direction, count: u64, patience: Duration) -> bool {
        if self.flaw == Some(Flaw::SaysDone) {
            return true;
        }
        match self.haste {
            Haste::AtRandom(_) if patience.is_zero() => self.carry_out_some(),
            _ => self.carry_out(direction, count),
        }
        let is_done = self.ended[direction as usize] >= count;
        if !is_done {
            std::thread::sleep(patience);
        }
        is_done
    }

    fn failed(&self) -> Option<FailedOrder> {
        self.failed.clone()
    }

    fn moved(&self) -> TierBytes {
        self.moved
    }

    fn quit(&mut self, _: Duration) -> bool {
        true
    }
}
