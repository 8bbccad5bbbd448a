//! Mean: the ops of each rank in a mean step of a record. Never prints.

use zero_plan::{Op, Plan};

use super::Work;
use zero_engine::Record;

/// The time and work of some ops of a step.
#[derive(Clone, Copy, Default)]
pub struct OpSum {
    pub ops: usize,
    pub ms: f64,
    pub work: Work,
}

impl OpSum {
    pub fn add(self, other: Self) -> Self {
        let work = Work {
            operations: self.work.operations + other.work.operations,
            bytes: self.work.bytes + other.work.bytes,
        };
        Self { ops: self.ops + other.ops, ms: self.ms + other.ms, work }
    }

    pub fn gflop_per_s(&self) -> f64 {
        self.work.operations as f64 / self.ms * 1e-6
    }

    pub fn gb_per_s(&self) -> f64 {
        self.work.bytes as f64 / self.ms * 1e-6
    }
}

/// The ops of a rank in a mean step, and their figures.
pub struct MeanRank<'a> {
    pub pipeline: usize,
    pub ops: &'a [Op],
    /// The figures of each op.
    sums: Vec<OpSum>,
    /// The time from the start of the first step to the end of the last one, divided by their number.
    pub step_ms: f64,
    /// The median time of a step, without the time between steps.
    pub median_ms: f64,
    /// Floating-point operations that a step needs. Recomputation does not count.
    pub needed_operations: usize,
}

impl<'a> MeanRank<'a> {
    pub fn new(plan: &'a Plan, rank: usize, record: &Record) -> Self {
        let (at, ops, steps) = (plan.config.mesh.coordinates(rank), plan.of_rank(rank).step, record.steps.len());
        let mut ns = vec![0; ops.len()];
        for spans in record.ops_of_steps() {
            ns.iter_mut().zip(spans).for_each(|(ns, span)| *ns += span.ns());
        }
        let ms = |ns: u64| ns as f64 * 1e-6;
        let sum = |(&op, ns): (&Op, u64)| OpSum { ops: 1, ms: ms(ns) / steps as f64, work: Work::of(plan, at, op) };
        let mut durations: Vec<u64> = record.steps.iter().map(|step| step.ns()).collect();
        durations.sort_unstable();
        let is_needed = |op: &&Op| matches!(op, Op::Forward { .. } | Op::Backward { .. });
        Self {
            pipeline: at.pipeline,
            sums: ops.iter().zip(ns).map(sum).collect(),
            step_ms: ms(record.steps[steps - 1].end_ns - record.steps[0].start_ns) / steps as f64,
            median_ms: ms(durations[(steps - 1) / 2] + durations[steps / 2]) / 2.0,
            needed_operations: ops.iter().filter(is_needed).map(|&op| Work::of(plan, at, op).operations).sum(),
            ops,
        }
    }

    pub fn sum(&self, chosen: impl Fn(Op) -> bool) -> OpSum {
        let sums = self.ops.iter().zip(&self.sums).filter(|(op, _)| chosen(**op));
        sums.fold(OpSum::default(), |sum, (_, one)| sum.add(*one))
    }
}

/// The figures of some ops, on all ranks of a pipeline stage.
pub fn of_pipeline_stage(ranks: &[MeanRank], pipeline: usize, chosen: impl Fn(Op) -> bool) -> OpSum {
    let ranks = ranks.iter().filter(|rank| rank.pipeline == pipeline);
    ranks.fold(OpSum::default(), |all, rank| all.add(rank.sum(&chosen)))
}

/// The mean of one or more numbers.
pub fn mean(numbers: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = numbers.len() as f64;
    numbers.sum::<f64>() / count
}
