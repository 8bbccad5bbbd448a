//! Cores: how ranks that work share the cores of their nodes: equally, either all cores, or the one core to which each
//! rank keeps. Never knows the op of a rank.

use zero_plan::{Coordinates, Mesh, own_core};

/// Cores that some ranks share.
struct Pool {
    cores: f64,
    /// For each pipeline stage, how many of its ranks share these cores.
    ranks: Vec<usize>,
}

/// The first node of each pipeline stage, whose ranks have the same shares on all of their nodes.
pub(super) fn distinct_nodes(mesh: &Mesh) -> Vec<usize> {
    let first = |pipeline| mesh.node(mesh.rank(Coordinates { zero: 0, replica: 0, pipeline }));
    let mut nodes: Vec<usize> = (0..mesh.pipeline).map(first).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// The cores of all nodes. Ranks of a pipeline stage work at the same time.
pub struct SharedCores(Vec<Pool>);

impl SharedCores {
    /// The cores of nodes with this many cores each.
    pub fn new(mesh: &Mesh, cores: usize) -> Self {
        let ranks = mesh.ranks_per_node();
        let pools = distinct_nodes(mesh).into_iter().flat_map(|node| {
            let of_node = move |rank| mesh.coordinates(node * ranks + rank).pipeline;
            let pool = move |cores: usize, members: &mut dyn Iterator<Item = usize>| {
                let mut pool = Pool { cores: cores as f64, ranks: vec![0; mesh.pipeline] };
                members.for_each(|rank| pool.ranks[of_node(rank)] += 1);
                pool
            };
            match own_core(0, ranks, cores) {
                None => vec![pool(cores, &mut (0..ranks))],
                Some(_) => (0..cores)
                    .map(|core| pool(1, &mut (0..ranks).filter(|&rank| own_core(rank, ranks, cores) == Some(core))))
                    .collect(),
            }
        });
        Self(pools.collect())
    }

    /// The share that a rank of a pipeline stage gets of the cores that it wants; `wanted` returns the number of cores
    /// that a rank of any pipeline stage wants.
    pub fn share(&self, pipeline: usize, wanted: impl Fn(usize) -> f64) -> f64 {
        let own = self.0.iter().filter(|pool| pool.ranks[pipeline] > 0);
        let shares = own.map(|pool| {
            let all: f64 = pool.ranks.iter().enumerate().map(|(other, &ranks)| ranks as f64 * wanted(other)).sum();
            pool.cores / all
        });
        // The ranks of a pipeline stage wait for one another, so the slowest rank decides.
        shares.fold(1.0, f64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of a core for a rank of each of these pipeline stages, if only they work and each rank wants one core.
    fn shares(mesh: Mesh, working: &[usize]) -> Vec<f64> {
        let cores = SharedCores::new(&mesh, 2);
        let wanted = |pipeline| if working.contains(&pipeline) { 1.0 } else { 0.0 };
        working.iter().map(|&pipeline| cores.share(pipeline, wanted)).collect()
    }

    #[test]
    fn ranks_that_keep_to_a_core_share_it_alone() {
        let four = Mesh { pipeline: 4, ..Mesh::of_zero(1) };
        assert_eq!(shares(four, &[0, 1]), [1.0, 1.0]);
        assert_eq!(shares(four, &[0, 2]), [0.5, 0.5], "core 1 is idle");
        assert_eq!(shares(four, &[0, 1, 2]), [0.5, 1.0, 0.5]);
        // Both ranks of a pipeline stage wait for each other, each on its own core.
        let two = Mesh { pipeline: 2, ..Mesh::of_zero(2) };
        assert_eq!([shares(two, &[0]), shares(two, &[0, 1])], [vec![1.0], vec![0.5, 0.5]]);
        // Two of its three ranks share core 0.
        assert_eq!(shares(Mesh { pipeline: 2, ..Mesh::of_zero(3) }, &[0]), [0.5]);
    }

    #[test]
    fn ranks_that_move_share_all_cores_of_their_node() {
        let three = Mesh { pipeline: 3, ..Mesh::of_zero(1) };
        assert_eq!(shares(three, &[0, 2]), [1.0, 1.0]);
        assert_eq!(shares(three, &[0, 1, 2]), [2.0 / 3.0; 3]);
    }

    #[test]
    fn a_pipeline_stage_has_the_cores_of_its_own_node() {
        for (ranks, share) in [(2, 1.0), (4, 0.5)] {
            let nodes = Mesh { nodes: 2, pipeline: 2, ..Mesh::of_zero(ranks) };
            assert_eq!(shares(nodes, &[0, 1]), [share; 2]);
        }
    }
}
