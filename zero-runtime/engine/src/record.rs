//! Record: notes when each op of some steps of a rank began and ended, and how long it kept cores busy. Never allocates
//! in a step, and never reads a clock in an op that is not recorded.

use zero_core::time::{core_ns, now_ns};

/// A span of time, in nanoseconds of a clock that all processes of a host share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Its start.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
    /// For an op in every second step: how long cores worked for the rank's process, all threads together, since the
    /// end of the previous op; otherwise 0. Reading that clock takes as long as a short op, so the times between ops
    /// come from the other steps.
    pub core_ns: u64,
}

impl Span {
    /// Its duration.
    pub fn ns(self) -> u64 {
        self.end_ns - self.start_ns
    }
}

/// The record of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The number of its first step, counted from 0.
    pub first_step: u64,
    /// Whole steps.
    pub steps: Vec<Span>,
    /// The ops of each step, in the order of the plan's table.
    pub ops: Vec<Span>,
    ops_per_step: usize,
    steps_max: usize,
    step_start_ns: u64,
    /// The last reading of how long cores have worked for this process; `None` in a step without readings.
    core_ns: Option<u64>,
}

impl Record {
    /// Room for the next `steps_max` steps of `ops_per_step` ops each: recording them allocates nothing.
    pub fn new(first_step: u64, ops_per_step: usize, steps_max: usize) -> Self {
        let (steps, ops) = (Vec::with_capacity(steps_max), Vec::with_capacity(steps_max * ops_per_step));
        // The first reading of the clock may take longer, so it is not done in a step.
        Self { first_step, steps, ops, ops_per_step, steps_max, step_start_ns: now_ns(), core_ns: None }
    }

    /// The record of another rank for the same steps, each of which has `ops_per_step` ops there.
    pub fn of_peer(&self, steps: Vec<Span>, ops: Vec<Span>, ops_per_step: usize) -> Self {
        Self { steps, ops, ops_per_step, ..*self }
    }

    /// Begins a step; returns whether it is to be recorded.
    pub fn begin_step(&mut self) -> bool {
        // A failed step has no end.
        self.ops.truncate(self.steps.len() * self.ops_per_step);
        self.step_start_ns = now_ns();
        self.core_ns = (self.steps.len() % 2 == 1).then(core_ns);
        self.steps.len() < self.steps_max
    }

    /// Records that the next op of the step has ended.
    pub fn end_op(&mut self, start_ns: u64) {
        let end_ns = now_ns();
        let busy_ns = self.core_ns.as_mut().map_or(0, |last| {
            let before = std::mem::replace(last, core_ns());
            *last - before
        });
        self.ops.push(Span { start_ns, end_ns, core_ns: busy_ns });
    }

    /// Records that the step has ended.
    pub fn end_step(&mut self) {
        self.steps.push(Span { start_ns: self.step_start_ns, end_ns: now_ns(), core_ns: 0 });
    }

    /// The ops of each step.
    pub fn ops_of_steps(&self) -> impl Iterator<Item = &[Span]> {
        self.ops.chunks_exact(self.ops_per_step)
    }
}
