//! Layout: where each tensor of a model lies among the bytes that ranks serve. Comes from the plan alone.

use zero_files::weights::{Exported, Publication};
use zero_plan::{Plan, Width, published_bytes};

use crate::wire::{FileEntry, Layout, Part, PublishedTensor, RankAddress, hex_hash};

/// The layout of a model whose ranks serve at these addresses.
pub fn layout(plan: &Plan, publication: &Publication, addresses: Vec<(Option<String>, u16)>) -> Layout {
    let mesh = &plan.config.mesh;
    let places = |rank: usize| plan.places(mesh.coordinates(rank));
    let address = |(rank, (url, port)): (usize, (Option<String>, u16))| {
        let bytes = published_bytes(plan, rank);
        RankAddress { url, port, bytes }
    };
    let tensor = |it: &Exported| {
        let (named, element) = (&it.named, plan.config.publish.dtype.bytes());
        let (first, end) = (named.start, named.start + named.elements());
        let part = |rank: usize| {
            let own = places(rank);
            let offered = own.offered(named.unit)?;
            let common = first.max(offered.start)..end.min(offered.start + offered.len);
            let offset = own.published(named.unit, 0).offset_bytes + common.start.wrapping_sub(offered.start) * element;
            (!common.is_empty()).then(|| Part { rank, offset, start: common.start - first, len: common.len() })
        };
        let mut parts: Vec<Part> = (0..mesh.ranks()).filter_map(part).collect();
        parts.sort_by_key(|part| part.start);
        PublishedTensor {
            name: it.name.clone(),
            shape: named.published_shape(),
            transposed: named.transposed && named.shape.len() == 2,
            parts,
        }
    };
    let file = |file: &zero_files::weights::BesideFile| FileEntry {
        name: file.name.clone(),
        bytes: file.content.len(),
        blake3: hex_hash(&file.content),
    };
    Layout {
        model: plan.model.to_owned(),
        dtype: if plan.config.publish.dtype == Width::F32 { "f32" } else { "bf16" }.to_owned(),
        ranks: addresses.into_iter().enumerate().map(address).collect(),
        tensors: publication.tensors.iter().map(tensor).collect(),
        files: publication.files.iter().map(file).collect(),
    }
}
