//! Profile: when each op of some steps began and ended, on every rank. The engine records it; `work` says what an op should
//! do, `machine` what this machine can do, `mean` what ranks did on average; `table` and `trace` show all of it. Never
//! changes what is computed.

mod machine;
mod mean;
mod table;
mod trace;
mod work;

use rustix::time::{ClockId, clock_gettime};

pub use machine::Machine;
pub use table::Tables;
pub use trace::Trace;
pub use work::Work;

use crate::engine::Engine;
use crate::model::Model;
use crate::plan::Plan;
use crate::transport::{Lost, Transport};

/// From when to when, in nanoseconds of a clock that all processes of a host share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Its start.
    pub start_ns: u64,
    /// Its end.
    pub end_ns: u64,
}

impl Span {
    /// Its duration.
    pub fn ns(self) -> u64 {
        self.end_ns - self.start_ns
    }
}

/// What one rank recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The number of its first step, counted from 0.
    pub first_step: u64,
    /// Whole steps.
    pub steps: Vec<Span>,
    /// The ops of each step, in the order of the plan's table.
    pub ops: Vec<Span>,
    ops_per_step: usize,
    steps_max: usize,
    step_start_ns: u64,
}

impl Profile {
    /// Room for the next `steps_max` steps of `ops_per_step` ops each: recording them allocates nothing.
    pub(crate) fn new(first_step: u64, ops_per_step: usize, steps_max: usize) -> Self {
        let (steps, ops) = (Vec::with_capacity(steps_max), Vec::with_capacity(steps_max * ops_per_step));
        // The first look at the clock may have to find it.
        Self { first_step, steps, ops, ops_per_step, steps_max, step_start_ns: now_ns() }
    }

    /// A step begins: whether it is to be recorded.
    pub(crate) fn begin_step(&mut self) -> bool {
        // A step that failed has no end.
        self.ops.truncate(self.steps.len() * self.ops_per_step);
        self.step_start_ns = now_ns();
        self.steps.len() < self.steps_max
    }

    /// The next op of the step has ended.
    pub(crate) fn end_op(&mut self, start_ns: u64) {
        self.ops.push(Span { start_ns, end_ns: now_ns() });
    }

    /// The step has ended.
    pub(crate) fn end_step(&mut self) {
        self.steps.push(Span { start_ns: self.step_start_ns, end_ns: now_ns() });
    }

    /// The ops of each step.
    pub fn ops_of_steps(&self) -> impl Iterator<Item = &[Span]> {
        self.ops.chunks_exact(self.ops_per_step)
    }

    /// What every rank recorded of the same steps, in the order of ranks, in nanoseconds since the first of them began.
    /// Every rank must call it with its own.
    ///
    /// # Errors
    /// [`Lost`] if another rank has ended.
    pub fn gather<'p, M: Model, T: Transport<'p>>(&self, engine: &mut Engine<'p, M, T>) -> Result<Vec<Self>, Lost> {
        let plan = engine.plan();
        let start_ns = self.steps.first().map_or(0, |step| step.start_ns);
        let starts = gather(engine, &[start_ns as f64])?;
        let origin_ns = starts.iter().fold(f64::INFINITY, |first, start| first.min(start[0])) as u64;
        // Ranks exchange equally many numbers, and all of these are small enough to be exact.
        let ops_max = plan.stages.iter().map(|stage| stage.step.len()).max().unwrap_or(0);
        let mut spans: Vec<Span> = [&self.steps[..], &self.ops].concat();
        spans.resize(self.steps.len() * (1 + ops_max), Span { start_ns: origin_ns, end_ns: origin_ns });
        let since = |ns: u64| ns.saturating_sub(origin_ns) as f64;
        let numbers: Vec<f64> = spans.iter().flat_map(|span| [since(span.start_ns), since(span.end_ns)]).collect();
        let of_rank = |(rank, numbers): (usize, Vec<f64>)| {
            let span = |pair: &[f64]| Span { start_ns: pair[0] as u64, end_ns: pair[1] as u64 };
            let mut steps: Vec<Span> = numbers.chunks_exact(2).map(span).collect();
            let mut ops = steps.split_off(self.steps.len());
            let ops_per_step = plan.of_rank(rank).step.len();
            ops.truncate(steps.len() * ops_per_step);
            Self { steps, ops, ops_per_step, ..*self }
        };
        Ok(gather(engine, &numbers)?.into_iter().enumerate().map(of_rank).collect())
    }
}

/// Nanoseconds of the monotonic clock: of the host, so that what ranks record lies on one axis.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Numbers of each rank, however many. Every rank must call it, with as many.
fn gather<'p, M: Model, T: Transport<'p>>(engine: &mut Engine<'p, M, T>, mine: &[f64]) -> Result<Vec<Vec<f64>>, Lost> {
    let plan = engine.plan();
    let mut all = vec![Vec::with_capacity(mine.len()); plan.config.mesh.ranks()];
    for part in mine.chunks(plan.agreed_values()) {
        let ranks = engine.gather_numbers(part)?.chunks_exact(part.len());
        all.iter_mut().zip(ranks).for_each(|(all, numbers)| all.extend(numbers));
    }
    Ok(all)
}

/// What all ranks recorded, beside the plan that they followed.
#[derive(Clone, Copy)]
pub struct Recorded<'a> {
    /// The plan.
    pub plan: &'a Plan<'a>,
    /// What each rank recorded.
    pub ranks: &'a [Profile],
    /// What this machine can do, as each rank measured it.
    pub machines: &'a [Machine],
}
