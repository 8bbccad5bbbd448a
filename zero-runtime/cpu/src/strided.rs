//! Strided: rows with other elements between them, which ops neither read nor write. Never lets two rows overlap.

use super::parallel::Cut;

/// Rows to read: row i is `data[i * stride ..][.. width]`.
#[derive(Clone, Copy)]
pub struct StridedSlice<'a, T> {
    data: &'a [T],
    stride: usize,
    width: usize,
    rows: usize,
}

/// Rows to write, laid out like those of [`StridedSlice`].
pub struct StridedSliceMut<'a, T> {
    data: &'a mut [T],
    stride: usize,
    width: usize,
    rows: usize,
}

/// The number of whole rows of `width` in `len` elements. The last row need not be followed by a whole stride.
#[track_caller]
fn count(len: usize, stride: usize, width: usize) -> usize {
    assert!(0 < width && width <= stride, "rows of {width} elements lie {stride} elements apart");
    if len < width { 0 } else { (len - width) / stride + 1 }
}

impl<'a, T> StridedSlice<'a, T> {
    /// All rows of `data`.
    #[track_caller]
    pub fn new(data: &'a [T], stride: usize, width: usize) -> Self {
        Self { data, stride, width, rows: count(data.len(), stride, width) }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of each row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// One row.
    #[inline(always)]
    pub fn row(&self, row: usize) -> &'a [T] {
        &self.data[row * self.stride..][..self.width]
    }
}

impl<'a, T> StridedSliceMut<'a, T> {
    /// All rows of `data`.
    #[track_caller]
    pub fn new(data: &'a mut [T], stride: usize, width: usize) -> Self {
        let rows = count(data.len(), stride, width);
        Self { data, stride, width, rows }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of each row.
    pub fn width(&self) -> usize {
        self.width
    }

    /// One row.
    #[inline(always)]
    pub fn row(&mut self, row: usize) -> &mut [T] {
        &mut self.data[row * self.stride..][..self.width]
    }

    /// The same rows, to read.
    pub fn as_rows(&self) -> StridedSlice<'_, T> {
        StridedSlice { data: self.data, stride: self.stride, width: self.width, rows: self.rows }
    }
}

/// By rows.
impl<T: Sync> Cut for StridedSlice<'_, T> {
    fn cut(self, at: usize, _: usize) -> (Self, Self) {
        let (left, right) = self.data.split_at((at * self.stride).min(self.data.len()));
        (Self { data: left, rows: at, ..self }, Self { data: right, rows: self.rows - at, ..self })
    }
}

/// By rows.
impl<T: Send> Cut for StridedSliceMut<'_, T> {
    fn cut(self, at: usize, _: usize) -> (Self, Self) {
        let Self { data, stride, width, rows } = self;
        let (left, right) = data.split_at_mut((at * stride).min(data.len()));
        (Self { data: left, stride, width, rows: at }, Self { data: right, stride, width, rows: rows - at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_of_the_first_columns() {
        let data = [0, 1, 2, 3, 4, 5, 6, 7];
        let rows = StridedSlice::new(&data, 3, 2);
        assert_eq!((rows.rows(), rows.row(0), rows.row(2)), (3, &[0, 1][..], &[6, 7][..]));
        assert_eq!([0, 1, 2, 4, 5, 6].map(|len| StridedSlice::new(&data[..len], 3, 2).rows()), [0, 0, 1, 1, 2, 2]);
        for at in 0..=3 {
            let (left, right) = rows.cut(at, 3);
            assert_eq!((left.rows(), right.rows()), (at, 3 - at));
            let found = (0..at).map(|row| left.row(row)).chain((0..3 - at).map(|row| right.row(row)));
            assert_eq!(found.collect::<Vec<_>>(), [[0, 1], [3, 4], [6, 7]]);
        }
    }

    #[test]
    fn what_lies_between_is_left_as_it_is() {
        let mut data = [0; 8];
        let (mut left, mut right) = StridedSliceMut::new(&mut data, 3, 2).cut(1, 3);
        left.row(0).fill(1);
        right.row(1).fill(2);
        assert_eq!((left.width(), right.as_rows().row(1)), (2, &[2, 2][..]));
        assert_eq!(data, [1, 1, 0, 0, 0, 0, 2, 2]);
    }

    #[test]
    #[should_panic(expected = "rows of 3 elements lie 2 elements apart")]
    fn rows_that_overlap_are_refused() {
        StridedSlice::new(&[0; 8], 2, 3);
    }
}
