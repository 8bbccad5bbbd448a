//! Effective: the value at an option's path with defaults filled in, to be shown and to be held against another. Never
//! says what is wrong with one.

use serde::Serialize;

use super::parse::ron;
use super::{Size, Spec};
use crate::mesh::Axis;

/// The value at `path`, one of [`INLINE`](super::INLINE), as it would be written.
pub(super) fn shown(spec: &Spec, path: &str) -> String {
    match path {
        "zero.stage" => written(&spec.zero.stage),
        "zero.prefetch" => written(&spec.zero.prefetch()),
        "zero.bucket" => written(&spec.zero.bucket),
        "zero.gather" => written(&spec.zero.gather),
        "zero.reduce" => written(&spec.zero.reduce),
        "mesh.zero" => written(&spec.mesh.zero),
        "mesh.replica" => written(&spec.mesh.replica),
        "mesh.pipeline" => written(&spec.mesh.pipeline),
        "mesh.nodes" => written(&spec.mesh.nodes()),
        "mesh.ranks_per_node" => written(&spec.mesh.ranks_per_node()),
        "mesh.within_node" => written(&spec.mesh.within_node),
        "pipeline.schedule" => written(&spec.pipeline.schedule),
        "pipeline.units" => written(&spec.pipeline.units),
        "batch.sequences" => written(&spec.batch.sequences),
        "batch.length" => written(&spec.batch.length),
        "batch.micro_batches" => written(&spec.batch.micro_batches),
        "precision.params" => written(&spec.precision.params),
        "precision.master" => written(&spec.precision.master),
        "precision.moments" => written(&spec.precision.moments),
        "recompute" => written(&spec.recompute),
        "transport" => written(&spec.transport),
        "memory" => spec.memory.map_or("no budget".to_owned(), |memory| written(&memory)),
        _ => unreachable!("`{path}` is in INLINE, and all of INLINE is above"),
    }
}

/// Whether two specs say the same at `path`, in whatever words.
pub(super) fn agree(a: &Spec, b: &Spec, path: &str) -> bool {
    let within_node = |spec: &Spec| Axis::ALL.map(|axis| spec.mesh.within_node.contains(&axis));
    match path {
        "zero.bucket" => a.zero.bucket.checked_bytes() == b.zero.bucket.checked_bytes(),
        "memory" => a.memory.map(Size::checked_bytes) == b.memory.map(Size::checked_bytes),
        "mesh.within_node" => within_node(a) == within_node(b),
        _ => shown(a, path) == shown(b, path),
    }
}

/// A value in RON.
fn written<T: Serialize>(value: &T) -> String {
    ron().to_string(value).expect("a value that can be read can be written")
}
