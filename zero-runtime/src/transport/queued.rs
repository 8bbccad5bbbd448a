//! Queued: what a device waits for in its queues while the host goes on, and how the host then waits for the device: it sees
//! which rank keeps it, tells the others when one has gone, and gives up in time. Never looks at a clock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use zero_plan::{PipelineStage, Plan};

use super::Lost;
use super::control::{AwaitedCount, Count, PATIENCE_MS, SLEEPS_PER_NOTICE};
use super::shared::Shared;
use crate::device::Device;

/// The first sleep between two looks at a device.
const SLEEP_FIRST_NS: u64 = 4_000;
/// A sleep is longer than the last by one part in so many, so that what is slept too long is a small part of the wait.
const SLEEP_GROWTH: u64 = 64;
const SLEEP_MAX_NS: u64 = PATIENCE_MS as u64 * 1_000_000;
/// How long a device may go on with what nobody waits for any more, before it is left to the end of the process: so many sleeps.
const ANSWERS_MAX: u32 = 500;
const ANSWER_SLEEP: Duration = Duration::from_millis(1);

/// The waits that a device has been asked for since the host last saw it idle, in their order: the first that is still owed is
/// what keeps the device, or what comes next.
#[derive(Default)]
pub(super) struct QueuedWaits(Vec<AwaitedCount>);

impl QueuedWaits {
    /// With room for all waits of a pass over a schedule and of an exchange, so that none takes memory.
    pub fn of(plan: &Plan, stage: &PipelineStage) -> Self {
        let (mesh, ops) = (&plan.config.mesh, stage.step.len().max(stage.evaluation.len()));
        // No op waits for more than all others along two axes.
        Self(Vec::with_capacity(ops * (mesh.zero + mesh.replica) + mesh.ranks()))
    }

    /// The device waits until a count of `rank` reaches `target`.
    pub fn push(&mut self, rank: usize, count: Count, target: u32) {
        self.0.push(AwaitedCount::new(rank, count, target));
    }
}

impl<D: Device> Shared<'_, D> {
    /// Waits until the device has done all that it was asked for.
    pub(super) fn await_queues(&mut self, device: &D) -> Result<(), Lost> {
        let (mut sleep_ns, mut slept_ns, mut periods, mut last) = (SLEEP_FIRST_NS, 0, 0, None);
        let is_apart = self.arena.plan().config.spans_hosts();
        let ended = loop {
            // Also where the device is idle: a rank that was given up may have been answered for, below.
            if let Some(lost) = self.own().lost() {
                break Err(lost);
            }
            // What has failed does no more of what it was asked for, idle or not: whoever waits learns why.
            if device.is_idle() || device.failure().is_some() {
                break Ok(());
            }
            let awaited = self.queued.0.iter().find(|awaited| self.control(awaited.rank).owes(**awaited)).copied();
            self.own().awaits(awaited);
            std::thread::sleep(Duration::from_nanos(sleep_ns));
            if std::mem::replace(&mut last, awaited) != awaited {
                (slept_ns, periods) = (0, 0);
            }
            // A device that computes for long is nobody's fault. Where it may wait for another host, nobody here can tell the two
            // from one another.
            slept_ns = if awaited.is_some() || is_apart { slept_ns + sleep_ns } else { 0 };
            sleep_ns = (sleep_ns + sleep_ns / SLEEP_GROWTH).min(SLEEP_MAX_NS);
            let rank = || awaited.map_or_else(|| self.far_rank(), |awaited| awaited.rank);
            let sleeps = u32::try_from(slept_ns / SLEEP_MAX_NS).unwrap_or(u32::MAX);
            if sleeps / SLEEPS_PER_NOTICE > periods {
                periods = sleeps / SLEEPS_PER_NOTICE;
                self.still_waits_for(rank(), periods);
            }
            if sleeps >= self.sleeps_max {
                break Err(self.gives_up(rank()));
            }
        };
        self.own().awaits(None);
        if ended.is_err() {
            self.end_queues(device);
        }
        self.queued.0.clear();
        ended
    }

    /// The rank that most likely keeps a device which waits for nothing that is known here: if none is in doubt, some rank of another
    /// host.
    fn far_rank(&self) -> usize {
        let far = || (0..self.arena.plan().config.mesh.ranks()).find(|&rank| !self.is_here(rank));
        self.doubtful_rank().or_else(far).expect("another host")
    }

    /// The device of this rank has failed. All ranks are told so, and then what its queues still wait for is answered: otherwise
    /// they would never end, and a caller that gives the device back would wait for them.
    pub(super) fn give_up_device(&mut self, device: &D) {
        for rank in 0..self.arena.plan().config.mesh.ranks() {
            self.control(rank).tell_lost(self.rank());
        }
        self.end_queues(device);
        self.queued.0.clear();
    }

    /// Ends all that the device was asked for. A queue of another rank may go on for a moment with what it was asked for before,
    /// and tell a count that is below the one it was answered for by: so that is done again, until this device is idle.
    fn end_queues(&self, device: &D) {
        self.answer_all();
        device.disconnect();
        for _ in 0..ANSWERS_MAX {
            if device.is_idle() {
                return;
            }
            std::thread::sleep(ANSWER_SLEEP);
            self.answer_all();
        }
    }

    /// Ends what the device still waits for, in place of ranks that never will. All ranks know by now that one is lost, so
    /// nobody takes for a result what comes of it.
    fn answer_all(&self) {
        for awaited in &self.queued.0 {
            let (control, (index, target)) = (self.control(awaited.rank), awaited.awaits());
            if control.owes(*awaited) {
                control.word_at(index).store(target, Ordering::SeqCst);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use zero_plan::config::DeviceKind;
    use zero_plan::{Config, Mesh, PlanBuf, TransportKind, Unit};

    use super::*;

    #[test]
    fn there_is_room_for_all_that_a_step_waits_for() {
        let unit = Unit { field: "only", params: 8, takes: 8, input_bytes: 16, output_bytes: 16, ..Unit::NONE };
        let mesh = Mesh { replica: 2, ..Mesh::of_zero(3) };
        let config =
            Config { mesh, device: DeviceKind::Cuda, transport: TransportKind::Peer, ..Config::PLAIN.at_stage(3) };
        PlanBuf::new("", config, &[unit, Unit { source: 1, ..unit }]).with(|plan| {
            let stage = &plan.pipeline_stages[0];
            assert!(QueuedWaits::of(plan, stage).0.capacity() >= stage.step.len() * 5 + 6);
        });
    }
}
