//! Shape: all properties of a product that decide how it is computed. Never asks the library.

use std::fmt;

use zero_plan::Width;

use crate::Cuda;
use crate::lengths::check_len;
use zero_core::device::{Element, Matrix};

/// The library distinguishes no coarser alignment.
pub(crate) const ALIGNMENT_MAX: u32 = 256;

/// A row-major (rows, cols) matrix: everything that the library knows about it except its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Operand {
    pub width: Width,
    pub rows: usize,
    pub cols: usize,
    pub is_transposed: bool,
    /// The alignment of its address.
    pub alignment: u32,
}

/// The largest power of two, up to [`ALIGNMENT_MAX`], that divides an address.
pub(crate) fn alignment_of(address: u64) -> u32 {
    1 << address.trailing_zeros().min(ALIGNMENT_MAX.trailing_zeros())
}

impl Operand {
    pub fn new(width: Width, [rows, cols]: [usize; 2], is_transposed: bool, address: u64) -> Self {
        Self { width, rows, cols, is_transposed, alignment: alignment_of(address) }
    }

    pub fn of<E: Element>(matrix: &Matrix<Cuda, E>) -> (Self, u64) {
        check_len("a matrix", matrix.view.len(), matrix.rows * matrix.cols);
        let address = matrix.view.address().addr() as u64;
        (Self::new(E::WIDTH, [matrix.rows, matrix.cols], matrix.transposed, address), address)
    }

    pub fn size(&self) -> [usize; 2] {
        if self.is_transposed { [self.cols, self.rows] } else { [self.rows, self.cols] }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [rows, cols] = self.size();
        let width = if self.width == Width::F32 { "f32" } else { "bf16" };
        let transposed = if self.is_transposed { ", transposed" } else { "" };
        write!(f, "({rows}, {cols}) of {width}{transposed}")
    }
}

/// The properties that decide how a product is computed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ProductShape {
    pub c: Operand,
    pub a: Operand,
    pub b: Operand,
    /// The alignment of the added numbers, if there are any; they have the shape of the result.
    pub added: Option<u32>,
    pub has_bias: bool,
    pub workspace_bytes: usize,
}

impl fmt::Display for ProductShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {} to {}", self.a, self.b, self.c)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operand_knows_its_alignment() {
        let alignment = |address| Operand::new(Width::F32, [1, 1], false, address).alignment;
        assert_eq!([0x1000, 0x1100, 0x1010, 0x1002, 0x1001].map(alignment), [256, 256, 16, 2, 1]);
    }

    #[test]
    fn a_product_is_told_by_its_shapes() {
        let operand = |width, rows, cols, is_transposed| Operand::new(width, [rows, cols], is_transposed, 0);
        let (a, b) = (operand(Width::BF16, 3, 2, true), operand(Width::BF16, 3, 5, false));
        let c = operand(Width::F32, 2, 5, false);
        let shape = ProductShape { c, a, b, added: None, has_bias: false, workspace_bytes: 0 };
        assert_eq!(shape.to_string(), "(2, 3) of bf16, transposed by (3, 5) of bf16 to (2, 5) of f32");
    }
}
