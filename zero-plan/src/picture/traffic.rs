//! Traffic: bytes that a rank sends in a step, by axis and by what they are. Never measures.

use serde::Serialize;

use crate::mesh::Axis;
use crate::plan::Plan;
use crate::traffic::{Traffic, parts};

/// A part of what a rank sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrafficPart {
    /// The axis along which it is sent; none where it goes to all ranks.
    pub axis: Option<&'static str>,
    /// What it is.
    pub name: &'static str,
    /// Bytes in a step.
    pub bytes: usize,
}

/// The parts of what a rank of a pipeline stage sends at most, but for those that no plan of this mesh could have.
pub(super) fn parts_of(plan: &Plan, pipeline: usize) -> Vec<TrafficPart> {
    let traffic = Traffic::of(plan, plan.busiest_rank(pipeline), plan.pipeline_stages[pipeline].step);
    let axes = plan.config.mesh.order.into_iter().filter(|&axis| plan.config.mesh.len(axis) > 1);
    let along = |axis: Axis| {
        parts(axis).iter().map(move |(name, bytes)| TrafficPart {
            axis: Some(axis.name()),
            name,
            bytes: bytes(&traffic),
        })
    };
    let agree = TrafficPart { axis: None, name: "loss and norm", bytes: traffic.agree_bytes };
    axes.flat_map(along).chain([agree]).collect()
}
