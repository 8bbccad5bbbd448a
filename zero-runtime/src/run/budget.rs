//! Budget: how much memory the arguments of a run add to that of its plan, and whether the budget of the spec has room
//! for it. Never measures.

use super::arguments::RunArguments;
use super::threads::Threads;
use crate::error::Error;
use crate::profile::Machine;
use zero_plan::Plan;
use zero_plan::footprint::RunSize;

/// The size of a run with these arguments, on data that holds `data_bytes` in memory.
pub fn run_size(plan: &Plan, arguments: &RunArguments, data_bytes: usize) -> RunSize {
    let has_profile = arguments.profile.is_some();
    RunSize {
        threads: Threads::new(arguments.threads, plan).per_rank.get(),
        profiled_steps: if has_profile { arguments.profiled_steps() } else { 0 },
        data_bytes,
        measuring_bytes: if has_profile { Machine::bytes(plan.config.device) } else { 0 },
    }
}

/// Rejects a run that takes more than the spec allows. The build has only checked the smallest run.
///
/// # Errors
/// Z0333.
pub fn require_budget(plan: &Plan, size: &RunSize) -> Result<(), Error> {
    let Some(budget_bytes) = plan.config.memory_bytes else { return Ok(()) };
    let needed_bytes = plan.total_bytes_max(size);
    if needed_bytes <= budget_bytes {
        return Ok(());
    }
    let thread_bytes = plan.thread_bytes();
    let fixed_bytes = needed_bytes - size.threads * thread_bytes;
    let fewer = budget_bytes.saturating_sub(fixed_bytes).checked_div(thread_bytes).unwrap_or(0);
    let profile = if size.profiled_steps > 0 { ", leave --profile out" } else { "" };
    let data = if size.data_bytes > 0 { ", hold less data in memory" } else { "" };
    let threads = if fewer > 0 { format!("give --threads {fewer}, ") } else { String::new() };
    let help = format!("{threads}raise `memory` in the spec and build again{profile}{data}");
    Err(Error::OverBudget { threads: size.threads, needed_bytes, budget_bytes, help })
}
