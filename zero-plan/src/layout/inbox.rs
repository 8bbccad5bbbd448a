//! Inbox: the room for terms of sums that arrive from ranks whose memory cannot be read.

use super::Tables;
use crate::config::{Config, Width};
use crate::mesh::Axis;

/// Bytes of the terms that a rank receives along an axis for its part of this many gradients: one term per rank, or the
/// sums of each host. 0 if ranks along the axis read one another's terms in place.
pub(crate) const fn terms_bytes(config: &Config, axis: Axis, elements: usize) -> usize {
    let part = elements / config.mesh.summed_parts(axis);
    if !config.has_carried_along(axis) {
        0
    } else if config.sums_on_hosts(axis) {
        part * config.subtrees(axis).count() * Width::F32.bytes()
    } else {
        part * config.mesh.len(axis) * config.precision.reduce.bytes()
    }
}

/// Bytes of the gradients of a tied unit that arrive at the pipeline stage of its owner.
pub(crate) const fn tied_bytes(tables: &Tables, pipeline: usize) -> usize {
    let (config, last) = (tables.config, tables.units.len() - 1);
    if config.has_carried_along(Axis::Pipeline)
        && tables.is_mirror(last)
        && tables.pipeline_stage_of(tables.units[last].source) == pipeline
    {
        tables.padded(last) / config.mesh.data_ranks() * config.precision.reduce.bytes()
    } else {
        0
    }
}

/// Bytes of everything that arrives on a pipeline stage to be added up, for a bucket of this many gradients.
pub(crate) const fn arriving_bytes(tables: &Tables, pipeline: usize, elements: usize) -> usize {
    let config = tables.config;
    let terms = terms_bytes(config, Axis::Zero, elements) + terms_bytes(config, Axis::Replica, elements);
    terms + tied_bytes(tables, pipeline)
}
