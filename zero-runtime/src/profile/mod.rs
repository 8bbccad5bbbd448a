//! Profile: how ranks spent their time. The engine records when each op of some steps began and ended. [`Work`] counts
//! what an op does, `machine` measures what ranks can do at best, and `mean` averages over ranks and steps; `table` and
//! `trace` show the results. Never changes what is computed.

mod clocks;
mod machine;
mod mean;
mod table;
mod trace;

pub use clocks::HostClock;
pub use machine::Machine;
pub use table::ProfileTables;
pub use trace::Trace;
pub use zero_plan::Work;

use zero_core::device::Device;
use zero_core::lost::Lost;
use zero_core::transport::{ClockLook, Transport};
use zero_engine::{Engine, Record, Span};
use zero_plan::Plan;

/// The clock of each host relative to that of rank 0's, if there are several. Every rank must call it, with the look at
/// its own clock before the first step.
///
/// # Errors
/// [`Lost`] if another rank has ended.
pub fn gather_clocks<'p, D: Device, T: Transport<'p, D>>(
    engine: &mut Engine<'p, D, T>,
    first: Option<ClockLook>,
) -> Result<Vec<HostClock>, Lost> {
    let config = &engine.plan().config;
    if !config.spans_hosts() {
        return Ok(Vec::new());
    }
    let ranks_per_host = config.mesh.ranks_per_node();
    let last = engine.compare_clocks()?;
    let own = HostClock { first: first.unwrap_or_default(), last: last.unwrap_or_default() };
    let ranks = gather(engine, &own.numbers())?;
    Ok(ranks.iter().step_by(ranks_per_host).map(|numbers| HostClock::of(numbers)).collect())
}

/// The records of all ranks for the same steps, in the order of ranks. Times are nanoseconds since the first rank
/// began, by the clock of rank 0's host. Every rank must call it with its own record, and the clocks of all hosts.
///
/// # Errors
/// [`Lost`] if another rank has ended.
pub fn gather_records<'p, D: Device, T: Transport<'p, D>>(
    engine: &mut Engine<'p, D, T>,
    own: &Record,
    clocks: &[HostClock],
) -> Result<Vec<Record>, Lost> {
    let plan = engine.plan();
    let clock = clocks.get(plan.config.mesh.node(engine.arena().rank())).copied().unwrap_or_default();
    let shared = |ns: u64| clock.shifted_ns(ns);
    let start_ns = own.steps.first().map_or(0, |step| shared(step.start_ns));
    let starts = gather(engine, &[start_ns as f64])?;
    let origin_ns = starts.iter().fold(f64::INFINITY, |first, start| first.min(start[0])) as u64;
    // Ranks must exchange equally many numbers. All of these are small enough to be exact as f64.
    let ops_max = plan.pipeline_stages.iter().map(|pipeline_stage| pipeline_stage.step.len()).max().unwrap_or(0);
    let mut spans: Vec<Span> = [&own.steps[..], &own.ops].concat();
    for span in &mut spans {
        *span = Span { start_ns: shared(span.start_ns), end_ns: shared(span.end_ns), ..*span };
    }
    spans.resize(own.steps.len() * (1 + ops_max), Span { start_ns: origin_ns, end_ns: origin_ns, core_ns: 0 });
    let since = |ns: u64| ns.saturating_sub(origin_ns) as f64;
    let numbers = spans.iter().flat_map(|span| [since(span.start_ns), since(span.end_ns), span.core_ns as f64]);
    let numbers: Vec<f64> = numbers.collect();
    let of_rank = |(rank, numbers): (usize, Vec<f64>)| {
        let span = |&[start_ns, end_ns, core_ns]: &[f64; 3]| Span {
            start_ns: start_ns as u64,
            end_ns: end_ns as u64,
            core_ns: core_ns as u64,
        };
        let mut steps: Vec<Span> = numbers.as_chunks().0.iter().map(span).collect();
        let mut ops = steps.split_off(own.steps.len());
        let ops_per_step = plan.of_rank(rank).step.len();
        ops.truncate(steps.len() * ops_per_step);
        own.of_peer(steps, ops, ops_per_step)
    };
    Ok(gather(engine, &numbers)?.into_iter().enumerate().map(of_rank).collect())
}

/// Gathers any number of values from each rank. Every rank must pass equally many.
pub(crate) fn gather<'p, D: Device, T: Transport<'p, D>>(
    engine: &mut Engine<'p, D, T>,
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

/// The records of all ranks, and the plan that they followed.
#[derive(Clone, Copy)]
pub struct RecordedRun<'a> {
    /// The plan.
    pub plan: &'a Plan<'a>,
    /// The record of each rank.
    pub ranks: &'a [Record],
    /// The speeds of this machine, as each rank measured them.
    pub machines: &'a [Machine],
    /// The clock of each host relative to that of rank 0's, if there are several.
    pub clocks: &'a [HostClock],
}
