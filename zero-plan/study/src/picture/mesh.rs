//! Mesh: the place of each rank, and the part of each state that it stores. Never knows the ops of ranks.

use serde::Serialize;
use zero_plan::{Axis, Config};

/// The ranks of a job.
#[derive(Clone, Debug, Serialize)]
pub struct MeshPicture {
    /// Nodes.
    pub nodes: usize,
    /// Ranks of each node.
    pub ranks_per_node: usize,
    /// All axes. Along the first axes, ranks are nearest.
    pub axes: Vec<AxisPicture>,
    /// For each rank its coordinates, in the order of `axes`.
    pub ranks: Vec<[usize; 3]>,
    /// How the states are sharded.
    pub states: [StatePicture; 3],
}

/// An axis.
#[derive(Clone, Debug, Serialize)]
pub struct AxisPicture {
    /// Its name.
    pub name: &'static str,
    /// Ranks along it.
    pub ranks: usize,
    /// Whether it crosses nodes.
    pub crosses_nodes: bool,
}

/// A state of the parameters of a pipeline stage.
#[derive(Clone, Debug, Serialize)]
pub struct StatePicture {
    /// Its name.
    pub name: &'static str,
    /// Ranks along `zero` that share one copy of the state; 1 if each rank has a whole copy.
    pub shards: usize,
}

impl MeshPicture {
    pub(super) fn of(config: &Config) -> Self {
        let mesh = &config.mesh;
        let axis = |axis: Axis| AxisPicture {
            name: axis.name(),
            ranks: mesh.len(axis),
            crosses_nodes: mesh.crosses_nodes(axis),
        };
        let coordinates = |rank| mesh.order.map(|axis| mesh.coordinates(rank).along(axis));
        let state = |name, is_sharded| StatePicture { name, shards: if is_sharded { mesh.zero } else { 1 } };
        Self {
            nodes: mesh.nodes,
            ranks_per_node: mesh.ranks_per_node(),
            axes: mesh.order.map(axis).into(),
            ranks: (0..mesh.ranks()).map(coordinates).collect(),
            states: [
                state("parameters", config.shards_parameters()),
                state("gradients", config.shards_gradients()),
                state("optimizer", config.shards_optimizer()),
            ],
        }
    }
}
