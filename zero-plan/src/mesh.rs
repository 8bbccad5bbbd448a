//! Mesh: the ranks as a grid of axes, their places in it, and the axes that cross nodes. Never rejects a mesh.

use serde::{Deserialize, Serialize};

/// A direction of the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Axis {
    /// Ranks that share one copy of the sharded states.
    Zero,
    /// Copies of these states, each with its own data.
    Replica,
    /// Parts of the model, one after another.
    Pipeline,
}

impl Axis {
    /// All axes, in the default order of rank numbers, which are consecutive along the first axis.
    pub const ALL: [Axis; 3] = [Axis::Zero, Axis::Replica, Axis::Pipeline];

    /// Its name in specs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Axis::Zero => "zero",
            Axis::Replica => "replica",
            Axis::Pipeline => "pipeline",
        }
    }
}

/// Where a rank lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Coordinates {
    /// Its shard.
    pub zero: usize,
    /// Its replica.
    pub replica: usize,
    /// Its pipeline stage.
    pub pipeline: usize,
}

/// The ranks of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Mesh {
    /// Nodes. All have the same number of ranks, and the ranks of a node have consecutive numbers.
    pub nodes: usize,
    /// Ranks along `zero`.
    pub zero: usize,
    /// Ranks along `replica`.
    pub replica: usize,
    /// Ranks along `pipeline`.
    pub pipeline: usize,
    /// Each axis once. Rank numbers are consecutive along the first axis, and farthest apart along the last.
    pub order: [Axis; 3],
}

impl Mesh {
    /// A mesh of one axis, `zero`, on one node.
    pub const fn of_zero(ranks: usize) -> Self {
        Self { nodes: 1, zero: ranks, replica: 1, pipeline: 1, order: Axis::ALL }
    }

    /// Number of ranks.
    pub const fn ranks(&self) -> usize {
        self.zero * self.replica * self.pipeline
    }

    /// Ranks of one node.
    pub const fn ranks_per_node(&self) -> usize {
        self.ranks() / self.nodes
    }

    /// Ranks with their own data: those along `zero` and `replica` together.
    pub const fn data_ranks(&self) -> usize {
        self.zero * self.replica
    }

    /// Ranks along an axis.
    pub const fn len(&self, axis: Axis) -> usize {
        match axis {
            Axis::Zero => self.zero,
            Axis::Replica => self.replica,
            Axis::Pipeline => self.pipeline,
        }
    }

    /// Parts of a flat buffer, of which each rank sums one along an axis. Along `replica` these are parts of shards.
    pub const fn summed_parts(&self, axis: Axis) -> usize {
        match axis {
            Axis::Zero => self.zero,
            Axis::Replica | Axis::Pipeline => self.data_ranks(),
        }
    }

    /// How far apart the numbers of neighbours along an axis are.
    const fn stride(&self, axis: Axis) -> usize {
        let (mut stride, mut i) = (1, 0);
        while self.order[i] as usize != axis as usize {
            stride *= self.len(self.order[i]);
            i += 1;
        }
        stride
    }

    const fn coordinate(&self, rank: usize, axis: Axis) -> usize {
        rank / self.stride(axis) % self.len(axis)
    }

    /// Where `rank` lies.
    pub const fn coordinates(&self, rank: usize) -> Coordinates {
        Coordinates {
            zero: self.coordinate(rank, Axis::Zero),
            replica: self.coordinate(rank, Axis::Replica),
            pipeline: self.coordinate(rank, Axis::Pipeline),
        }
    }

    /// The rank at these coordinates.
    pub const fn rank(&self, at: Coordinates) -> usize {
        at.zero * self.stride(Axis::Zero)
            + at.replica * self.stride(Axis::Replica)
            + at.pipeline * self.stride(Axis::Pipeline)
    }

    /// The node that a rank is on.
    pub const fn node(&self, rank: usize) -> usize {
        rank / self.ranks_per_node()
    }

    /// Ranks of a node that differ in this axis alone, if this number is the same everywhere and they follow one
    /// another along the axis.
    pub const fn per_node(&self, axis: Axis) -> Option<usize> {
        let (stride, len, each) = (self.stride(axis), self.len(axis), self.ranks_per_node());
        if each % (stride * len) == 0 {
            Some(len)
        } else if each % stride == 0 && len % (each / stride) == 0 {
            Some(each / stride)
        } else if stride % each == 0 {
            Some(1)
        } else {
            None
        }
    }

    /// Whether ranks that differ in this axis alone may be on different nodes.
    pub const fn crosses_nodes(&self, axis: Axis) -> bool {
        let len = self.len(axis);
        // Ranks that differ only in this axis and in faster ones have consecutive numbers. If a node begins among them,
        // it separates two that differ in this axis alone.
        len > 1 && !self.ranks_per_node().is_multiple_of(self.stride(axis) * len)
    }
}

impl Coordinates {
    /// Its place along an axis.
    pub const fn along(&self, axis: Axis) -> usize {
        match axis {
            Axis::Zero => self.zero,
            Axis::Replica => self.replica,
            Axis::Pipeline => self.pipeline,
        }
    }

    /// The coordinates of the rank at another place along an axis.
    pub const fn with(self, axis: Axis, index: usize) -> Self {
        match axis {
            Axis::Zero => Self { zero: index, ..self },
            Axis::Replica => Self { replica: index, ..self },
            Axis::Pipeline => Self { pipeline: index, ..self },
        }
    }

    /// Its number among the ranks with their own data, counted replica by replica.
    pub const fn data_rank(&self, mesh: &Mesh) -> usize {
        self.replica * mesh.zero + self.zero
    }

    /// The one of [`Mesh::summed_parts`] that this rank sums.
    pub const fn summed_part(&self, mesh: &Mesh, axis: Axis) -> usize {
        match axis {
            Axis::Zero => self.zero,
            Axis::Replica | Axis::Pipeline => self.part(mesh),
        }
    }

    /// The part of every flat buffer whose gradients this rank sums: its shard is divided once more among the replicas.
    pub const fn part(&self, mesh: &Mesh) -> usize {
        self.zero * mesh.replica + self.replica
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two nodes of four ranks, as in `specs/hybrid.ron`.
    const HYBRID: Mesh = Mesh { nodes: 2, zero: 4, replica: 1, pipeline: 2, order: Axis::ALL };

    #[test]
    fn zero_lies_inside_a_node_and_the_pipeline_across() {
        assert_eq!(HYBRID.coordinates(6), Coordinates { zero: 2, replica: 0, pipeline: 1 });
        assert_eq!(Axis::ALL.map(|axis| HYBRID.crosses_nodes(axis)), [false, false, true]);
        let pipeline_inside = Mesh { order: [Axis::Pipeline, Axis::Zero, Axis::Replica], ..HYBRID };
        assert_eq!(pipeline_inside.coordinates(6), Coordinates { zero: 3, replica: 0, pipeline: 0 });
        assert_eq!(Axis::ALL.map(|axis| pipeline_inside.crosses_nodes(axis)), [true, false, false]);
    }

    #[test]
    fn ranks_of_a_node_along_an_axis_are_counted() {
        let counted = |mesh: Mesh| Axis::ALL.map(|axis| mesh.per_node(axis));
        assert_eq!(counted(HYBRID), [Some(4), Some(1), Some(1)]);
        assert_eq!(counted(Mesh { nodes: 2, ..Mesh::of_zero(6) }), [Some(3), Some(1), Some(1)]);
        assert_eq!(counted(Mesh { nodes: 4, pipeline: 1, ..HYBRID }), [Some(1); 3]);
        // Nodes of two ranks that cut groups of three in different places.
        assert_eq!(counted(Mesh { nodes: 3, replica: 2, ..Mesh::of_zero(3) })[0], None);
        for nodes in [1, 2, 3, 4, 6, 12] {
            for order in
                [Axis::ALL, [Axis::Pipeline, Axis::Replica, Axis::Zero], [Axis::Replica, Axis::Zero, Axis::Pipeline]]
            {
                let mesh = Mesh { nodes, zero: 2, replica: 3, pipeline: 2, order };
                for axis in Axis::ALL {
                    let is_apart = |rank: usize| {
                        let first = rank - mesh.coordinate(rank, axis) * mesh.stride(axis);
                        mesh.node(first) != mesh.node(rank)
                    };
                    assert_eq!(mesh.crosses_nodes(axis), (0..mesh.ranks()).any(is_apart), "{mesh:?} {axis:?}");
                    let Some(each) = mesh.per_node(axis) else { continue };
                    for rank in 0..mesh.ranks() {
                        let with = |index: usize| {
                            rank + index * mesh.stride(axis) - mesh.coordinate(rank, axis) * mesh.stride(axis)
                        };
                        let near: Vec<usize> =
                            (0..mesh.len(axis)).filter(|&index| mesh.node(with(index)) == mesh.node(rank)).collect();
                        let first = mesh.coordinate(rank, axis) / each * each;
                        assert_eq!(near, Vec::from_iter(first..first + each), "{mesh:?} {axis:?} {rank}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_node_has_some_of_the_ranks_of_one_axis_at_most() {
        let orders = Axis::ALL.map(|first| Axis::ALL.map(|last| (first, last))).concat();
        let mut cut = 0;
        for (first, last) in orders.into_iter().filter(|(first, last)| first != last) {
            let middle = Axis::ALL.into_iter().find(|axis| ![first, last].contains(axis)).expect("a third axis");
            for (zero, replica, pipeline, nodes) in (0..6 * 6 * 6 * 24).map(|i| (i % 6, i / 6 % 6, i / 36 % 6, i / 216))
            {
                let order = [first, middle, last];
                let mesh =
                    Mesh { nodes: nodes + 1, zero: zero + 1, replica: replica + 1, pipeline: pipeline + 1, order };
                if mesh.ranks().is_multiple_of(mesh.nodes) {
                    let is_cut =
                        |axis: &Axis| mesh.per_node(*axis).is_some_and(|each| each > 1 && each < mesh.len(*axis));
                    let axes = Axis::ALL.into_iter().filter(is_cut).count();
                    assert!(axes <= 1, "{mesh:?}");
                    cut += axes;
                }
            }
        }
        assert!(cut > 100, "{cut}");
    }

    #[test]
    fn every_rank_lies_at_one_place() {
        let order = [Axis::Replica, Axis::Pipeline, Axis::Zero];
        for mesh in [HYBRID, Mesh { nodes: 3, zero: 2, replica: 3, pipeline: 4, order }] {
            let mut places: Vec<_> = (0..mesh.ranks()).map(|rank| mesh.coordinates(rank)).collect();
            assert!(places.iter().enumerate().all(|(rank, at)| mesh.rank(*at) == rank));
            places.sort_by_key(|at| (at.pipeline, at.data_rank(&mesh)));
            assert!(
                places.iter().enumerate().all(|(i, at)| i == at.pipeline * mesh.data_ranks() + at.data_rank(&mesh))
            );
        }
    }
}
