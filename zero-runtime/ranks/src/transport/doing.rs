//! Doing: shows others which op a rank is in, and reports what a long wait is for: one rank reports it, however many
//! wait. This costs a step no more than one store for each op.
#![allow(unsafe_code)]

use std::ops::Range;

use super::control::{AwaitedCount, Control, timeout_of};
use super::shared::Shared;
use super::{Life, Lost, Silent};
use crate::launch;
use zero_core::arena::op_words;
use zero_core::device::Device;

impl<D: Device> Shared<'_, D> {
    /// Reports that this rank has waited for `rank` for `periods`, if a report is due and no other rank has made it.
    pub(super) fn still_waits_for(&self, rank: usize, periods: u32) {
        if !periods.is_power_of_two() {
            return;
        }
        let cause = self.cause_of(rank);
        // All ranks that are held up here are held up by the same rank, so the first of them to notice reports it.
        let what = self.control(cause).doing();
        if self.control(cause).claim_notice(what, periods) {
            launch::note(self.rank(), periods, || self.words(rank, cause));
        }
    }

    /// Gives up after this rank has waited for `rank` in vain. The first rank to do so tells all others which rank to
    /// give up, and gets the error that describes it.
    pub(super) fn gives_up(&self, rank: usize) -> Lost {
        let cause = self.cause_of(rank);
        // One block decides for all ranks which is the first.
        if !self.control(0).tell_lost(cause) {
            return self.control(0).lost().expect("told just now, or before");
        }
        for other in 1..self.arena.plan().config.mesh.ranks() {
            self.control(other).tell_lost(cause);
        }
        Lost::Silent(Box::new(Silent {
            rank: cause,
            pid: self.control(cause).pid(),
            life: self.life_of(cause),
            host: self.hosts.get(cause).cloned().unwrap_or_else(launch::host),
            doing: self.doing_words(cause),
            waiting: self.rank(),
            wait: self.wait_words(rank, cause),
            waited: timeout_of(self.sleeps_max),
        }))
    }

    /// Whether a rank lives, as the kernel says, or as its host has reported.
    fn life_of(&self, rank: usize) -> Life {
        let control = self.control(rank);
        if self.is_here(rank) { Life::of(control.pid()) } else { control.reported().unwrap_or(Life::Elsewhere) }
    }

    /// Whether a rank is on this host.
    pub(super) fn is_here(&self, rank: usize) -> bool {
        self.arena.plan().config.shares_host(self.rank(), rank)
    }

    /// The count that a rank waits for, if it cannot go on without it; for a rank of another host, as that has
    /// reported.
    fn awaited_by(&self, rank: usize) -> Option<AwaitedCount> {
        let config = &self.arena.plan().config;
        let (ranks, (first, end)) = (config.mesh.ranks(), config.sharing(self.rank()));
        if self.is_here(rank) {
            return awaited_on_host(rank, &(first..end), ranks, |rank| (self.control(rank), self.life_of(rank)));
        }
        let is_told = self.control(rank).reported().is_some();
        self.control(rank).awaited().filter(|awaited| is_told && awaited.rank < ranks)
    }

    /// A rank that does not go on by itself or, if there is none, one about which its host reports nothing.
    pub(super) fn doubtful_rank(&self) -> Option<usize> {
        let lives = (0..self.arena.plan().config.mesh.ranks()).map(|rank| (self.life_of(rank), rank));
        let in_doubt = lives.filter(|(life, _)| !life.goes_on() || *life == Life::Elsewhere);
        in_doubt.min_by_key(|(life, _)| life.goes_on()).map(|(_, rank)| rank)
    }

    /// The rank at the end of the chain of waiting ranks that begins with `rank`. If bytes are carried, ranks may wait
    /// for one that has raised all counts that it owes, and then for one another.
    fn cause_of(&self, rank: usize) -> usize {
        if let Some(doubtful) = self.carried.as_ref().and_then(|_| self.doubtful_rank()) {
            return doubtful;
        }
        let ranks = self.arena.plan().config.mesh.ranks();
        // A chain has no end only while it changes under the reader, because no ranks wait for one another in a circle.
        let next = |at, _| self.awaited_by(at).map(|awaited| awaited.rank).ok_or(at);
        (0..ranks).try_fold(rank, next).unwrap_or_else(|end| end)
    }

    /// The rank that this one waits for, and what it and the cause are doing.
    fn words(&self, rank: usize, cause: usize) -> String {
        let what = self.doing_words(cause);
        format!("{}; rank {cause} is in {what}", self.wait_words(rank, cause))
    }

    /// The words for what a rank is doing, as far as it can be seen from here.
    fn doing_words(&self, rank: usize) -> String {
        let plan = self.arena.plan();
        match self.hosts.get(rank) {
            Some(host) if self.life_of(rank) == Life::Elsewhere => match plan.config.mesh.ranks_per_node() {
                1 => format!("an op that nobody can tell, as {host} has no other rank"),
                _ => format!("an op that {host} has not told"),
            },
            _ => op_words(plan, rank, self.control(rank).doing()),
        }
    }

    /// The rank that this one waits for, and the op.
    fn wait_words(&self, rank: usize, cause: usize) -> String {
        let chain = if cause == rank { String::new() } else { format!(", which waits for rank {cause}") };
        format!("rank {rank}{chain}, in {}", op_words(self.arena.plan(), self.rank(), self.own().doing()))
    }
}

/// The count that one of the ranks `here`, on this host, waits for, if it cannot go on without it. A rank that is
/// stopped or gone would not go on in any case, and one whose count is reached is about to go on. If a host peer
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
#[path = "doing_tests.rs"]
mod tests;
