//! Threads: how many each rank has, and how a run says so. Never starts one.

use std::fmt;
use std::num::NonZeroUsize;

use crate::plan::Plan;
use crate::plan::footprint::RunSize;

/// How the processor is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    ranks: usize,
    /// Threads of each rank.
    pub per_rank: NonZeroUsize,
    cores: usize,
}

impl Threads {
    /// As many as `asked`, even if this process may not use so many cores. Without that, its cores are divided among
    /// all ranks of the plan, as if all ran on this host, but no more are taken than the budget has room for. If a
    /// launcher has bound each rank to cores of its own, this is fewer than the rank could use.
    pub fn new(asked: Option<NonZeroUsize>, plan: &Plan) -> Self {
        // If the system does not say how many cores there are, each rank gets one thread.
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::on(cores, asked, plan.config.mesh.ranks(), threads_max(plan))
    }

    fn on(cores: usize, asked: Option<NonZeroUsize>, ranks: usize, most: usize) -> Self {
        let per_rank = asked.or(NonZeroUsize::new((cores / ranks).min(most))).unwrap_or(NonZeroUsize::MIN);
        Self { ranks, per_rank, cores }
    }
}

/// As many threads as the budget of the spec has room for.
fn threads_max(plan: &Plan) -> usize {
    let least = plan.total_bytes_max(&RunSize::LEAST);
    let room = plan.config.memory_bytes.map(|budget| budget.saturating_sub(least));
    room.and_then(|room| room.checked_div(plan.thread_bytes())).map_or(usize::MAX, |more| 1 + more)
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let (ranks, threads) = (counted(self.ranks, "rank"), counted(self.per_rank.get(), "thread"));
        write!(f, "{ranks} x {threads} on {}", counted(self.cores, "core"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_times_threads_exceed_the_cores_only_by_ranks_or_on_request() {
        for cores in 1..20 {
            for ranks in 1..20 {
                let threads = Threads::on(cores, None, ranks, usize::MAX).per_rank.get();
                assert!(threads == 1 || ranks * threads <= cores, "{ranks} ranks x {threads} threads on {cores} cores");
                assert!(
                    ranks * (threads + 1) > cores,
                    "{ranks} ranks x {threads} threads leave some of {cores} cores idle"
                );
            }
        }
        let asked = Threads::on(2, NonZeroUsize::new(3), 4, 1);
        assert_eq!((asked.per_rank.get(), asked.to_string().as_str()), (3, "4 ranks x 3 threads on 2 cores"));
        assert_eq!(Threads::on(1, None, 1, 1).to_string(), "1 rank x 1 thread on 1 core");
        assert_eq!(Threads::on(64, None, 2, 5).per_rank.get(), 5, "as many as fit");
    }
}
