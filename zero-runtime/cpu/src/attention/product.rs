//! Product: small matrix products on strided operands in the first cache levels, where packing them as `gemm` does
//! would cost as much as the product. Sums run along the depth, one term after another, regardless of the machine's
//! vectors.
#![allow(unsafe_code)]

use pulp::{Simd, WithSimd};

use crate::simd::{dispatch, vector};
use zero_core::device::{Element, Write};

/// Rows to read, each contiguous, `stride` after the one before.
#[derive(Clone, Copy)]
pub struct Rows<E> {
    pub start: *const E,
    pub stride: usize,
}

/// Rows to write, each contiguous, `stride` after the one before.
#[derive(Clone, Copy)]
pub struct RowsMut<E> {
    pub start: *mut E,
    pub stride: usize,
}

/// A left operand: element (i, j) lies at `start` + i * `row` + j * `col`.
#[derive(Clone, Copy)]
pub struct Left {
    start: *const f32,
    row: usize,
    col: usize,
}

impl Rows<f32> {
    /// These rows as a left operand.
    pub fn left(self) -> Left {
        Left { start: self.start, row: self.stride, col: 1 }
    }

    /// The transpose of these rows as a left operand.
    pub fn transposed(self) -> Left {
        Left { start: self.start, row: 1, col: self.stride }
    }
}

impl<E> RowsMut<E> {
    /// The rows from number `first` on. If there are none, the address is not in any object.
    pub fn skip(self, first: usize) -> Self {
        Self { start: self.start.wrapping_add(first * self.stride), ..self }
    }
}

/// The size of a product.
#[derive(Clone, Copy)]
pub struct ProductSize {
    pub rows: usize,
    pub depth: usize,
    pub cols: usize,
}

/// `c` (rows, cols) := or += `a` (rows, depth) `b` (depth, cols). `b` is widened as it is read, because each of its
/// vectors serves several rows of `a`, while elements of `a` would be widened one by one.
///
/// # Safety
/// During the call, every element of `a` and `b` can be read and every element of `c` written, and nobody else uses the
/// elements of `c`. `Write::Set` does not read `c`.
pub unsafe fn product<E: Element>(size: ProductSize, a: Left, b: Rows<E>, c: RowsMut<f32>, write: Write) {
    dispatch(Product { size, a, b, c, write });
}

struct Product<E> {
    size: ProductSize,
    a: Left,
    b: Rows<E>,
    c: RowsMut<f32>,
    write: Write,
}

impl<E: Element> WithSimd for Product<E> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let mut col = 0;
        while self.size.cols - col >= 2 * S::F32_LANES {
            self.panel::<S, 2>(simd, col, S::F32_LANES);
            col += 2 * S::F32_LANES;
        }
        while col < self.size.cols {
            let width = S::F32_LANES.min(self.size.cols - col);
            self.panel::<S, 1>(simd, col, width);
            col += width;
        }
    }
}

impl<E: Element> Product<E> {
    /// All rows of N vectors of columns from `col`, the last of which is `width` wide.
    #[inline(always)]
    fn panel<S: Simd, const N: usize>(&self, simd: S, col: usize, width: usize) {
        let mut row = 0;
        // As many sums as registers hold besides the operands.
        if S::REGISTER_COUNT >= 32 {
            while self.size.rows - row >= 8 {
                self.tile::<S, 8, N>(simd, row, col, width);
                row += 8;
            }
        }
        while self.size.rows - row >= 4 {
            self.tile::<S, 4, N>(simd, row, col, width);
            row += 4;
        }
        while row < self.size.rows {
            self.tile::<S, 1, N>(simd, row, col, width);
            row += 1;
        }
    }

    /// M rows from `row` of N vectors of columns from `col`.
    #[inline(always)]
    fn tile<S: Simd, const M: usize, const N: usize>(&self, simd: S, row: usize, col: usize, width: usize) {
        let Self { size, a, b, c, write } = self;
        let mut sums = [[simd.splat_f32s(0.0); N]; M];
        for k in 0..size.depth {
            // SAFETY: row k of `b` and column k of `a` within this tile, which the caller of `product` lets us read.
            unsafe {
                let b = load::<S, E, N>(simd, b.start.add(k * b.stride + col), width);
                for (m, sums) in sums.iter_mut().enumerate() {
                    let a = simd.splat_f32s(*a.start.add((row + m) * a.row + k * a.col));
                    for (sum, &b) in sums.iter_mut().zip(&b) {
                        *sum = simd.mul_add_f32s(a, b, *sum);
                    }
                }
            }
        }
        for (m, sums) in sums.into_iter().enumerate() {
            // SAFETY: row `row + m` of `c` within this tile, which is ours; it is read only if the product is added to it.
            unsafe {
                let to = c.start.add((row + m) * c.stride + col);
                let sums = match write {
                    Write::Set => sums,
                    Write::Add => {
                        let before = load::<S, f32, N>(simd, to, width);
                        core::array::from_fn(|n| simd.add_f32s(before[n], sums[n]))
                    }
                };
                store::<S, N>(simd, to, width, sums);
            }
        }
    }
}

/// N vectors, the last of which is `width` wide.
///
/// # Safety
/// They can be read.
#[inline(always)]
unsafe fn load<S: Simd, E: Element, const N: usize>(simd: S, from: *const E, width: usize) -> [S::f32s; N] {
    let mut vectors = [simd.splat_f32s(0.0); N];
    // A loop, because the closure of `from_fn` might not be inlined, and then would not be compiled for these vectors.
    for (n, to) in vectors.iter_mut().enumerate() {
        // SAFETY: by the caller's promise; a whole vector is read only if the width is a whole vector.
        unsafe {
            let from = from.add(n * S::F32_LANES);
            // Constant length where possible.
            *to = match width == S::F32_LANES {
                true => vector(simd, core::slice::from_raw_parts(from, S::F32_LANES)),
                false => vector(simd, core::slice::from_raw_parts(from, width)),
            };
        }
    }
    vectors
}

/// # Safety
/// They can be written.
#[inline(always)]
unsafe fn store<S: Simd, const N: usize>(simd: S, to: *mut f32, width: usize, vectors: [S::f32s; N]) {
    for (n, vector) in vectors.into_iter().enumerate() {
        // SAFETY: by the caller's promise; a whole vector is written only if the width is a whole vector.
        unsafe {
            let to = to.add(n * S::F32_LANES);
            if width == S::F32_LANES {
                to.cast::<S::f32s>().write_unaligned(vector);
            } else {
                simd.partial_store_f32s(core::slice::from_raw_parts_mut(to, width), vector);
            }
        }
    }
}
