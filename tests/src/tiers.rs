//! Tiers in memory: they carry out orders as early or as late as the plan lets them, count, fail or fall silent.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use zero_core::device::Failure;
use zero_core::tier::{Direction, FailedOrder, Tier, Transfer};
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
}

/// What a tier does with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// It fails.
    Fails,
    /// It never ends.
    Hangs,
}

/// A tier in memory.
pub struct MemoryTier {
    bytes: Vec<u8>,
    haste: Haste,
    /// By direction: orders that are not carried out, and the number of those that are.
    given: [VecDeque<(Vec<Transfer>, u64)>; 2],
    ended: [u64; 2],
    moved: TierBytes,
    /// The order that goes wrong.
    wrong: Option<(Direction, u64, Flaw)>,
    failed: Option<FailedOrder>,
}

impl MemoryTier {
    /// The tier of a rank.
    pub fn new(plan: &Plan, rank: usize, haste: Haste) -> Self {
        let bytes = vec![0; plan.of_rank(rank).memory.bytes_of(Home::Disk)];
        let (given, ended, moved) = Default::default();
        Self { bytes, haste, given, ended, moved, wrong: None, failed: None }
    }

    /// The same, in which one order goes wrong: the queue and the number of the order in it, from 1.
    pub fn with_flaw(mut self, direction: Direction, number: u64, flaw: Flaw) -> Self {
        self.wrong = Some((direction, number, flaw));
        self
    }

    /// Carries out orders of a queue, and of the other one before them, until `count` of them have ended.
    fn carry_out(&mut self, direction: Direction, count: u64) {
        while self.ended[direction as usize] < count && self.failed.is_none() {
            let Some(&(_, after)) = self.given[direction as usize].front() else { return };
            if self.ended[direction.other() as usize] < after {
                self.carry_out(direction.other(), after);
            }
            let number = self.ended[direction as usize] + 1;
            match self.wrong.filter(|wrong| (wrong.0, wrong.1) == (direction, number)) {
                Some((.., Flaw::Hangs)) => return,
                Some((.., Flaw::Fails)) => {
                    let failure = Failure { code: "Z0413", what: "no disk".to_owned(), help: "none".to_owned() };
                    self.failed = Some(FailedOrder { direction, number, failure });
                    return;
                }
                None => {}
            }
            if self.ended[direction.other() as usize] < after {
                return;
            }
            let (transfers, _) = self.given[direction as usize].pop_front().expect("the order that was looked at");
            transfers.into_iter().for_each(|transfer| self.carry(direction, transfer));
            self.ended[direction as usize] = number;
        }
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

    unsafe fn order(&mut self, direction: Direction, transfers: &[Transfer], after: u64) {
        self.given[direction as usize].push_back((transfers.to_vec(), after));
        if self.haste == Haste::AtOnce {
            Direction::ALL.into_iter().for_each(|direction| {
                let last = self.ended[direction as usize] + self.given[direction as usize].len() as u64;
                self.carry_out(direction, last);
            });
        }
    }

    fn is_done(&mut self, direction: Direction, count: u64, patience: Duration) -> bool {
        self.carry_out(direction, count);
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
