//! Watchdog: reports what a long wait is for, and ends all ranks after a wait in vain. One rank reports it, however many
//! wait. Reads only the control blocks, which cost a step no more than one store for each op.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use zero_plan::Plan;

use super::control::{AwaitedCount, Control, timeout_of};
use super::{Life, Lost, Silent};
use crate::launch;
use zero_core::arena::op_words;
use zero_core::device::Segment;
use zero_core::watchdog::{Awaited, Watchdog};

/// The watchdog of a rank.
#[derive(Clone)]
pub(super) struct RankWatchdog<'p> {
    pub plan: &'p Plan<'p>,
    pub rank: usize,
    /// The memory that the ranks of this host share; it begins with the control blocks.
    pub segment: Arc<Segment>,
    /// The host of each rank, if they are on several.
    pub hosts: Vec<String>,
    /// Sleeps before a wait for another rank is given up.
    pub sleeps_max: u32,
    /// Whether bytes are carried to this rank. Then ranks may wait for one that has raised all counts that it owes.
    pub is_carried: bool,
}

impl Watchdog for RankWatchdog<'_> {
    fn lost(&self) -> Option<Lost> {
        self.own().lost()
    }

    fn still_waits(&self, awaited: Awaited, periods: u32) {
        if !periods.is_power_of_two() {
            return;
        }
        let cause = self.cause_of(awaited);
        // All ranks that are held up here are held up by the same rank, so the first of them to notice reports it.
        let what = self.control(cause).doing();
        if self.control(cause).claim_notice(what, periods) {
            launch::note(self.rank, periods, || self.words(awaited, cause));
        }
    }

    fn gives_up(&self, awaited: Awaited) -> Lost {
        let cause = self.cause_of(awaited);
        if let Err(lost) = self.tell_all(cause) {
            return lost;
        }
        Lost::Silent(Box::new(Silent {
            rank: cause,
            pid: self.control(cause).pid(),
            life: self.life_of(cause),
            host: self.hosts.get(cause).cloned().unwrap_or_else(launch::host),
            doing: self.doing_words(cause),
            waiting: self.rank,
            wait: self.wait_words(awaited, cause),
            waited: timeout_of(self.sleeps_max),
        }))
    }

    fn fails(&self) -> Option<Lost> {
        self.tell_all(self.rank).err().filter(|lost| *lost != Lost::Ended { rank: self.rank })
    }
}

impl RankWatchdog<'_> {
    /// Tells all ranks that one has ended.
    ///
    /// # Errors
    /// The rank that all were told of before.
    fn tell_all(&self, cause: usize) -> Result<(), Lost> {
        // One block decides for all ranks which is the first.
        if !self.control(0).tell_lost(cause) {
            return Err(self.control(0).lost().expect("told just now, or before"));
        }
        (1..self.plan.config.mesh.ranks()).for_each(|other| _ = self.control(other).tell_lost(cause));
        Ok(())
    }

    fn control(&self, rank: usize) -> &Control {
        assert!(rank < self.plan.config.mesh.ranks());
        // SAFETY: the segment starts with one block for each rank, was zero at first, and is mapped as long as this
        // watchdog has it; the blocks are used only through this type.
        unsafe { Control::of(self.segment.ptr(), rank) }
    }

    fn own(&self) -> &Control {
        self.control(self.rank)
    }

    /// Whether a rank lives, as the kernel says, or as its host has reported.
    pub fn life_of(&self, rank: usize) -> Life {
        let control = self.control(rank);
        if self.is_here(rank) { Life::of(control.pid()) } else { control.reported().unwrap_or(Life::Elsewhere) }
    }

    /// Whether a rank is on this host.
    pub fn is_here(&self, rank: usize) -> bool {
        self.plan.config.shares_host(self.rank, rank)
    }

    /// The count that a rank waits for, if it cannot go on without it; for a rank of another host, as that host has
    /// reported.
    fn awaited_by(&self, rank: usize) -> Option<AwaitedCount> {
        let config = &self.plan.config;
        let (ranks, (first, end)) = (config.mesh.ranks(), config.sharing(self.rank));
        if self.is_here(rank) {
            return awaited_on_host(rank, &(first..end), ranks, |rank| (self.control(rank), self.life_of(rank)));
        }
        let is_told = self.control(rank).reported().is_some();
        self.control(rank).awaited().filter(|awaited| is_told && awaited.rank < ranks)
    }

    /// A rank that does not go on by itself or, if there is none, one about which its host reports nothing.
    pub fn doubtful_rank(&self) -> Option<usize> {
        let lives = (0..self.plan.config.mesh.ranks()).map(|rank| (self.life_of(rank), rank));
        let in_doubt = lives.filter(|(life, _)| !life.goes_on() || *life == Life::Elsewhere);
        in_doubt.min_by_key(|(life, _)| life.goes_on()).map(|(_, rank)| rank)
    }

    /// The rank at the end of the chain of waiting ranks that begins with the awaited rank. If bytes are carried, ranks may wait
    /// for one that has raised all counts that it owes, and then for one another.
    fn cause_of(&self, awaited: Awaited) -> usize {
        let Awaited::Rank(rank) = awaited else { return self.rank };
        if let Some(doubtful) = self.doubtful_rank().filter(|_| self.is_carried) {
            return doubtful;
        }
        let ranks = self.plan.config.mesh.ranks();
        // A chain has no end only while it changes under the reader, because no ranks wait for one another in a circle.
        let next = |at, _| self.awaited_by(at).map(|awaited| awaited.rank).ok_or(at);
        (0..ranks).try_fold(rank, next).unwrap_or_else(|end| end)
    }

    /// The text of this rank's wait, and of the op that the cause is in.
    fn words(&self, awaited: Awaited, cause: usize) -> String {
        let wait = self.wait_words(awaited, cause);
        match awaited {
            Awaited::Rank(_) => format!("{wait}; rank {cause} is in {}", self.doing_words(cause)),
            Awaited::Work(_) => wait,
        }
    }

    /// The words for what a rank is doing, as far as it can be seen from here.
    fn doing_words(&self, rank: usize) -> String {
        let plan = self.plan;
        match self.hosts.get(rank) {
            Some(host) if self.life_of(rank) == Life::Elsewhere => match plan.config.mesh.ranks_per_node() {
                1 => format!("an unknown op, as {host} has no other rank"),
                _ => format!("an op that {host} has not reported"),
            },
            _ => op_words(plan, rank, self.control(rank).doing()),
        }
    }

    /// The text of this rank's wait, and of its own op.
    fn wait_words(&self, awaited: Awaited, cause: usize) -> String {
        let op = op_words(self.plan, self.rank, self.own().doing());
        match awaited {
            Awaited::Rank(rank) if cause == rank => format!("rank {rank}, in {op}"),
            Awaited::Rank(rank) => format!("rank {rank}, which waits for rank {cause}, in {op}"),
            Awaited::Work(work) => format!("{work}, in {op}"),
        }
    }
}

/// The count that one of the ranks `here`, on this host, waits for, if it cannot go on without it. A rank that is
/// stopped or gone would not go on in any case, and a rank whose count is reached is about to go on. If a host peer
/// receives the data of another host for all, the wait is for that peer until it has asked for the data, and forever if
/// the peer is stopped or gone.
pub(super) fn awaited_on_host<'a>(
    rank: usize,
    here: &Range<usize>,
    ranks: usize,
    look: impl Fn(usize) -> (&'a Control, Life),
) -> Option<AwaitedCount> {
    let (own, life) = look(rank);
    // Numbers of another process may be anything.
    let awaited = own.awaited().filter(|awaited| awaited.rank < ranks)?;
    if !life.goes_on() || !look(awaited.rank).0.owes(awaited) {
        return None;
    }
    let receiver = here.start + awaited.rank % here.len();
    if here.contains(&awaited.rank) || receiver == rank || !awaited.may_be_taken() {
        return Some(awaited);
    }
    let (control, life) = look(receiver);
    Some(if life.goes_on() && !control.is_behind(awaited) { awaited } else { awaited.of(receiver) })
}

#[cfg(test)]
#[path = "watchdog_tests.rs"]
mod tests;
