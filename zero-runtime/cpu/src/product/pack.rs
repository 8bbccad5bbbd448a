//! Pack: copies strips of a matrix into the order in which products read them, with zeros beyond its edges. Never computes.

use bytemuck::{Pod, Zeroable};

use super::transpose::transpose;
use crate::StridedMatrix;
use crate::simd::vectorised;
use zero_core::device::{Element, bf16};

/// Rows, or columns, of a strip, and words of the common dimension in a cell.
pub const SIDE: usize = 16;

/// A square of words of a strip, in either [`Order`]. A row fills a cache line, a vector, and a row of an AMX tile.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Cell(pub [[u32; SIDE]; SIDE]);

/// How elements are packed into words of 32 bits.
pub trait Packing {
    /// The elements that are packed.
    type Element: Element;
    /// Elements in a word, which are consecutive along the common dimension.
    const IN_WORD: usize;

    /// The words of one row, or column, from at most `SIDE * IN_WORD` of its elements.
    fn along(elements: &[Self::Element]) -> [u32; SIDE];
    /// A word of each row, or column, of at most `SIDE`: from the elements of all rows at each of at most `IN_WORD`
    /// indices.
    fn across(places: [&[Self::Element]; 2]) -> [u32; SIDE];
}

/// Two bf16 in a word, as the instructions for bf16 expect.
pub enum Pairs {}

impl Packing for Pairs {
    type Element = bf16;
    const IN_WORD: usize = 2;

    #[inline(always)]
    fn along(elements: &[bf16]) -> [u32; SIDE] {
        let elements = padded::<_, { 2 * SIDE }>(elements);
        core::array::from_fn(|word| pair(elements[2 * word], elements[2 * word + 1]))
    }

    #[inline(always)]
    fn across([first, second]: [&[bf16]; 2]) -> [u32; SIDE] {
        let (first, second) = (padded::<_, SIDE>(first), padded::<_, SIDE>(second));
        core::array::from_fn(|word| pair(first[word], second[word]))
    }
}

#[inline(always)]
fn pair(first: bf16, second: bf16) -> u32 {
    u32::from(first.to_bits()) | u32::from(second.to_bits()) << 16
}

/// The bits of one f32 in a word.
pub struct Widened<E>(E);

impl<E: Element> Packing for Widened<E> {
    type Element = E;
    const IN_WORD: usize = 1;

    #[inline(always)]
    fn along(elements: &[E]) -> [u32; SIDE] {
        padded::<_, SIDE>(elements).map(|element| element.widen().to_bits())
    }

    #[inline(always)]
    fn across([elements, _]: [&[E]; 2]) -> [u32; SIDE] {
        Self::along(elements)
    }
}

/// At most N elements, followed by zeros.
#[inline(always)]
fn padded<E: Element, const N: usize>(elements: &[E]) -> [E; N] {
    match elements.first_chunk() {
        Some(elements) => *elements,
        None => {
            let mut all = [E::zeroed(); N];
            all[..elements.len()].copy_from_slice(elements);
            all
        }
    }
}

/// The meaning of the rows of a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Rows of the matrix.
    Rows,
    /// Indices of the common dimension.
    Depth,
}

/// Packs `matrix`, or the transpose of a right operand: its rows in strips, and within each strip its columns cell by
/// cell. `to` may have more strips than there are rows.
pub fn pack<P: Packing>(matrix: StridedMatrix<P::Element>, order: Order, to: &mut [Cell]) {
    let cells = cells_of::<P>(matrix.cols());
    let strips = to.len() / cells;
    vectorised(
        #[inline(always)]
        || {
            // In the direction that is contiguous in memory, so that every cache line is read once.
            if matrix.has_rows() {
                for (at, to) in to.iter_mut().enumerate() {
                    pack_along::<P>(matrix, order, [at / cells, at % cells], to);
                }
            } else {
                let turned = matrix.transposed();
                for at in 0..cells * strips {
                    let (cell, strip) = (at / strips, at % strips);
                    pack_across::<P>(turned, order, [strip, cell], &mut to[strip * cells + cell]);
                }
            }
        },
    );
}

/// Cells of a strip with this many elements.
pub fn cells_of<P: Packing>(elements: usize) -> usize {
    elements.div_ceil(SIDE * P::IN_WORD)
}

/// Packs a cell of a strip whose rows are contiguous in memory.
#[inline(always)]
fn pack_along<P: Packing>(matrix: StridedMatrix<P::Element>, order: Order, [strip, cell]: [usize; 2], to: &mut Cell) {
    let (first, col) = (strip * SIDE, cell * SIDE * P::IN_WORD);
    let cols = (SIDE * P::IN_WORD).min(matrix.cols() - col);
    for (row, to) in (first..first + SIDE).zip(&mut to.0) {
        *to = if row < matrix.rows() { P::along(matrix.row(row, col, cols)) } else { [0; SIDE] };
    }
    if order == Order::Depth {
        transpose(&mut to.0);
    }
}

/// Packs a cell of a strip whose columns are contiguous in memory: they are rows of `turned`.
#[inline(always)]
fn pack_across<P: Packing>(turned: StridedMatrix<P::Element>, order: Order, [strip, cell]: [usize; 2], to: &mut Cell) {
    let (col, first) = ((strip * SIDE).min(turned.cols()), cell * SIDE * P::IN_WORD);
    let cols = SIDE.min(turned.cols() - col);
    let places = |place: usize| if place < turned.rows() { turned.row(place, col, cols) } else { &[] };
    for (word, to) in to.0.iter_mut().enumerate() {
        let place = first + word * P::IN_WORD;
        *to = P::across([places(place), places(place + 1)]);
    }
    if order == Order::Rows {
        transpose(&mut to.0);
    }
}
