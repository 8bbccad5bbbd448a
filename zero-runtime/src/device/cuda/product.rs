//! Product: matrix products, which cublasLt does.

use std::sync::Arc;

use super::Cuda;
use super::context::Context;
use super::error::CudaError;
use crate::device::{Element, Matrix, Then, Write};
use crate::view::{View, ViewMut};

/// The library's part of a device.
pub(super) struct Products;

impl Products {
    pub fn new(_context: &Arc<Context>) -> Result<Self, CudaError> {
        Ok(Self)
    }

    pub fn none(_context: &Arc<Context>) -> Self {
        Self
    }
}

pub(super) fn matmul<O: Element, E: Element>(
    cuda: &Cuda,
    _c: ViewMut<Cuda, O>,
    _a: Matrix<Cuda, E>,
    _b: Matrix<Cuda, E>,
    _write: Write,
) {
    cuda.missing("matmul");
}

pub(super) fn linear<E: Element>(
    cuda: &Cuda,
    _y: ViewMut<Cuda, E>,
    _x: View<Cuda, E>,
    _weight: Matrix<Cuda, E>,
    _bias: Option<View<Cuda, E>>,
    _then: Then<Cuda, E>,
) {
    cuda.missing("linear");
}
