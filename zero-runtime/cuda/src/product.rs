//! Product: matrix products by cublasLt. The library chooses once how to compute a product of some shape, and all later
//! products of that shape are computed in the same way. So they have the same bits, and the host decides nothing. Takes
//! no memory except the workspace.
#![allow(unsafe_code)]

use std::ffi::c_void;

use cudarc::cublaslt::sys::cublasLtMatmulDescAttributes_t as Attribute;
use zero_plan::Width;

use super::Cuda;
use super::elementwise;
use super::error::CudaError;
use super::handle::shape::{ALIGNMENT_MAX, Operand, ProductShape, alignment_of};
use super::handle::ways::{BIAS_ALIGNMENT, said};
use super::lengths::{check_len, divided};
use zero_core::device::{Element, Matrix, Then, Write};
use zero_core::view::{View, ViewMut};

impl Cuda {
    /// A hash of how all products so far were computed: ranks with different hashes would compute different bits.
    pub fn products(&self) -> u64 {
        self.products.borrow().fingerprint()
    }
}

/// The addresses of a product's operands.
#[derive(Clone, Copy, Hash)]
struct Addresses {
    c: u64,
    a: u64,
    b: u64,
    added: Option<u64>,
    bias: Option<u64>,
}

/// Bytes of the workspace that a bias may be copied to, after the workspace of the product.
fn bias_bytes(width: Width, output: usize) -> usize {
    (output * width.bytes()).next_multiple_of(ALIGNMENT_MAX as usize)
}

/// The address of a bias, or of a copy at an address from which a product can add it. Every product with a bias is then
/// computed in one way, so that its bits do not depend on the address of the bias.
fn aligned_bias<E: Element>(cuda: &Cuda, bias: View<Cuda, E>) -> u64 {
    let at = bias.address().addr() as u64;
    if at.is_multiple_of(BIAS_ALIGNMENT) {
        return at;
    }
    let (workspace, len) = cuda.scratch();
    let needed = bias_bytes(E::WIDTH, bias.len());
    assert!(needed <= len || cuda.has_failed(), "{needed} bytes of workspace, but it has only {len}");
    let copy = workspace + len.saturating_sub(needed) as u64;
    elementwise::copy_bytes(cuda, copy, at, bias.len() * size_of::<E>());
    copy
}

fn multiply(cuda: &Cuda, [c, a, b]: [Operand; 3], at: Addresses) {
    let (workspace, mut workspace_bytes) = cuda.scratch();
    if at.bias.is_some() {
        workspace_bytes = workspace_bytes.saturating_sub(bias_bytes(c.width, c.cols));
    }
    let added = at.added.map(alignment_of);
    let shape = ProductShape { c, a, b, added, has_bias: at.bias.is_some(), workspace_bytes };
    cuda.attempt_always(|| cuda.products.borrow_mut().way(shape).map(drop));
    cuda.call(("product", shape, at, workspace), || {
        let (products, stream) = (cuda.products.borrow(), cuda.stream());
        let handle = products.handle;
        let way = &products.ways[&shape];
        let failed = |reason| CudaError::Product { product: shape.to_string(), ordinal: cuda.context.ordinal, reason };
        if let Some(bias) = at.bias {
            products.set(way, Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias).map_err(failed)?;
        }
        let (alpha, beta) = (1.0f32, if at.added.is_some() { 1.0f32 } else { 0.0 });
        let [first, second, result] = way.layouts;
        let pointer = |address: u64| std::ptr::without_provenance_mut::<c_void>(address as usize);
        // SAFETY: operands of the lengths that were checked, a way that the library has suggested for them, and the
        // workspace of the product's queue, which is at least as long as the way needs.
        let status = unsafe {
            (cuda.context.libraries.blas.cublasLtMatmul)(
                handle,
                way.operation,
                (&raw const alpha).cast(),
                pointer(at.b),
                first,
                pointer(at.a),
                second,
                (&raw const beta).cast(),
                pointer(at.added.unwrap_or(at.c)),
                result,
                pointer(at.c),
                result,
                &raw const way.algorithm,
                pointer(workspace),
                way.workspace_bytes,
                stream,
            )
        };
        said("cublasLtMatmul", status).map_err(failed)
    });
}

pub(super) fn matmul<O: Element, E: Element>(
    cuda: &Cuda,
    c: ViewMut<Cuda, O>,
    a: Matrix<Cuda, E>,
    b: Matrix<Cuda, E>,
    write: Write,
) {
    let ((a, a_at), (b, b_at)) = (Operand::of(&a), Operand::of(&b));
    let ([rows, depth], [b_rows, cols]) = (a.size(), b.size());
    assert!(depth == b_rows, "`b` has {b_rows} rows, expected {depth}");
    check_len("c", c.len(), rows * cols);
    if c.is_empty() {
        return;
    }
    if depth == 0 {
        return if write == Write::Set {
            elementwise::fill(cuda, c, O::narrow(0.0))
        };
    }
    let c_at = c.address().addr() as u64;
    let c = Operand::new(O::WIDTH, [rows, cols], false, c_at);
    let added = (write == Write::Add).then_some(c_at);
    multiply(cuda, [c, a, b], Addresses { c: c_at, a: a_at, b: b_at, added, bias: None });
}

pub(super) fn linear<E: Element>(
    cuda: &Cuda,
    mut y: ViewMut<Cuda, E>,
    x: View<Cuda, E>,
    weight: Matrix<Cuda, E>,
    bias: Option<View<Cuda, E>>,
    then: Then<Cuda, E>,
) {
    let [output, input] = weight.size();
    let rows = divided("y", y.len(), output);
    check_len("x", x.len(), rows * input);
    check_len("bias", bias.map_or(output, |bias| bias.len()), output);
    match &then {
        Then::Nothing => {}
        Then::Activate(_, z) => check_len("z", z.len(), y.len()),
        Then::Add(other) => check_len("other", other.len(), y.len()),
    }
    if y.is_empty() {
        return;
    }
    if input == 0 {
        match bias {
            None => elementwise::fill(cuda, y.reborrow(), E::narrow(0.0)),
            Some(bias) => elementwise::broadcast(cuda, y.reborrow(), bias),
        }
        return then.apply(cuda, y);
    }
    let x = Matrix::new(x, rows, input);
    let ((a, a_at), (b, b_at)) = (Operand::of(&x), Operand::of(&weight.transposed()));
    let y_at = y.address().addr() as u64;
    let c = Operand::new(E::WIDTH, [rows, output], false, y_at);
    let bias = bias.map(|bias| aligned_bias(cuda, bias));
    let (added, then) = match then {
        Then::Add(other) => (Some(other.address().addr() as u64), Then::Nothing),
        then => (None, then),
    };
    multiply(cuda, [c, a, b], Addresses { c: y_at, a: a_at, b: b_at, added, bias });
    // Not within the product, because the library approximates nonlinearities differently.
    then.apply(cuda, y);
}
