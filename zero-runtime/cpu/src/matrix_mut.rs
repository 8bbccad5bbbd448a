//! Matrix to write: some rows and columns of it, whose other elements are written elsewhere. Never lends two callers the
//! same element.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

use super::matrix::check_extent;
use super::parallel::{Cut, CutBlock};
use super::simd::divided;
use zero_core::device::Element;

/// A block of a row-major matrix, to write: some of its rows and columns, which keep their numbers. Rows do not overlap.
#[derive(Debug)]
pub struct MatrixMut<'a, T = f32> {
    /// Of the whole matrix.
    start: *mut T,
    row_stride: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: a unique borrow of the elements in its rows and columns, as `&mut [T]` is.
unsafe impl<T: Send> Send for MatrixMut<'_, T> {}

impl<'a, T> MatrixMut<'a, T> {
    /// All of `data` as (rows, cols).
    #[track_caller]
    pub fn new(data: &'a mut [T], rows: usize, cols: usize) -> Self {
        super::simd::check_len("matrix", data.len(), rows * cols);
        Self::strided(data, rows, cols, cols)
    }

    /// All of `data`, as rows of this width.
    #[track_caller]
    pub fn of_width(data: &'a mut [T], width: usize) -> Self {
        let rows = divided("matrix", data.len(), width);
        Self::strided(data, rows, width, width)
    }

    /// (rows, cols) at the start of `data`, each row `row_stride` after the one before.
    #[track_caller]
    pub fn strided(data: &'a mut [T], rows: usize, cols: usize, row_stride: usize) -> Self {
        assert!(row_stride >= cols, "rows of {cols} overlap at row stride {row_stride}");
        check_extent(data.len(), rows, cols, row_stride);
        Self { start: data.as_mut_ptr(), row_stride, rows: 0..rows, columns: 0..cols, lifetime: PhantomData }
    }

    /// The numbers of these rows in the whole matrix.
    pub fn rows(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// The numbers of these columns in the whole matrix.
    pub fn columns(&self) -> Range<usize> {
        self.columns.clone()
    }

    /// Elements from one row to the next.
    pub fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// These columns of the row with this number.
    #[inline(always)]
    pub fn row(&mut self, row: usize) -> &mut [T] {
        assert!(self.rows.contains(&row), "row {row} of {:?}", self.rows);
        // SAFETY: the constructors proved that every (row, column) lies within the data. Blocks that were cut share no
        // element, and the borrow of `self` keeps this block from lending any of them twice.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.start.add(row * self.row_stride + self.columns.start),
                self.columns.len(),
            )
        }
    }

    /// The address of the first element of this block; the others lie as [`MatrixMut::row_stride`] says.
    pub(super) fn as_mut_ptr(&mut self) -> *mut T {
        self.start.wrapping_add(self.rows.start * self.row_stride + self.columns.start)
    }

    /// The columns with these numbers.
    pub(super) fn columns_mut(&mut self, columns: Range<usize>) -> MatrixMut<'_, T> {
        assert!(self.columns.start <= columns.start && columns.end <= self.columns.end, "columns of another block");
        MatrixMut { rows: self.rows.clone(), columns, lifetime: PhantomData, ..*self }
    }
}

impl<T: Element> MatrixMut<'_, T> {
    /// The same block, if it is of this type: a width is of one type.
    pub(super) fn known<To: Element>(&mut self) -> Option<MatrixMut<'_, To>> {
        (T::WIDTH == To::WIDTH).then(|| MatrixMut {
            start: self.start.cast(),
            row_stride: self.row_stride,
            rows: self.rows.clone(),
            columns: self.columns.clone(),
            lifetime: PhantomData,
        })
    }
}

impl<T: Send> CutBlock for MatrixMut<'_, T> {
    fn cut_rows(self, at: usize) -> (Self, Self) {
        let (rows, others) = self.rows.clone().cut(at, self.rows.len());
        (Self { rows, columns: self.columns.clone(), ..self }, Self { rows: others, ..self })
    }

    fn cut_columns(self, at: usize) -> (Self, Self) {
        let (columns, others) = self.columns.clone().cut(at, self.columns.len());
        (Self { rows: self.rows.clone(), columns, ..self }, Self { columns: others, ..self })
    }
}

/// By columns.
impl<T: Send> Cut for MatrixMut<'_, T> {
    fn cut(self, at: usize, _: usize) -> (Self, Self) {
        self.cut_columns(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_their_columns_of_their_rows() {
        let mut matrix = [0; 12];
        let (left, mut right) = MatrixMut::strided(&mut matrix, 3, 3, 4).cut_columns(1);
        let (mut first, mut others) = left.cut_rows(1);
        assert_eq!((first.rows(), first.columns(), others.rows(), others.columns()), (0..1, 0..1, 1..3, 0..1));
        assert_eq!((right.rows(), right.columns(), right.row_stride()), (0..3, 1..3, 4));
        first.row(0).fill(1);
        for row in 1..3 {
            others.row(row).fill(2);
        }
        for row in 0..3 {
            right.row(row).copy_from_slice(&[3, 4]);
        }
        assert_eq!(matrix, [1, 3, 4, 0, 2, 3, 4, 0, 2, 3, 4, 0]);
    }

    #[test]
    fn the_address_is_that_of_the_first_element() {
        let mut matrix = [0, 1, 2, 3, 4, 5];
        let (_, below) = MatrixMut::of_width(&mut matrix, 3).cut_rows(1);
        let (_, mut corner) = below.cut_columns(2);
        // SAFETY: an element of the block.
        assert_eq!(unsafe { corner.as_mut_ptr().read() }, 5);
    }

    #[test]
    #[should_panic(expected = "row 2 of 0..2")]
    fn a_row_of_another_block_is_refused() {
        MatrixMut::of_width(&mut [0; 6], 3).row(2);
    }

    #[test]
    #[should_panic(expected = "columns of another block")]
    fn columns_of_another_block_are_refused() {
        MatrixMut::of_width(&mut [0; 6], 3).cut_columns(1).1.columns_mut(0..2);
    }
}
