//! Mesh: the section `mesh`, and the grid of ranks that it stands for. Never rejects a mesh: `check` does.

use serde::Serialize;

use crate::mesh::{self, Axis};

/// How many ranks lie along each axis, and how they lie on nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MeshKeys {
    /// Nodes as given; [`MeshKeys::nodes`] fills them in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// Ranks on each node as given; [`MeshKeys::ranks_per_node`] fills them in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks_per_node: Option<u32>,
    /// Copies of the sharded states, each with data of its own.
    pub replica: u32,
    /// Pipeline stages.
    pub pipeline: u32,
    /// Ranks that share one copy of the sharded states.
    pub zero: u32,
    /// Axes whose ranks must be on one node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub within_node: Vec<Axis>,
}

impl MeshKeys {
    /// Ranks along an axis.
    pub const fn len(&self, axis: Axis) -> u32 {
        match axis {
            Axis::Zero => self.zero,
            Axis::Replica => self.replica,
            Axis::Pipeline => self.pipeline,
        }
    }

    /// Number of ranks; saturates if the axes are out of range.
    pub fn ranks(&self) -> u64 {
        Axis::ALL.iter().fold(1, |ranks: u64, axis| ranks.saturating_mul(self.len(*axis).into()))
    }

    /// Number of nodes: as given, otherwise what `ranks_per_node` asks for, otherwise 1; 0 if the keys are out of range.
    pub fn nodes(&self) -> u64 {
        let asked_for = self.ranks_per_node.map(|per_node| self.ranks().checked_div(per_node.into()).unwrap_or(0));
        self.nodes.map(u64::from).or(asked_for).unwrap_or(1)
    }

    /// Ranks on each node: as given, otherwise the ranks divided by the nodes; 0 if the keys are out of range.
    pub fn ranks_per_node(&self) -> u64 {
        let divided = || self.ranks().checked_div(self.nodes()).unwrap_or(0);
        self.ranks_per_node.map_or_else(divided, u64::from)
    }

    /// The grid of ranks. Axes that must stay within a node come first in its order; otherwise it is [`Axis::ALL`].
    pub fn grid(&self) -> mesh::Mesh {
        let mut order = Axis::ALL;
        order.sort_by_key(|axis| !self.within_node.contains(axis));
        mesh::Mesh {
            nodes: self.nodes() as usize,
            zero: self.zero as usize,
            replica: self.replica as usize,
            pipeline: self.pipeline as usize,
            order,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_within_a_node_are_numbered_first() {
        let order =
            |within_node: &[Axis]| MeshKeys { within_node: within_node.to_vec(), ..MeshKeys::default() }.grid().order;
        assert_eq!(order(&[]), Axis::ALL);
        assert_eq!(order(&[Axis::Zero]), Axis::ALL);
        assert_eq!(order(&[Axis::Pipeline]), [Axis::Pipeline, Axis::Zero, Axis::Replica]);
        assert_eq!(order(&[Axis::Pipeline, Axis::Replica]), [Axis::Replica, Axis::Pipeline, Axis::Zero]);
    }

    #[test]
    fn nodes_follow_from_ranks_per_node() {
        let mesh = MeshKeys { replica: 2, pipeline: 2, zero: 4, ..MeshKeys::default() };
        assert_eq!((mesh.ranks(), mesh.nodes(), mesh.ranks_per_node()), (16, 1, 16));
        let four_each = MeshKeys { ranks_per_node: Some(4), ..mesh.clone() };
        assert_eq!((four_each.nodes(), four_each.grid().nodes, four_each.grid().ranks_per_node()), (4, 4, 4));
        let two_nodes = MeshKeys { nodes: Some(2), ..mesh };
        assert_eq!((two_nodes.ranks_per_node(), two_nodes.grid().nodes), (8, 2));
    }
}
