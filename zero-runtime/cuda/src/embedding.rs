//! Embedding: rows of a table by id, and their gradients. The rows of a block depend only on the vocabulary. Never
//! waits for the device.

use super::Cuda;
use super::grid::{BLOCK, PACK, of_packs, word};
use super::handle::launch::{Grid, Kernel};
use super::lengths::divided;
use super::source::KernelSource;
use zero_core::device::{Element, Write};
use zero_core::view::{View, ViewMut};

const EMBED: Kernel = Kernel::new(KernelSource::Embedding, "embed");
const EMBED_BACKWARD: Kernel = Kernel::new(KernelSource::Embedding, "embed_backward");
const POSITIONS_BACKWARD: Kernel = Kernel::new(KernelSource::Embedding, "positions_backward");

/// The most rows of a table in a block, as in `embedding.cu`.
const SLOTS: usize = 64;

/// Columns that a thread sums, as in `embedding.cu`.
const COLUMNS: usize = 4;

/// Groups of the rows of a table, if it has that many rows. More groups find the tokens of frequent rows in parallel;
/// fewer groups scan all ids less often.
const GROUPS: usize = 1024;

/// The number of groups of rows, as a power of two: the rows of a group have ids that end in the same bits.
fn shift(vocabulary: usize) -> usize {
    let groups = vocabulary.next_power_of_two().min(GROUPS).max(vocabulary.div_ceil(SLOTS).next_power_of_two());
    groups.trailing_zeros() as usize
}

pub(super) fn embed<E: Element>(
    cuda: &Cuda,
    ids: View<Cuda, u32>,
    table: View<Cuda, E>,
    positions: Option<View<Cuda, E>>,
    out: ViewMut<Cuda, E>,
    length: usize,
) {
    let tokens = ids.len();
    let width = check(tokens, out.len(), positions.as_ref().map(View::len), length);
    let vocabulary = divided("table", table.len(), width);
    let (grid, blocks) = of_packs(tokens, width.div_ceil(PACK));
    let kernel = EMBED.of(E::WIDTH).with(vocabulary).with(width).with(blocks);
    cuda.launch(kernel, grid, &[ids.into(), table.into(), positions.into(), out.into(), length.into()]);
}

pub(super) fn embed_backward<E: Element>(
    cuda: &Cuda,
    ids: View<Cuda, u32>,
    dout: View<Cuda, E>,
    dtable: ViewMut<Cuda, f32>,
    dpositions: Option<ViewMut<Cuda, f32>>,
    length: usize,
    write: Write,
) {
    let tokens = ids.len();
    let width = check(tokens, dout.len(), dpositions.as_ref().map(ViewMut::len), length);
    let vocabulary = divided("dtable", dtable.len(), width);
    let (add, tiles) = (word((write == Write::Add).into()), width.div_ceil(BLOCK * COLUMNS));
    let shift = shift(vocabulary);
    let kernel = EMBED_BACKWARD.of(E::WIDTH).with(vocabulary).with(width).with(shift).with(tiles);
    let grid = Grid { blocks: tiles << shift, threads: BLOCK };
    cuda.launch(kernel, grid, &[ids.into(), dout.into(), dtable.into(), tokens.into(), add]);
    if let Some(dpositions) = dpositions {
        let (grid, blocks) = of_packs(dpositions.len() / width, width.div_ceil(PACK));
        cuda.launch(
            POSITIONS_BACKWARD.of(E::WIDTH).with(width).with(blocks),
            grid,
            &[dout.into(), dpositions.into(), (tokens / length).into(), length.into(), add],
        );
    }
}

/// The width of a row. Panics unless the shapes agree.
#[track_caller]
fn check(tokens: usize, out: usize, positions: Option<usize>, length: usize) -> usize {
    divided("ids", tokens, length);
    let width = divided("out", out, tokens);
    if let Some(positions) = positions {
        let context = divided("positions", positions, width);
        assert!(length <= context, "sequences have {length} tokens, expected at most the context, {context}");
    }
    width
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_block_has_more_rows_than_it_can_hold() {
        for vocabulary in [1, 2, 3, 256, 1000, 1024, 1025, 50_304, 65_536, 65_537, 262_144, 1 << 24] {
            let groups = 1usize << shift(vocabulary);
            assert!(vocabulary.div_ceil(groups) <= SLOTS, "{vocabulary} rows in {groups} groups");
            assert!(groups <= GROUPS.max(vocabulary), "{vocabulary} rows in {groups} groups");
        }
        assert_eq!([1, 256, 50_304, 262_144].map(|rows| 1 << shift(rows)), [1, 256, 1024, 4096]);
    }
}
