//! Shared: how ranks that fetch and store states share what carries them. All ranks of a node share its disk: those that read
//! share the rate of reads equally, and those that write that of writes. Each device has a link to its host. Never knows what travels.

use zero_plan::{Mesh, TierKind};

use super::cores::distinct_nodes;
use crate::hardware::DirectRates;

/// The direction in which a piece travels between a tier and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From the tier.
    Fetch,
    /// To the tier.
    Store,
}

impl Direction {
    /// Both.
    pub const ALL: [Direction; 2] = [Direction::Fetch, Direction::Store];
}

/// For each node that differs from the others, how many ranks of each pipeline stage it has.
fn ranks_of_nodes(mesh: &Mesh) -> Vec<Vec<usize>> {
    let per_node = mesh.ranks_per_node();
    let of_node = |node: usize| {
        let mut ranks = vec![0; mesh.pipeline];
        (0..per_node).for_each(|rank| ranks[mesh.coordinates(node * per_node + rank).pipeline] += 1);
        ranks
    };
    distinct_nodes(mesh).into_iter().map(of_node).collect()
}

/// Bytes that the node that writes most writes to its disk in a step, if a rank of each pipeline stage writes this many.
pub(super) fn written_of_node(mesh: &Mesh, written: impl Fn(usize) -> usize) -> usize {
    let of_node = |ranks: Vec<usize>| ranks.iter().enumerate().map(|(stage, ranks)| ranks * written(stage)).sum();
    ranks_of_nodes(mesh).into_iter().map(of_node).max().unwrap_or(0)
}

/// The disks of all nodes, or the links of all devices. Ranks of a pipeline stage read and write at the same time.
pub(super) struct SharedTier {
    rates: DirectRates,
    /// For each disk or link, how many ranks of each pipeline stage use it.
    users: Vec<Vec<usize>>,
}

impl SharedTier {
    /// A tier with these rates, of a node's disk or of a device's link.
    pub fn new(mesh: &Mesh, tier: TierKind, rates: DirectRates) -> Self {
        let alone = |pipeline| (0..mesh.pipeline).map(|other| usize::from(other == pipeline)).collect();
        let users = match tier {
            TierKind::Disk => ranks_of_nodes(mesh),
            TierKind::Host | TierKind::Device => (0..mesh.pipeline).map(alone).collect(),
        };
        Self { rates, users }
    }

    /// Seconds that a read or a write takes in addition to its bytes.
    pub const fn latency_s(&self) -> f64 {
        self.rates.latency
    }

    /// Bytes a second of a rank of a pipeline stage in one direction, while the ranks of the pipeline stages for which
    /// `is_busy` holds move bytes in that direction.
    pub fn rate(&self, pipeline: usize, direction: Direction, is_busy: impl Fn(usize, Direction) -> bool) -> f64 {
        let own = self.users.iter().filter(|ranks| ranks[pipeline] > 0);
        let rates = own.map(|ranks| {
            let ranks_in = |direction| {
                let busy = ranks.iter().enumerate().filter(|&(other, _)| is_busy(other, direction));
                busy.map(|(_, ranks)| ranks).sum::<usize>()
            };
            let [reads, writes] = match [ranks_in(Direction::Fetch), ranks_in(Direction::Store)] {
                [_, 0] | [0, _] => [self.rates.read, self.rates.write],
                _ => self.rates.at_once(),
            };
            let rate = if direction == Direction::Fetch { reads } else { writes };
            rate / ranks_in(direction) as f64
        });
        // The ranks of a pipeline stage wait for one another, so the slowest rank decides.
        rates.fold(f64::INFINITY, f64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_share_the_disk_of_their_node_alone() {
        let rates = DirectRates { read: 8.0, write: 6.0, both: Some(10.0), latency: 0.0 };
        let mesh = |nodes| Mesh { nodes, pipeline: 2, ..Mesh::of_zero(2) };
        let rate = |nodes, direction, busy: &[(usize, Direction)]| {
            SharedTier::new(&mesh(nodes), TierKind::Disk, rates)
                .rate(0, direction, |pipeline, direction| busy.contains(&(pipeline, direction)))
        };
        let (fetch, store) = ((0, Direction::Fetch), (0, Direction::Store));
        // Two ranks of pipeline stage 0 read, or read and write.
        assert_eq!([1, 2].map(|nodes| rate(nodes, Direction::Fetch, &[fetch])), [4.0, 4.0]);
        assert_eq!(Direction::ALL.map(|direction| rate(1, direction, &[fetch, store])), [2.5, 2.5]);
        // The two ranks of pipeline stage 1 also do, on the same node or on their own.
        assert_eq!([1, 2].map(|nodes| rate(nodes, Direction::Fetch, &[fetch, (1, Direction::Fetch)])), [2.0, 4.0]);
        assert_eq!([1, 2].map(|nodes| rate(nodes, Direction::Fetch, &[fetch, (1, Direction::Store)])), [2.5, 4.0]);
    }
    #[test]
    fn a_device_has_its_link_alone() {
        let rates = DirectRates { read: 8.0, write: 6.0, both: Some(10.0), latency: 0.0 };
        let links = SharedTier::new(&Mesh { pipeline: 2, ..Mesh::of_zero(2) }, TierKind::Host, rates);
        let rate = |direction, busy: fn(usize, Direction) -> bool| links.rate(0, direction, busy);
        assert_eq!(rate(Direction::Fetch, |_, direction| direction == Direction::Fetch), 8.0);
        assert_eq!(Direction::ALL.map(|direction| rate(direction, |_, _| true)), [5.0, 5.0]);
        assert_eq!(rate(Direction::Store, |pipeline, _| pipeline == 0), 5.0);
    }
}
