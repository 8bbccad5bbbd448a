//! Queued: the waits in a device's queues while the host goes on, and how the host then waits for the device: it sees
//! which rank holds the device up, tells the others when one has gone, and gives up in time. Never looks at a clock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use zero_plan::{PipelineStage, Plan};

use super::Lost;
use super::control::{AwaitedCount, Count, PATIENCE_MS, SLEEPS_PER_NOTICE};
use super::shared::Shared;
use zero_core::device::Device;
use zero_core::time::{LongerSleeps, SLEEP_MAX};
use zero_core::watchdog::{Awaited, Watchdog};

/// How many sleeps a device may take to end work whose results nobody needs any more. After that, the work ends with
/// the process.
const ANSWERS_MAX: u32 = 5000;
const ANSWER_SLEEP: Duration = Duration::from_millis(1);

/// The waits that a device has been asked for since the host last saw it idle, in their order: the first that is still
/// owed holds up the device, or is the next to do so.
#[derive(Default)]
pub(super) struct QueuedWaits(Vec<AwaitedCount>);

impl QueuedWaits {
    /// With room for all waits of a pass over a schedule and of an exchange, so that no wait allocates.
    pub fn of(plan: &Plan, pipeline_stage: &PipelineStage) -> Self {
        let (mesh, ops) = (&plan.config.mesh, pipeline_stage.step.len().max(pipeline_stage.evaluation.len()));
        // No op waits for more than all others along two axes.
        Self(Vec::with_capacity(ops * (mesh.zero + mesh.replica) + mesh.ranks()))
    }

    /// Notes that the device waits until a count of `rank` reaches `target`.
    pub fn push(&mut self, rank: usize, count: Count, target: u32) {
        self.0.push(AwaitedCount::new(rank, count, target));
    }
}

impl<D: Device> Shared<'_, D> {
    /// Waits until the device has done all that it was asked for.
    pub(super) fn await_queues(&mut self, device: &D) -> Result<(), Lost> {
        let (mut sleeps, mut slept, mut periods, mut last) = (LongerSleeps::default(), Duration::ZERO, 0, None);
        let ended = loop {
            // Also if the device is idle: its waits for a rank that was given up may have been answered below.
            if let Some(lost) = self.lost() {
                break Err(lost);
            }
            // A device that has failed does nothing more, idle or not; the caller then learns why.
            if device.is_idle() || device.failure().is_some() {
                break Ok(());
            }
            let awaited = self.queued.0.iter().find(|awaited| self.control(awaited.rank).owes(**awaited)).copied();
            self.own().awaits(awaited);
            let by = sleeps.sleep();
            if std::mem::replace(&mut last, awaited) != awaited {
                (slept, periods) = (Duration::ZERO, 0);
            }
            // Time in which a device only computes does not count as a wait.
            slept = if awaited.is_some() || by == SLEEP_MAX && self.may_wait_unseen() { slept + by } else { slept };
            let rank = || awaited.map_or_else(|| self.suspect(), |awaited| awaited.rank);
            let passed = (slept.as_millis() / u128::from(PATIENCE_MS)) as u32;
            if passed / SLEEPS_PER_NOTICE > periods {
                periods = passed / SLEEPS_PER_NOTICE;
                self.watchdog.still_waits(Awaited::Rank(rank()), periods);
            }
            if passed >= self.watchdog.sleeps_max {
                break Err(self.watchdog.gives_up(Awaited::Rank(rank())));
            }
        };
        self.own().awaits(None);
        if ended.is_err() {
            self.end_queues(device);
        }
        self.queued.0.clear();
        ended
    }

    /// Whether a device that is owed no count may still wait for another rank. If bytes are carried, it may wait for a rank
    /// that has raised its counts and then does not take part. If that rank is on another host, this wait cannot be told
    /// from a long computation here.
    fn may_wait_unseen(&self) -> bool {
        let config = &self.arena.plan().config;
        self.carried.is_some() && (config.spans_hosts() || self.watchdog.doubtful_rank().is_some())
    }

    /// The rank that most likely holds up a device that waits for nothing known here: one in doubt or, if there is
    /// none, any other rank, of another host if there are several.
    pub(super) fn suspect(&self) -> usize {
        let others = (0..self.arena.plan().config.mesh.ranks()).filter(|&rank| rank != self.rank());
        self.watchdog
            .doubtful_rank()
            .or_else(|| others.min_by_key(|&rank| self.watchdog.is_here(rank)))
            .expect("another rank")
    }

    /// Tells all ranks that the device of this rank has failed, and then answers the waits in its queues. Otherwise they
    /// would never end, and a caller that releases the device would wait for them.
    pub(super) fn give_up_device(&mut self, device: &D) {
        for rank in 0..self.arena.plan().config.mesh.ranks() {
            self.control(rank).tell_lost(self.rank());
        }
        self.end_queues(device);
        self.queued.0.clear();
    }

    /// Ends the queues of a rank that has lost another one. Its device waits for counts that will never arrive, and a caller
    /// that releases the device would otherwise wait for them before it reports the loss.
    pub(super) fn leave_queues(&self, device: &D) {
        if D::QUEUES {
            self.end_queues(device);
        }
    }

    /// Ends all work of the device. A queue of another rank may go on for a moment, and write a count that is below the
    /// one that was answered in its place, so the answers are repeated until this device is idle.
    fn end_queues(&self, device: &D) {
        self.answer_all();
        if let Some(communicator) = device.communicator() {
            communicator.disconnect();
        }
        for _ in 0..ANSWERS_MAX {
            if device.is_idle() {
                return;
            }
            std::thread::sleep(ANSWER_SLEEP);
            self.answer_all();
        }
    }

    /// Sets the counts that the device still waits for, in place of ranks that never will. All ranks know by now that
    /// one is lost, so nobody uses the outcome as a result.
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
    use zero_plan::{Config, DeviceKind, Mesh, PlanBuf, TransportKind, Unit};

    use super::*;

    #[test]
    fn there_is_room_for_all_that_a_step_waits_for() {
        let unit = Unit { field: "only", params: 8, takes: 8, input_bytes: 16, output_bytes: 16, ..Unit::NONE };
        let mesh = Mesh { replica: 2, ..Mesh::of_zero(3) };
        let config =
            Config { mesh, device: DeviceKind::Cuda, transport: TransportKind::Peer, ..Config::PLAIN.at_stage(3) };
        PlanBuf::new("", config, &[unit, Unit { source: 1, ..unit }]).with(|plan| {
            let pipeline_stage = &plan.pipeline_stages[0];
            assert!(QueuedWaits::of(plan, pipeline_stage).0.capacity() >= pipeline_stage.step.len() * 5 + 6);
        });
    }
}
