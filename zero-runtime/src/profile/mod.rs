//! Profile: what ranks did with their time. The engine records when each op of some steps began and ended. [`Work`]
//! counts what an op does, `machine` measures what this machine can do, and `mean` averages over ranks and steps;
//! `table` and `trace` show the results. Never changes what is computed.

mod machine;
mod mean;
mod table;
mod trace;

pub use machine::{Cores, Machine};
pub use table::Tables;
pub use trace::Trace;
pub use zero_plan::Work;

use crate::engine::{Engine, Record, Span, now_ns};
use crate::model::{DeviceOf, Model};
use crate::plan::Plan;
use crate::transport::{Lost, Transport};

/// What every rank recorded of the same steps, in the order of ranks. Times are nanoseconds since the first rank began.
/// Every rank must call it with its own record.
///
/// # Errors
/// [`Lost`] if another rank has ended.
pub fn gather_records<'p, M: Model, T: Transport<'p, DeviceOf<M>>>(
    engine: &mut Engine<'p, M, T>,
    own: &Record,
) -> Result<Vec<Record>, Lost> {
    let plan = engine.plan();
    let start_ns = own.steps.first().map_or(0, |step| step.start_ns);
    let starts = gather(engine, &[start_ns as f64])?;
    let origin_ns = starts.iter().fold(f64::INFINITY, |first, start| first.min(start[0])) as u64;
    // Ranks must exchange equally many numbers. All of these are small enough to be exact as f64.
    let ops_max = plan.stages.iter().map(|stage| stage.step.len()).max().unwrap_or(0);
    let mut spans: Vec<Span> = [&own.steps[..], &own.ops].concat();
    spans.resize(own.steps.len() * (1 + ops_max), Span { start_ns: origin_ns, end_ns: origin_ns });
    let since = |ns: u64| ns.saturating_sub(origin_ns) as f64;
    let numbers: Vec<f64> = spans.iter().flat_map(|span| [since(span.start_ns), since(span.end_ns)]).collect();
    let of_rank = |(rank, numbers): (usize, Vec<f64>)| {
        let span = |pair: &[f64]| Span { start_ns: pair[0] as u64, end_ns: pair[1] as u64 };
        let mut steps: Vec<Span> = numbers.chunks_exact(2).map(span).collect();
        let mut ops = steps.split_off(own.steps.len());
        let ops_per_step = plan.of_rank(rank).step.len();
        ops.truncate(steps.len() * ops_per_step);
        own.of_peer(steps, ops, ops_per_step)
    };
    Ok(gather(engine, &numbers)?.into_iter().enumerate().map(of_rank).collect())
}

/// Gathers numbers of each rank, however many. Every rank must call it with equally many.
pub(crate) fn gather<'p, M: Model, T: Transport<'p, DeviceOf<M>>>(
    engine: &mut Engine<'p, M, T>,
    mine: &[f64],
) -> Result<Vec<Vec<f64>>, Lost> {
    let plan = engine.plan();
    let mut all = vec![Vec::with_capacity(mine.len()); plan.config.mesh.ranks()];
    for part in mine.chunks(plan.agreed_values()) {
        let ranks = engine.gather_numbers(part)?.chunks_exact(part.len());
        all.iter_mut().zip(ranks).for_each(|(all, numbers)| all.extend(numbers));
    }
    Ok(all)
}

/// What all ranks recorded, and the plan that they followed.
#[derive(Clone, Copy)]
pub struct Recorded<'a> {
    /// The plan.
    pub plan: &'a Plan<'a>,
    /// What each rank recorded.
    pub ranks: &'a [Record],
    /// What this machine can do, as each rank measured it.
    pub machines: &'a [Machine],
}
