//! Grid: which threads work on which part of a row, and numbers as kernels take them. Both depend on shapes alone, and
//! so does the order of sums. Never launches a kernel.

use bytemuck::NoUninit;

use super::Cuda;
use super::elementwise::EIGHT;
use super::handle::launch::{Argument, Grid, Kernel, narrowed};
use super::source::KernelSource;
use zero_core::device::Write;
use zero_core::view::ViewMut;

/// Elements that a thread processes at a time, as in `packs.cuh`.
pub(super) const PACK: usize = EIGHT;

/// Threads of a block, as in `packs.cuh`.
pub(super) const BLOCK: usize = 256;

/// Blocks of a sum over columns: a few for each of a GPU's multiprocessors, of which there are about 150.
const SUM_BLOCKS: usize = 512;

/// Blocks that have whole rows, for each block that runs at a time on a multiprocessor of an H100, which has 132: all
/// blocks run at once.
const ROW_BLOCKS: usize = 128;

/// Threads of such blocks that run at a time on a multiprocessor, which has registers for about as many.
const ROW_THREADS: usize = 768;

/// The most numbers that all chunks write for each sum: two sums take 16 MiB.
const SUMMED_MAX: usize = 1 << 21;

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

/// Threads that share a row of this width in a pass that keeps sums for each column: so many that a thread has one pack
/// of columns. From 4097 columns on a thread has several packs, and registers for two.
pub(super) fn sharing_backward(width: usize) -> usize {
    match width {
        ..=64 => 8,
        65..=128 => 16,
        _ => width.div_ceil(PACK).next_multiple_of(32).min(2 * BLOCK),
    }
}

/// The grid for these rows, with `sharing` threads for each.
pub(super) fn of_rows(rows: usize, sharing: usize) -> Grid {
    assert!(BLOCK.is_multiple_of(sharing), "{sharing} threads a row, of {BLOCK} of a block");
    Grid { blocks: rows.div_ceil(BLOCK / sharing), threads: BLOCK }
}

/// The grid for `packs` packs of each of these rows, and the number of blocks that share a row.
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

/// How the columns of a matrix are summed: a block has a tile of columns and a chunk of rows. The sums of chunks are
/// added in the order of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ColumnSums {
    width: usize,
    threads: usize,
    /// Adjacent threads for the columns of a row.
    pub lanes: usize,
    pub tiles: usize,
    /// Rows of each chunk.
    pub chunk: usize,
    chunks: usize,
}

impl ColumnSums {
    /// In tiles of columns that are at most as wide as a warp.
    pub fn of(rows: usize, width: usize) -> Self {
        let lanes = width.div_ceil(PACK).next_power_of_two().min(32);
        let tiles = width.div_ceil(lanes * PACK);
        // At least eight rows for each thread: fewer are not worth a block.
        Self::chunked([rows, width], [lanes, tiles], SUM_BLOCKS, 8)
    }

    /// In one tile: `lanes` threads have a whole row, and do more with it than sum it.
    pub fn of_rows(rows: usize, width: usize, lanes: usize) -> Self {
        let threads = (BLOCK / lanes).max(1) * lanes;
        Self::chunked([rows, width], [lanes, 1], ROW_BLOCKS * (ROW_THREADS / threads).max(1), 4)
    }

    fn chunked([rows, width]: [usize; 2], [lanes, tiles]: [usize; 2], blocks: usize, rows_min: usize) -> Self {
        let together = (BLOCK / lanes).max(1);
        let most = (blocks / tiles.max(1)).min(SUMMED_MAX / width.max(1));
        let worth = rows.div_ceil(rows_min * together);
        let chunk = rows.div_ceil(most.clamp(1, worth.max(1))).max(1).next_multiple_of(together);
        Self { width, threads: together * lanes, lanes, tiles, chunk, chunks: rows.div_ceil(chunk) }
    }

    pub fn grid(&self) -> Grid {
        Grid { blocks: self.tiles * self.chunks, threads: self.threads }
    }

    /// The address to which each chunk writes `sums` sums, in the workspace of the queue.
    pub fn partial(&self, cuda: &Cuda, sums: usize) -> u64 {
        let (start, len) = cuda.scratch();
        let needed = self.chunks * sums * self.width * size_of::<f32>();
        assert!(needed <= len || cuda.has_failed(), "{needed} bytes of workspace, but it has only {len}");
        start
    }

    /// `to` := or += the total over all chunks of the first sum, and `next` that of the second, if there is one.
    pub fn finish(&self, cuda: &Cuda, to: ViewMut<Cuda, f32>, next: Option<ViewMut<Cuda, f32>>, write: Write) {
        let sums = if next.is_some() { 2 } else { 1 };
        let (from, columns) = (Argument::Pointer(self.partial(cuda, sums)), sums * self.width);
        cuda.launch(
            ADD_CHUNKS.with(self.width).with(columns),
            Grid { blocks: columns.div_ceil(CHUNK_COLUMNS), threads: BLOCK },
            &[from, to.into(), next.into(), word(self.chunks), word((write == Write::Add).into())],
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_in_one_chunk_and_every_column_in_one_tile() {
        for rows in [0, 1, 7, 64, 65, 1000, 65_536, 1 << 20] {
            for width in [1, 7, 8, 9, 64, 128, 255, 256, 257, 768, 5120, 131_072, 1 << 20] {
                let whole = ColumnSums::of_rows(rows, width, sharing_backward(width));
                for sums in [ColumnSums::of(rows, width), whole] {
                    let ColumnSums { threads, lanes, tiles, chunk, chunks, .. } = sums;
                    if sums != whole {
                        assert!((tiles - 1) * lanes * PACK < width && width <= tiles * lanes * PACK, "{sums:?}");
                    }
                    assert!(rows <= chunks * chunk && (rows == 0 || (chunks - 1) * chunk < rows), "{sums:?}");
                    assert!(threads <= 2 * BLOCK && threads.is_multiple_of(lanes), "{sums:?}");
                    assert!(tiles * chunks <= SUM_BLOCKS.max(tiles) && 8 * chunks * width <= 16 << 20, "{sums:?}");
                }
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
