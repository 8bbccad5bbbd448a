//! Columns: some columns of a matrix whose other columns are written elsewhere. Never lends two callers the same
//! element.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

use super::parallel::Cut;
use super::simd::divided;

/// Some columns of a row-major matrix, to write.
pub struct ColumnsMut<'a, T> {
    start: *mut T,
    rows: usize,
    width: usize,
    columns: Range<usize>,
    lifetime: PhantomData<&'a mut [T]>,
}

// SAFETY: a unique borrow of the elements in its columns, as `&mut [T]` is.
unsafe impl<T: Send> Send for ColumnsMut<'_, T> {}

impl<'a, T> ColumnsMut<'a, T> {
    /// All columns of a (rows, width) matrix.
    #[track_caller]
    pub fn new(matrix: &'a mut [T], width: usize) -> Self {
        let rows = divided("matrix", matrix.len(), width);
        Self { start: matrix.as_mut_ptr(), rows, width, columns: 0..width, lifetime: PhantomData }
    }

    /// Rows of the matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of the whole matrix.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The range of these columns in the matrix.
    pub fn columns(&self) -> Range<usize> {
        self.columns.clone()
    }

    /// These columns of a row.
    #[inline(always)]
    pub fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: the row is one of the matrix, and `columns` lie within its width. Parts that were cut have different
        // columns, and the borrow of `self` keeps this part from lending any of them twice.
        unsafe {
            std::slice::from_raw_parts_mut(self.start.add(row * self.width + self.columns.start), self.columns.len())
        }
    }
}

/// By columns.
impl<T: Send> Cut for ColumnsMut<'_, T> {
    fn cut(self, at: usize, _: usize) -> (Self, Self) {
        let (left, right) = self.columns.clone().cut(at, self.columns.len());
        (Self { columns: left, ..self }, Self { columns: right, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_their_columns_of_every_row() {
        let mut matrix = [0; 6];
        let (mut left, mut right) = ColumnsMut::new(&mut matrix, 3).cut(1, 3);
        assert_eq!((left.columns(), right.columns(), right.rows(), right.width()), (0..1, 1..3, 2, 3));
        for row in 0..2 {
            left.row(row).fill(1);
            right.row(row).copy_from_slice(&[2, 3]);
        }
        assert_eq!(matrix, [1, 2, 3, 1, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "row 2 of 2")]
    fn a_row_beyond_the_matrix_is_refused() {
        ColumnsMut::new(&mut [0; 6], 3).row(2);
    }
}
