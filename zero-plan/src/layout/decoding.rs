//! Decoding: how a pipeline stage uses its region of activations while it decodes. No activations are kept then, so
//! units take turns with the places for saved values and outputs, and their caches follow. Never knows what a layer
//! caches.

use serde::Serialize;

use super::{Placement, Tables};
use crate::unit::{caches, max};

/// The parts of the region of activations in a decoding walk, one after the other. All are 0 in a model whose layers
/// cache nothing, which decodes with the places of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Decoding {
    /// The values that one unit saves, at the start of the region, unless they have another.
    pub saved_bytes: usize,
    /// One input or output of a unit. Two of these follow the saved values, and units take turns with them.
    pub boundary_bytes: usize,
    /// The caches of all units of the pipeline stage, which follow.
    pub caches_bytes: usize,
}

impl Decoding {
    /// The parts in a model that caches nothing.
    pub(crate) const NONE: Self = Self { saved_bytes: 0, boundary_bytes: 0, caches_bytes: 0 };

    /// The parts on pipeline stage `pipeline`. Reads only the units and chunks of `tables`.
    pub(super) const fn of(tables: &Tables, pipeline: usize) -> Self {
        let mut decoding = Self::NONE;
        if !caches(tables.units) {
            return decoding;
        }
        let mut chunk = pipeline;
        while chunk < tables.chunks.len() {
            let mut i = tables.chunks[chunk].first;
            while i < tables.chunks[chunk].end {
                let unit = &tables.units[i];
                // Of the head only the input counts: it does not run forward, but predicts.
                let is_head = i + 1 == tables.units.len();
                let (saved, output) = if is_head { (0, 0) } else { (unit.saved_bytes, unit.output_bytes) };
                let saved = if tables.saves_apart(i) { 0 } else { saved };
                let boundary = tables.config.whole_lines(max(unit.input_bytes, output));
                decoding.saved_bytes = max(decoding.saved_bytes, tables.config.whole_lines(saved));
                decoding.boundary_bytes = max(decoding.boundary_bytes, boundary);
                decoding.caches_bytes += tables.config.whole_lines(tables.config.slots() * unit.cache_bytes);
                i += 1;
            }
            chunk += tables.config.mesh.pipeline;
        }
        decoding
    }

    /// The start of the caches in the region.
    pub const fn caches_start(&self) -> usize {
        self.saved_bytes + 2 * self.boundary_bytes
    }

    /// The bytes of the region that decoding uses.
    pub const fn bytes(&self) -> usize {
        self.caches_start() + self.caches_bytes
    }
}

/// Assigns the caches of a pipeline stage their places.
pub(super) const fn fill_caches(tables: &Tables, pipeline: usize, out: &mut [Placement]) {
    let mut start = Decoding::of(tables, pipeline).caches_start();
    let mut chunk = pipeline;
    while chunk < tables.chunks.len() {
        let mut i = tables.chunks[chunk].first;
        while i < tables.chunks[chunk].end {
            out[i].cache_bytes = start;
            start += tables.config.whole_lines(tables.config.slots() * tables.units[i].cache_bytes);
            i += 1;
        }
        chunk += tables.config.mesh.pipeline;
    }
}
