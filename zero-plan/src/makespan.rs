//! Makespan: how long a pass takes, if each op takes a given time and waits as the proven order demands. Times have the
//! unit of the given costs. Never measures, and knows no machine.

use crate::execution::execute;
use crate::groups::Groups;
use crate::pipeline::Pass;
use crate::plan::Plan;
use crate::prove::{Flaw, deadlock};
use crate::schedule::Op;

/// The times of a simulation, in the unit of its costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From the start to the end of the last op of any rank.
    pub makespan: u64,
    /// The sum of the times of each rank's ops, without waiting.
    pub busy: Vec<u64>,
    /// When each op of each rank ends, in the order of its schedule.
    pub ends: Vec<Vec<u64>>,
}

impl Timing {
    /// How long a rank is idle. If only computation has a cost, this is its pipeline bubble.
    pub fn bubble(&self, rank: usize) -> u64 {
        self.makespan - self.busy[rank]
    }
}

/// Runs a pass on all ranks with a cost for each op. The makespan is the length of the longest chain of ops that wait
/// for one another.
///
/// ```
/// use zero_plan::{Config, Mesh, Op, Order, Pass, PlanBuf, Unit, makespan};
///
/// let mesh = Mesh { pipeline: 2, ..Mesh::of_zero(1) };
/// let config = Config { mesh, order: Order::GPipe, micro_batches: 3, ..Config::PLAIN };
/// let units = [Unit::NONE, Unit { source: 1, ..Unit::NONE }];
/// let cost = |op: &Op| match op {
///     Op::Forward { .. } => 1,
///     Op::Backward { .. } => 2,
///     _ => 0,
/// };
/// let timing = PlanBuf::new("Two", config, &units).with(|plan| makespan(plan, Pass::Train, &cost)).unwrap();
/// // Three micro-batches forward and back, and the time of one more while the pipeline fills and drains.
/// assert_eq!((timing.makespan, timing.bubble(0)), (12, 3));
/// ```
///
/// # Errors
/// If the ranks wait for one another and none can continue.
pub fn makespan(plan: &Plan, pass: Pass, cost: &dyn Fn(&Op) -> u64) -> Result<Timing, Flaw> {
    let ranks = 0..plan.config.mesh.ranks();
    let ops: Vec<&[Op]> = ranks.map(|rank| plan.of_rank(rank).ops(pass)).collect();
    let finish = execute(plan, &Groups::of(plan), &ops, &mut |_, op| cost(&op))
        .map_err(|stuck| deadlock(plan, pass, &ops, &stuck))?;
    let makespan = finish.ends.iter().flatten().copied().max().unwrap_or(0);
    Ok(Timing { makespan, busy: finish.busy, ends: finish.ends })
}
