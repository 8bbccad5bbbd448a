//! Effective: the value at a key's path with defaults filled in, to be shown and to be held against another. Never says
//! what is wrong with one.

use super::locate::locate;
use super::parse::ron;
use super::{Size, Spec};
use crate::mesh::Axis;

/// The value at `path` as it would be written; none where there is none, neither given nor by default.
pub(super) fn held(spec: &Spec, path: &str) -> Option<String> {
    match path {
        "zero.prefetch" => return Some(spec.zero.prefetch().to_string()),
        "mesh.nodes" => return Some(spec.mesh.nodes().to_string()),
        "mesh.ranks_per_node" => return Some(spec.mesh.ranks_per_node().to_string()),
        _ => {}
    }
    let text = ron().to_string(spec).expect("a spec that can be read can be written");
    let spans = locate(&text, path)?;
    Some(text[spans.value].to_owned())
}

/// Whether two specs say the same at `path`, in whatever words.
pub(super) fn agree(a: &Spec, b: &Spec, path: &str) -> bool {
    let within_node = |spec: &Spec| Axis::ALL.map(|axis| spec.mesh.within_node.contains(&axis));
    match path {
        "zero.bucket" => a.zero.bucket.checked_bytes() == b.zero.bucket.checked_bytes(),
        "memory" => a.memory.map(Size::checked_bytes) == b.memory.map(Size::checked_bytes),
        "mesh.within_node" => within_node(a) == within_node(b),
        _ => held(a, path) == held(b, path),
    }
}
