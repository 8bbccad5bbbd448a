//! Parallel: shares the work of one op among the threads of a rank, by rows, columns, elements or heads of its result.
//! The number of threads never changes the order of a sum, so it changes no bit of a result. Never allocates in an op.

use std::num::NonZeroUsize;
use std::ops::Range;

use super::simd::{LANES, divided};
use super::{Cpu, StridedMatrix};
use zero_core::device::{Stored, StoredMut, Weights};

/// Elements that are worth a thread: a few times as much work as waking the thread.
const ELEMENTS_MIN: usize = 1 << 16;

/// Pieces for each of several threads, so that a thread that is done early takes over from a slower one. Not of products:
/// each piece of a product packs its operands again.
const PIECES: usize = 4;

/// Columns are shared in multiples of this, which is a few vectors of each row.
const COLUMNS: usize = 64;

/// Multiplications of a matrix product that take as long as one element of another op.
pub(super) const PRODUCTS_PER_ELEMENT: usize = 64;

/// If one side of a product is at least this long, and the other at least [`COLS_MIN`], `gemm` sums each element in the same
/// order, whatever the rest of the shape; with fewer than 257 elements, or 65 rows and 65 columns, it sums differently.
const SIDE_MIN: usize = 128;
pub(super) const COLS_MIN: usize = 3;

/// Products are cut at multiples of this many rows or columns, so that no tile is cut.
const ALIGNED: usize = 32;

impl Cpu {
    /// This processor, with only the calling thread.
    pub const ONE_THREAD: Self = Self { threads: NonZeroUsize::MIN, elements_min: ELEMENTS_MIN };

    /// The same device, but it shares even the smallest work: for tests, where all work is small.
    pub fn eager(self) -> Self {
        Self { elements_min: 1, ..self }
    }

    /// Whether work on this many elements is shared at all.
    pub(super) fn shares(self, elements: usize) -> bool {
        self.threads.get() > 1 && elements / 2 >= self.elements_min
    }

    /// Calls `run` on `parts`, which have `rows` rows of `width` elements each: at once, or on some rows at a time.
    pub(super) fn by_rows<P: Cut>(self, rows: usize, width: usize, parts: P, run: impl Fn(P) + Sync) {
        let rows_min = self.elements_min.div_ceil(width.max(1));
        for_each(self.threads, Items { count: rows, min: rows_min, multiple: 1 }, parts, &run);
    }

    /// Calls `run` on `parts`, which have `width` columns of `rows` elements each: at once, or on some columns at a
    /// time.
    pub(super) fn by_columns<P: Cut>(self, rows: usize, width: usize, parts: P, run: impl Fn(P) + Sync) {
        let columns_min = self.elements_min.div_ceil(rows.max(1));
        for_each(self.threads, Items { count: width, min: columns_min, multiple: COLUMNS }, parts, &run);
    }

    /// Calls `run` on `parts`, which have `len` elements each: at once, or on some elements at a time.
    pub(super) fn by_elements<P: Cut>(self, len: usize, parts: P, run: impl Fn(P) + Sync) {
        for_each(self.threads, Items { count: len, min: self.elements_min, multiple: LANES }, parts, &run);
    }

    /// Calls `run` on `parts`, which have the rows and columns of a (rows, depth) (depth, cols) product: at once, or on
    /// one block at a time.
    pub(super) fn by_products<P: CutBlock>(self, [rows, depth, cols]: [usize; 3], parts: P, run: impl Fn(P) + Sync) {
        let products_min = PRODUCTS_PER_ELEMENT * self.elements_min;
        let most = if rows.min(cols) < COLS_MIN { 1 } else { self.threads.get() };
        share_blocks(most.min(rows * cols * depth / products_min), [rows, cols], parts, &run);
    }

    /// The sum of `of` over all blocks of `x`, which have `block` elements each except the last. The order is the tree
    /// that halves the number of blocks, whichever threads sum its branches.
    pub(super) fn sum_by_blocks<T: Sync>(self, x: &[T], block: usize, of: &(impl Fn(&[T]) -> f64 + Sync)) -> f64 {
        if x.len() <= block {
            return of(x);
        }
        let (left, right) = x.split_at(x.len().div_ceil(block) / 2 * block);
        let branch = |x: &[T]| self.sum_by_blocks(x, block, of);
        let (left, right) = if self.shares(x.len()) {
            rayon::join(|| branch(left), || branch(right))
        } else {
            (branch(left), branch(right))
        };
        left + right
    }

    /// Calls `run` on all `heads`, each of which is as much work as `elements` elements elsewhere: at once, or on some
    /// heads at a time.
    pub(super) fn by_heads(self, heads: usize, elements: usize, run: impl Fn(Range<usize>) + Sync) {
        let heads_min = self.elements_min.div_ceil(elements.max(1));
        for_each(self.threads, Items { count: heads, min: heads_min, multiple: 1 }, 0..heads, &run);
    }
}

/// The items of some work: rows, elements or heads.
#[derive(Clone, Copy)]
pub struct Items {
    /// The number of items.
    pub count: usize,
    /// The fewest that are worth a thread of their own.
    pub min: usize,
    /// The work is cut only at multiples of this many items.
    pub multiple: usize,
}

/// Calls `run` on `parts`, at once or in pieces on up to `threads` threads of the pool that this thread is in.
pub fn for_each<P: Cut>(threads: NonZeroUsize, items: Items, parts: P, run: &(impl Fn(P) + Sync)) {
    let most = if threads == NonZeroUsize::MIN { 1 } else { PIECES * threads.get() };
    share(most.min(items.count / items.min.max(items.multiple).max(1)), items, parts, run);
}

/// Calls `run` on `parts`, in up to as many blocks. Whatever multiplies a block reads all operands of its rows and of its
/// columns, so each cut is across the longer side.
fn share_blocks<P: CutBlock>(blocks: usize, [rows, cols]: [usize; 2], parts: P, run: &(impl Fn(P) + Sync)) {
    let longer = rows.max(cols);
    if blocks <= 1 || longer < 2 * SIDE_MIN {
        return run(parts);
    }
    let on_left = blocks / 2;
    let at = (longer * on_left / blocks / ALIGNED * ALIGNED).clamp(SIDE_MIN, longer - SIDE_MIN);
    let (sides, (left, right)) = if rows == longer {
        ([[at, cols], [rows - at, cols]], parts.cut_rows(at))
    } else {
        ([[rows, at], [rows, cols - at]], parts.cut_columns(at))
    };
    rayon::join(|| share_blocks(on_left, sides[0], left, run), || share_blocks(blocks - on_left, sides[1], right, run));
}

fn share<P: Cut>(pieces: usize, items: Items, parts: P, run: &(impl Fn(P) + Sync)) {
    if pieces <= 1 {
        return run(parts);
    }
    let on_left = pieces / 2;
    let at = items.count * on_left / pieces / items.multiple * items.multiple;
    let (left, right) = parts.cut(at, items.count);
    rayon::join(
        || share(on_left, Items { count: at, ..items }, left, run),
        || share(pieces - on_left, Items { count: items.count - at, ..items }, right, run),
    );
}

/// The operands of some work that can be cut into pieces.
pub trait Cut: Send + Sized {
    /// The first `at` of `of` items of the same size, and the other items.
    fn cut(self, at: usize, of: usize) -> (Self, Self);
}

impl Cut for Range<usize> {
    fn cut(self, at: usize, _: usize) -> (Self, Self) {
        (self.start..self.start + at, self.start + at..self.end)
    }
}

impl<T: Sync> Cut for &[T] {
    fn cut(self, at: usize, of: usize) -> (Self, Self) {
        self.split_at(at * divided("part", self.len(), of))
    }
}

impl<T: Send> Cut for &mut [T] {
    fn cut(self, at: usize, of: usize) -> (Self, Self) {
        let width = divided("part", self.len(), of);
        self.split_at_mut(at * width)
    }
}

/// By rows.
impl<T: Sync> Cut for StridedMatrix<'_, T> {
    fn cut(self, at: usize, _: usize) -> (Self, Self) {
        self.split_at(at)
    }
}

impl Cut for Stored<'_, Cpu> {
    fn cut(self, at: usize, of: usize) -> (Self, Self) {
        self.split_at(at * divided("part", self.len(), of))
    }
}

impl Cut for StoredMut<'_, Cpu> {
    fn cut(self, at: usize, of: usize) -> (Self, Self) {
        let width = divided("part", self.len(), of);
        self.split_at(at * width)
    }
}

impl Cut for Weights<'_, Cpu> {
    fn cut(self, at: usize, of: usize) -> (Self, Self) {
        let ((params, master), (params_rest, master_rest)) = (self.params, self.master).cut(at, of);
        (Self { params, master }, Self { params: params_rest, master: master_rest })
    }
}

impl<P: Cut> Cut for Option<P> {
    fn cut(self, at: usize, of: usize) -> (Self, Self) {
        match self {
            Some(part) => {
                let (left, right) = part.cut(at, of);
                (Some(left), Some(right))
            }
            None => (None, None),
        }
    }
}

/// A block of a matrix that can be cut into smaller ones.
pub trait CutBlock: Send + Sized {
    /// The first `at` rows of the block, and the other rows.
    fn cut_rows(self, at: usize) -> (Self, Self);
    /// The first `at` columns of the block, and the other columns.
    fn cut_columns(self, at: usize) -> (Self, Self);
}

impl<A: CutBlock, B: CutBlock> CutBlock for (A, B) {
    fn cut_rows(self, at: usize) -> (Self, Self) {
        let ((a, a_rest), (b, b_rest)) = (self.0.cut_rows(at), self.1.cut_rows(at));
        ((a, b), (a_rest, b_rest))
    }

    fn cut_columns(self, at: usize) -> (Self, Self) {
        let ((a, a_rest), (b, b_rest)) = (self.0.cut_columns(at), self.1.cut_columns(at));
        ((a, b), (a_rest, b_rest))
    }
}

/// Each part of a tuple is cut at the same item.
macro_rules! tuple {
    ($($part:ident $rest:ident),*) => {
        impl<$($part: Cut),*> Cut for ($($part,)*) {
            #[expect(non_snake_case, reason = "a part has the name of its type")]
            fn cut(self, at: usize, of: usize) -> (Self, Self) {
                let ($($part,)*) = self;
                $(let ($part, $rest) = $part.cut(at, of);)*
                (($($part,)*), ($($rest,)*))
            }
        }
    };
}

tuple!(A restA, B restB);
tuple!(A restA, B restB, C restC);
tuple!(A restA, B restB, C restC, D restD);
tuple!(A restA, B restB, C restC, D restD, E restE);

#[cfg(test)]
mod tests;
