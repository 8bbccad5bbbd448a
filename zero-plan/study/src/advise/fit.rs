//! Fit: the device memory that a configuration needs, computed from the sizes of units without a schedule. Never says
//! how much memory a device has.

use zero_plan::bounds::{is_compilable, is_countable};
use zero_plan::footprint::rank_bytes;
use zero_plan::{
    Bucket, Chunk, Config, Home, Kind, Memory, Recompute, Split, Tables, Unit, fill_chunks, gathered,
    smaller_than_shards,
};

/// The memory of a rank on the pipeline stage that needs most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Bytes in the arena and outside it.
    pub bytes: usize,
    /// The arena.
    pub memory: Memory,
}

impl Demand {
    /// The demand of a configuration; `None` if it has no plan: a chunk would be empty, a rank would own nothing of
    /// a unit, more units would be gathered ahead than there are, more would be in a tier than its budget allows, or the
    /// compiler would take too long.
    pub fn of(config: &Config, units: &[Unit]) -> Option<Self> {
        let chunks = config.chunks();
        let is_split = match config.split {
            Split::Even => units.len().is_multiple_of(chunks),
            Split::Balanced => true,
            Split::Units(_) => false,
        };
        let is_ahead = config.shards_parameters() && config.prefetch >= gathered(units);
        let is_nothing = matches!(config.recompute, Recompute::Every(k) if k >= units.len());
        if chunks > units.len() || !is_split || is_ahead || is_nothing || !is_countable(config, units) {
            return None;
        }
        let mut cut = vec![Chunk { first: 0, end: 0 }; chunks];
        fill_chunks(config, units, &mut cut);
        let tables = Tables { config, units, chunks: &cut, placements: &[], buckets: &[] };
        if smaller_than_shards(config, units).is_some() || !is_compilable(&tables) {
            return None;
        }
        let memories = (0..config.mesh.pipeline).map(|pipeline| Memory::of(&tables, pipeline));
        let memories: Vec<_> = memories.collect();
        for (home, budget) in [(Home::Host, config.host_bytes), (Home::Disk, config.disk_bytes)] {
            let bytes = memories.iter().map(|memory| memory.bytes_of(home)).max()?;
            if budget.is_some_and(|budget| bytes > budget) {
                return None;
            }
        }
        let memory = memories.into_iter().max_by_key(Memory::bytes_per_rank)?;
        Some(Self { bytes: rank_bytes(&tables, &memory), memory })
    }

    /// Bytes of regions of these kinds.
    pub fn of_kinds(&self, kinds: &[Kind]) -> usize {
        kinds.iter().map(|&kind| self.memory.region(kind).bytes).sum()
    }
}

/// The first unit of each bucket. Two configurations with equal lists have equal buckets. The configuration must have a
/// plan.
pub(super) fn buckets(config: &Config, units: &[Unit]) -> Vec<usize> {
    let mut cut = vec![Chunk { first: 0, end: 0 }; config.chunks()];
    fill_chunks(config, units, &mut cut);
    let tables = Tables { config, units, chunks: &cut, placements: &[], buckets: &[] };
    let (mut first, mut end) = (Vec::new(), units.len());
    while end > 0 {
        end = Bucket::ending_at(&tables, end - 1).first;
        first.push(end);
    }
    first
}
