//! Inbox: the room that terms of sums take where they arrive from ranks that cannot be reached.

use super::Tables;
use crate::config::{Config, Width};
use crate::mesh::Axis;

/// Bytes of the terms of a rank's part of so many gradients along an axis: of each rank, or sums of each host. None where ranks
/// along it read one another's terms where these lie.
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

/// Bytes of all that is added up on a pipeline stage, with terms of a bucket of so many gradients.
pub(crate) const fn arriving_bytes(tables: &Tables, pipeline: usize, elements: usize) -> usize {
    let config = tables.config;
    let terms = terms_bytes(config, Axis::Zero, elements) + terms_bytes(config, Axis::Replica, elements);
    terms + tied_bytes(tables, pipeline)
}
