//! Threads: the number of threads of each rank, its text, and the core that they keep to. Never starts one.

use std::fmt;
use std::num::NonZeroUsize;

use zero_plan::footprint::RunSize;
use zero_plan::{Plan, own_core};
use zero_ranks::processors;

/// How the cores of a host are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    hosts: usize,
    /// Ranks of each host.
    ranks: usize,
    /// Threads of each rank.
    pub per_rank: NonZeroUsize,
    cores: usize,
}

impl Threads {
    /// As many as `asked`, even if this process may not use so many cores. If nothing was asked, its cores are divided
    /// among the ranks of this host, but the threads must fit the budget. If a launcher has bound each rank to its own cores,
    /// a rank gets fewer threads than it could use.
    pub fn new(asked: Option<NonZeroUsize>, plan: &Plan) -> Self {
        // If the system does not say how many cores there are, each rank gets one thread.
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let (first, end) = plan.config.sharing(0);
        let hosts = plan.config.mesh.ranks() / (end - first);
        Self { hosts, ..Self::on(cores, asked, end - first, threads_max(plan)) }
    }

    /// On one host.
    fn on(cores: usize, asked: Option<NonZeroUsize>, ranks: usize, most: usize) -> Self {
        let per_rank = asked.or(NonZeroUsize::new((cores / ranks).min(most))).unwrap_or(NonZeroUsize::MIN);
        Self { hosts: 1, ranks, per_rank, cores }
    }
}

/// Keeps the calling thread, and threads that it starts, to the core of this rank, if [`own_core`] returns a core that it
/// may use.
pub fn keep_to_own_core(plan: &Plan, rank: usize) {
    let (first, end) = plan.config.sharing(rank);
    let Ok(cores) = processors::allowed() else { return };
    if let Some(own) = own_core(rank - first, end - first, cores.len()) {
        // If the core was taken away meanwhile, the system chooses one. Only speed depends on it.
        let _ = processors::keep_to(cores[own]);
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
        let cores = counted(self.cores, "core");
        match self.hosts {
            1 => write!(f, "{ranks} x {threads} on {cores}"),
            hosts => write!(f, "{hosts} hosts, each with {ranks} x {threads} on {cores}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use zero_plan::{Config, Mesh, PlanBuf, TransportKind, Unit};

    use super::*;

    #[test]
    fn ranks_share_the_cores_of_their_host_alone() {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let threads = |nodes, transport| {
            let mesh = Mesh { nodes, ..Mesh::of_zero(4) };
            let unit = Unit { params: 64, takes: 64, ..Unit::NONE };
            PlanBuf::new("", Config { mesh, transport, ..Config::PLAIN }, &[unit]).with(|plan| Threads::new(None, plan))
        };
        let (one, two) = (threads(2, TransportKind::Shm), threads(2, TransportKind::Cluster));
        let per_rank = |ranks: usize| (cores / ranks).max(1);
        assert_eq!([one, two].map(|it| it.per_rank.get()), [4, 2].map(per_rank));
        let text = Threads { per_rank: NonZeroUsize::MIN, cores: 2, ..two }.to_string();
        assert_eq!(text, "2 hosts, each with 2 ranks x 1 thread on 2 cores");
    }

    #[test]
    fn a_rank_keeps_to_its_core_if_all_cores_get_equally_many() {
        let all = processors::allowed().expect("processors");
        let kept_to = |ranks, rank| {
            let unit = Unit { params: 64, takes: 64, ..Unit::NONE };
            let config = Config { mesh: Mesh::of_zero(ranks), ..Config::PLAIN };
            let keep = || {
                PlanBuf::new("", config, &[unit]).with(|plan| keep_to_own_core(plan, rank));
                processors::allowed().expect("processors")
            };
            std::thread::scope(|scope| scope.spawn(keep).join().expect("no panic"))
        };
        let twice = 2 * all.len();
        for rank in 0..twice {
            assert_eq!(kept_to(twice, rank), [all[rank % all.len()]]);
        }
        for ranks in [all.len(), twice + 1] {
            assert_eq!(kept_to(ranks, 0), all, "{ranks}");
        }
    }

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
