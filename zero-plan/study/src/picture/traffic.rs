//! Traffic: bytes that a rank sends in a step, by axis and by purpose. Never measures.

use serde::Serialize;
use zero_plan::{Axis, Plan, Traffic};

/// A part of the bytes that a rank sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TrafficPart {
    /// The axis along which it is sent; none if it is sent to all ranks.
    pub axis: Option<&'static str>,
    /// Its purpose.
    pub name: &'static str,
    /// Bytes in a step.
    pub bytes: usize,
}

/// The parts of the bytes that the busiest rank of a pipeline stage sends, except for axes that have one rank.
pub(super) fn parts_of(plan: &Plan, pipeline: usize) -> Vec<TrafficPart> {
    let traffic = Traffic::of(plan, plan.busiest_rank(pipeline), plan.pipeline_stages[pipeline].step);
    let axes = plan.config.mesh.order.into_iter().filter(|&axis| plan.config.mesh.len(axis) > 1);
    let along = |axis: Axis| {
        Traffic::parts(axis).iter().map(move |(name, bytes)| TrafficPart {
            axis: Some(axis.name()),
            name,
            bytes: bytes(&traffic),
        })
    };
    let agree = TrafficPart { axis: None, name: "loss and norm", bytes: traffic.agree_bytes };
    axes.flat_map(along).chain([agree]).collect()
}
