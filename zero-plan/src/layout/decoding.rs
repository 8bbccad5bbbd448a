//! Decoding: what a pipeline stage needs of its region of activations while it decodes. No activations are kept then, so
//! units take turns with what they save and give, and behind that lie their caches. Never knows what a layer caches.

use serde::Serialize;

use super::{Placement, Tables, max};
use crate::unit::caches;

/// The parts of the region of activations in a decoding walk, one behind the other. All are 0 in a model whose layers cache
/// nothing: there it has the places of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Decoding {
    /// What one unit saves: at the start of the region.
    pub saved_bytes: usize,
    /// What enters a unit, or leaves it: two of these lie behind what is saved, and units take turns with them.
    pub boundary_bytes: usize,
    /// The caches of all units of the pipeline stage, behind these.
    pub caches_bytes: usize,
}

impl Decoding {
    /// Of a model that caches nothing.
    pub(crate) const NONE: Self = Self { saved_bytes: 0, boundary_bytes: 0, caches_bytes: 0 };

    /// That of pipeline stage `pipeline`. Needs the units and chunks of `tables`, nothing else.
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
                // Of the head only its input counts: it is not run, but asked what it predicts.
                let is_head = i + 1 == tables.units.len();
                let (saved, output) = if is_head { (0, 0) } else { (unit.saved_bytes, unit.output_bytes) };
                let boundary = tables.config.whole_lines(max(unit.input_bytes, output));
                decoding.saved_bytes = max(decoding.saved_bytes, tables.config.whole_lines(saved));
                decoding.boundary_bytes = max(decoding.boundary_bytes, boundary);
                decoding.caches_bytes += tables.config.whole_lines(unit.cache_bytes);
                i += 1;
            }
            chunk += tables.config.mesh.pipeline;
        }
        decoding
    }

    /// Where in the region the caches begin.
    pub const fn caches_start(&self) -> usize {
        self.saved_bytes + 2 * self.boundary_bytes
    }

    /// Bytes of the region that it takes.
    pub const fn bytes(&self) -> usize {
        self.caches_start() + self.caches_bytes
    }
}

/// Gives the caches of a pipeline stage their places.
pub(super) const fn fill_caches(tables: &Tables, pipeline: usize, out: &mut [Placement]) {
    let mut start = Decoding::of(tables, pipeline).caches_start();
    let mut chunk = pipeline;
    while chunk < tables.chunks.len() {
        let mut i = tables.chunks[chunk].first;
        while i < tables.chunks[chunk].end {
            out[i].cache_bytes = start;
            start += tables.config.whole_lines(tables.units[i].cache_bytes);
            i += 1;
        }
        chunk += tables.config.mesh.pipeline;
    }
}
