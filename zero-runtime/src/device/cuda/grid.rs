//! Grid: which threads have which part of a row, and numbers as kernels take them. Both follow from shapes alone, and
//! so does the order of sums. Never launches a kernel.

use bytemuck::NoUninit;

use super::Cuda;
use super::launch::{Argument, Grid, Kernel, narrowed};
use super::module::KernelSource;
use crate::device::Write;
use crate::view::ViewMut;

/// Elements that a thread takes at a time, as in `packs.cuh`.
pub(super) const PACK: usize = 8;

/// Threads of a block, as in `packs.cuh`.
pub(super) const BLOCK: usize = 256;

/// Blocks of a sum over columns: a few for each of a GPU's multiprocessors, of which there are about 150.
const SUM_BLOCKS: usize = 512;

/// Columns of a block that adds chunks, as in `norm.cu`.
const CHUNK_COLUMNS: usize = 32;

const ADD_CHUNKS: Kernel = Kernel::new(KernelSource::Norm, "add_chunks");

/// Threads that share a row of this width: a part of a warp, a warp, or a block.
pub(super) fn sharing(width: usize) -> usize {
    match width {
        ..=128 => 8,
        129..=2048 => 32,
        _ => BLOCK,
    }
}

/// The grid for these rows, with `sharing` threads for each.
pub(super) fn of_rows(rows: usize, sharing: usize) -> Grid {
    Grid { blocks: rows.div_ceil(BLOCK / sharing), threads: BLOCK }
}

/// The grid for `packs` packs of each of these rows, and how many blocks share a row.
pub(super) fn of_packs(rows: usize, packs: usize) -> (Grid, usize) {
    let threads = packs.next_multiple_of(32).clamp(32, BLOCK);
    let blocks = packs.div_ceil(threads);
    (Grid { blocks: rows * blocks, threads }, blocks)
}

/// A number that kernels take in 32 bits.
#[track_caller]
pub(super) fn word(number: usize) -> Argument<'static> {
    Argument::U32(narrowed(number))
}

/// Numbers that kernels take as one struct, by value.
pub(super) fn words<W: NoUninit>(words: &[W]) -> Argument<'_> {
    Argument::Bytes(bytemuck::cast_slice(words))
}

/// How the columns of a matrix are summed: a block has a tile of columns and a chunk of rows, with `lanes` adjacent
/// threads for the columns. The sums of chunks are added in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnSums {
    width: usize,
    pub lanes: usize,
    pub tiles: usize,
    /// Rows of each chunk.
    pub chunk: usize,
    chunks: usize,
}

impl ColumnSums {
    pub fn of(rows: usize, width: usize) -> Self {
        let lanes = width.div_ceil(PACK).next_power_of_two().min(32);
        let tiles = width.div_ceil(lanes * PACK);
        // At least eight rows for each thread: fewer are not worth a block.
        let most = rows.div_ceil(8 * BLOCK / lanes);
        let chunk = rows.div_ceil((SUM_BLOCKS / tiles.max(1)).clamp(1, most.max(1))).max(1);
        Self { width, lanes, tiles, chunk, chunks: rows.div_ceil(chunk) }
    }

    /// A kernel with the constants of these sums.
    pub fn kernel(&self, kernel: Kernel) -> Kernel {
        kernel.with(self.tiles).with(self.lanes)
    }

    pub fn grid(&self) -> Grid {
        Grid { blocks: self.tiles * self.chunks, threads: BLOCK }
    }

    /// The address where each chunk leaves `sums` sums, in the workspace of the queue.
    pub fn partial(&self, cuda: &Cuda, sums: usize) -> u64 {
        let (start, len) = cuda.scratch();
        let needed = self.chunks * sums * self.width * size_of::<f32>();
        assert!(needed <= len || cuda.has_failed(), "{needed} bytes of workspace, of which there are {len}");
        start
    }

    /// `to` := or += the total over all chunks of sum number `which` of `sums`.
    pub fn finish(&self, cuda: &Cuda, which: usize, sums: usize, to: ViewMut<Cuda, f32>, write: Write) {
        let from = self.partial(cuda, sums) + (which * self.width * size_of::<f32>()) as u64;
        cuda.launch(
            ADD_CHUNKS.with(self.width).with(sums * self.width),
            Grid { blocks: self.width.div_ceil(CHUNK_COLUMNS), threads: BLOCK },
            &[Argument::Pointer(from), to.into(), word(self.chunks), word((write == Write::Add).into())],
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_one_chunk_and_every_column_in_one_tile() {
        for rows in [0, 1, 7, 64, 65, 1000, 65_536, 1 << 20] {
            for width in [1, 7, 8, 9, 64, 255, 256, 257, 768, 5120, 131_072, 1 << 20] {
                let columns = ColumnSums::of(rows, width);
                let ColumnSums { lanes, tiles, chunk, chunks, .. } = columns;
                assert!((tiles - 1) * lanes * PACK < width && width <= tiles * lanes * PACK, "{columns:?}");
                assert!(rows <= chunks * chunk && (rows == 0 || (chunks - 1) * chunk < rows), "{columns:?}");
                assert!(BLOCK.is_multiple_of(lanes) && tiles * chunks <= SUM_BLOCKS.max(tiles), "{columns:?}");
                // Two sums for each chunk, in 16 MiB.
                assert!(8 * chunks * width <= 16 << 20, "{columns:?}");
            }
        }
    }

    #[test]
    fn threads_cover_all_packs() {
        for packs in [1, 31, 32, 33, 256, 257, 6288] {
            let (grid, blocks) = of_packs(3, packs);
            assert_eq!(grid.blocks, 3 * blocks);
            assert!(blocks * grid.threads >= packs && grid.threads.is_multiple_of(32));
        }
        assert_eq!(of_rows(33, 8).blocks, 2);
        assert_eq!(of_rows(3, 256).blocks, 3);
    }
}
