//! Product: matrix products by cublasLt. It is asked once how to compute a product of some shape, and all later
//! products of that shape are computed in the same way, so that they have the same bits and the host decides nothing.
//! Takes no memory except the workspace.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::cublaslt::sys as lt;
use cudarc::cublaslt::sys::cublasLtMatmulAlgoConfigAttributes_t as Setting;
use cudarc::cublaslt::sys::cublasLtMatmulDescAttributes_t as Attribute;
use cudarc::cublaslt::sys::cublasLtMatmulPreferenceAttributes_t as Preference;
use zero_plan::Width;

use super::Cuda;
use super::context::DeviceContext;
use super::elementwise::{self, check_len, divided};
use super::error::CudaError;
use super::library::{CallStatus, Suggestion};
use crate::device::{Element, Matrix, Then, Write};
use crate::view::{View, ViewMut};

/// Sums over cut depths: in f32, in the workspace, and rounded once with the result. The other schemes add in the width
/// of the result, which would round each part.
const REDUCTION: u32 = lt::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;

/// The number of ways that the library is asked for; the first usable one is taken.
const SUGGESTIONS: usize = 8;

/// The library considers no coarser alignment.
const ALIGNMENT_MAX: u32 = 256;

/// The address of a bias must be a multiple of this for a product to add it.
const BIAS_ALIGNMENT: u64 = 16;

/// All settings of a way.
const SETTINGS: [Setting; 9] = [
    Setting::CUBLASLT_ALGO_CONFIG_ID,
    Setting::CUBLASLT_ALGO_CONFIG_TILE_ID,
    Setting::CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
    Setting::CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
    Setting::CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
    Setting::CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION,
    Setting::CUBLASLT_ALGO_CONFIG_STAGES_ID,
    Setting::CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID,
    Setting::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,
];

/// A row-major (rows, cols) matrix: everything that the library knows about it except its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Operand {
    width: Width,
    rows: usize,
    cols: usize,
    is_transposed: bool,
    /// That of its address.
    alignment: u32,
}

/// The largest power of two up to [`ALIGNMENT_MAX`] that an address is a multiple of.
fn alignment_of(address: u64) -> u32 {
    1 << address.trailing_zeros().min(ALIGNMENT_MAX.trailing_zeros())
}

impl Operand {
    fn new(width: Width, [rows, cols]: [usize; 2], is_transposed: bool, address: u64) -> Self {
        Self { width, rows, cols, is_transposed, alignment: alignment_of(address) }
    }

    fn of<E: Element>(matrix: &Matrix<Cuda, E>) -> (Self, u64) {
        check_len("a matrix", matrix.view.len(), matrix.rows * matrix.cols);
        let address = matrix.view.address().addr() as u64;
        (Self::new(E::WIDTH, [matrix.rows, matrix.cols], matrix.transposed, address), address)
    }

    fn size(&self) -> [usize; 2] {
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
struct ProductShape {
    c: Operand,
    a: Operand,
    b: Operand,
    /// The alignment of what is added, if anything is: numbers of the shape of the result.
    added: Option<u32>,
    has_bias: bool,
    workspace_bytes: usize,
}

impl fmt::Display for ProductShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {} to {}", self.a, self.b, self.c)
    }
}

/// A way to compute a product.
struct ProductWay {
    operation: lt::cublasLtMatmulDesc_t,
    /// Layouts of the library's first operand, its second, and the result, which is also that of what is added.
    layouts: [lt::cublasLtMatrixLayout_t; 3],
    algorithm: lt::cublasLtMatmulAlgo_t,
    /// The values of [`SETTINGS`].
    settings: [u64; SETTINGS.len()],
    workspace_bytes: usize,
}

/// The library's part of a device, and the ways that it has named.
pub(super) struct Products {
    context: Arc<DeviceContext>,
    handle: lt::cublasLtHandle_t,
    ways: HashMap<ProductShape, ProductWay>,
}

fn width(width: Width) -> lt::cudaDataType {
    match width {
        Width::F32 => lt::cudaDataType_t::CUDA_R_32F,
        Width::BF16 => lt::cudaDataType_t::CUDA_R_16BF,
    }
}

fn said(call: &str, status: CallStatus) -> Result<(), String> {
    // The library's own texts for these are just their names.
    let meaning = match status {
        0 => return Ok(()),
        1 => "it was not initialised",
        3 => "it has no memory left",
        7 => "a value was refused",
        8 => "the device cannot do it",
        13 => "the device failed",
        15 => "it has no way to do it",
        _ => "its documentation says why",
    };
    Err(format!("`{call}` gave status {status}: {meaning}"))
}

impl Products {
    /// Opens the library for a device.
    pub fn new(context: &Arc<DeviceContext>) -> Result<Self, CudaError> {
        context.enter()?;
        let mut products = Self::none(context);
        // SAFETY: room for a handle.
        let status = unsafe { (context.libraries.blas.cublasLtCreate)(&mut products.handle) };
        let failed = |reason| CudaError::Call { call: "cublasLtCreate", ordinal: context.ordinal, reason };
        said("cublasLtCreate", status).map_err(failed).map(|()| products)
    }

    /// For a handle that multiplies nothing.
    pub fn none(context: &Arc<DeviceContext>) -> Self {
        Self { context: Arc::clone(context), handle: null_mut(), ways: HashMap::new() }
    }

    /// A hash of all ways so far, independent of their order: equal where products have equal bits.
    fn fingerprint(&self) -> u64 {
        let hash = |(shape, way): (&ProductShape, &ProductWay)| {
            let mut hasher = blake3::Hasher::new();
            let operands = [shape.c, shape.a, shape.b];
            let alignments = operands.map(|operand| operand.alignment);
            hasher.update(format!("{shape} {alignments:?} {:?} {}", shape.added, shape.has_bias).as_bytes());
            // The algorithm itself may hold bytes that mean nothing, and differ from one process to the next.
            hasher.update(bytemuck::cast_slice(&way.settings));
            u64::from_le_bytes(hasher.finalize().as_bytes()[..8].try_into().expect("eight bytes"))
        };
        self.ways.iter().map(hash).fold(self.context.blas_version(), u64::wrapping_add)
    }

    /// The way to compute a product of this shape.
    fn way(&mut self, shape: ProductShape) -> Result<&ProductWay, CudaError> {
        if !self.ways.contains_key(&shape) {
            let way = self.find(&shape).map_err(|reason| {
                let product = shape.to_string();
                CudaError::Product { product, ordinal: self.context.ordinal, reason }
            })?;
            self.ways.insert(shape, way);
        }
        Ok(&self.ways[&shape])
    }

    fn find(&self, shape: &ProductShape) -> Result<ProductWay, String> {
        let blas = &self.context.libraries.blas;
        let mut way = ProductWay {
            operation: null_mut(),
            layouts: [null_mut(); 3],
            algorithm: lt::cublasLtMatmulAlgo_t { data: [0; 8] },
            settings: [0; SETTINGS.len()],
            workspace_bytes: 0,
        };
        let found = self.describe(shape, &mut way).and_then(|()| self.choose(shape, &mut way));
        if let Err(reason) = found {
            // SAFETY: made only for this way.
            unsafe { way.drop(blas) };
            return Err(reason);
        }
        Ok(way)
    }

    /// The library's matrices are column-major, so ours look transposed to it. It therefore multiplies in the other
    /// order, c^T = b^T a^T, and the transposed flags stay the same.
    fn describe(&self, shape: &ProductShape, way: &mut ProductWay) -> Result<(), String> {
        let blas = &self.context.libraries.blas;
        // In f32, whatever the width of the operands; operands of f32 are not shortened to any other width.
        let compute = lt::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        // SAFETY: room for a handle.
        let status =
            unsafe { (blas.cublasLtMatmulDescCreate)(&mut way.operation, compute, lt::cudaDataType_t::CUDA_R_32F) };
        said("cublasLtMatmulDescCreate", status)?;
        let transposed = |operand: Operand| if operand.is_transposed { 1i32 } else { 0 };
        self.set(way, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &transposed(shape.b))?;
        self.set(way, Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &transposed(shape.a))?;
        if shape.has_bias {
            let bias = lt::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as u32;
            self.set(way, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &bias)?;
            // The way is chosen with an address that is aligned like those that follow.
            self.set(way, Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &BIAS_ALIGNMENT)?;
        }
        for (layout, operand) in way.layouts.iter_mut().zip([shape.b, shape.a, shape.c]) {
            let (rows, cols) = (operand.cols as u64, operand.rows as u64);
            // SAFETY: room for a handle.
            let status =
                unsafe { (blas.cublasLtMatrixLayoutCreate)(layout, width(operand.width), rows, cols, rows as i64) };
            said("cublasLtMatrixLayoutCreate", status)?;
        }
        Ok(())
    }

    /// Sets an attribute of an operation to a number, or to an address.
    fn set<T>(&self, way: &ProductWay, attribute: Attribute, value: &T) -> Result<(), String> {
        let set = self.context.libraries.blas.cublasLtMatmulDescSetAttribute;
        // SAFETY: an operation that exists, and a value of the given length.
        let status = unsafe { set(way.operation, attribute, std::ptr::from_ref(value).cast(), size_of::<T>()) };
        said("cublasLtMatmulDescSetAttribute", status)
    }

    fn choose(&self, shape: &ProductShape, way: &mut ProductWay) -> Result<(), String> {
        let blas = &self.context.libraries.blas;
        let mut preference = null_mut();
        // SAFETY: room for a handle.
        let status = unsafe { (blas.cublasLtMatmulPreferenceCreate)(&mut preference) };
        said("cublasLtMatmulPreferenceCreate", status)?;
        let chosen = self.prefer(shape, preference).and_then(|()| self.ask(way, preference));
        // SAFETY: made above, and used nowhere after. There is nobody to tell a failure.
        let _ = unsafe { (blas.cublasLtMatmulPreferenceDestroy)(preference) };
        let suggestion = chosen?;
        (way.algorithm, way.workspace_bytes) = (suggestion.algorithm, suggestion.workspace_bytes);
        for (to, setting) in way.settings.iter_mut().zip(SETTINGS) {
            *to = self.setting(&way.algorithm, setting)?;
        }
        Ok(())
    }

    /// The value of a setting of a way, which is a number of up to eight bytes.
    fn setting(&self, algorithm: &lt::cublasLtMatmulAlgo_t, setting: Setting) -> Result<u64, String> {
        let get = self.context.libraries.blas.cublasLtMatmulAlgoConfigGetAttribute;
        let (mut bytes, mut value) = (0, [0u8; 8]);
        // SAFETY: without room for a value, the library only tells its length; then there is as much room as is said.
        unsafe {
            said("cublasLtMatmulAlgoConfigGetAttribute", get(algorithm, setting, null_mut(), 0, &mut bytes))?;
            let room = bytes.min(value.len());
            let status = get(algorithm, setting, value.as_mut_ptr().cast(), room, &mut bytes);
            said("cublasLtMatmulAlgoConfigGetAttribute", status)?;
        }
        Ok(u64::from_le_bytes(value))
    }

    fn prefer(&self, shape: &ProductShape, preference: lt::cublasLtMatmulPreference_t) -> Result<(), String> {
        let set = self.context.libraries.blas.cublasLtMatmulPreferenceSetAttribute;
        let set = |attribute, value: *const c_void, bytes: usize| {
            // SAFETY: a preference that exists, and a value of the given length.
            said("cublasLtMatmulPreferenceSetAttribute", unsafe { set(preference, attribute, value, bytes) })
        };
        let workspace_bytes = shape.workspace_bytes as u64;
        let workspace = std::ptr::from_ref(&workspace_bytes).cast();
        set(Preference::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace, size_of::<u64>())?;
        let alignments = [
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.b.alignment),
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.a.alignment),
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.added.unwrap_or(shape.c.alignment)),
            (Preference::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.c.alignment),
        ];
        let reduction = (Preference::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, REDUCTION);
        alignments
            .into_iter()
            .chain([reduction])
            .try_for_each(|(attribute, value)| set(attribute, std::ptr::from_ref(&value).cast(), size_of::<u32>()))
    }

    /// The first way that the library says can be used.
    fn ask(&self, way: &ProductWay, preference: lt::cublasLtMatmulPreference_t) -> Result<Suggestion, String> {
        let nothing = Suggestion {
            algorithm: lt::cublasLtMatmulAlgo_t { data: [0; 8] },
            workspace_bytes: 0,
            status: 0,
            waves: 0.0,
            reserved: [0; 4],
        };
        let (mut found, mut count): (_, c_int) = ([nothing; SUGGESTIONS], 0);
        let [first, second, result] = way.layouts;
        let most = SUGGESTIONS as c_int;
        // SAFETY: the descriptions of the product exist, and there is room for as many ways as are asked for.
        let status = unsafe {
            let ask = self.context.libraries.blas.cublasLtMatmulAlgoGetHeuristic;
            let found = found.as_mut_ptr();
            ask(self.handle, way.operation, first, second, result, result, preference, most, found, &mut count)
        };
        said("cublasLtMatmulAlgoGetHeuristic", status)?;
        let count = usize::try_from(count).unwrap_or(0).min(SUGGESTIONS);
        found[..count]
            .iter()
            .find(|suggestion| suggestion.status == 0)
            .copied()
            .ok_or_else(|| "it has no way".to_owned())
    }
}

impl ProductWay {
    /// # Safety
    /// Its handles are used nowhere after.
    unsafe fn drop(&self, blas: &super::library::Blas) {
        // SAFETY: by the caller's promise; made by `describe`. There is nobody to tell a failure.
        unsafe {
            for &layout in self.layouts.iter().filter(|layout| !layout.is_null()) {
                let _ = (blas.cublasLtMatrixLayoutDestroy)(layout);
            }
            if !self.operation.is_null() {
                let _ = (blas.cublasLtMatmulDescDestroy)(self.operation);
            }
        }
    }
}

impl Drop for Products {
    fn drop(&mut self) {
        let blas = &self.context.libraries.blas;
        if self.handle.is_null() || !self.context.settle() {
            return;
        }
        // SAFETY: no queue multiplies any more. There is nobody to tell a failure.
        unsafe {
            self.ways.values().for_each(|way| way.drop(blas));
            if !self.handle.is_null() {
                let _ = (blas.cublasLtDestroy)(self.handle);
            }
        }
    }
}

impl Cuda {
    /// A hash of how all products so far were computed: ranks that differ in it would differ in bits.
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

/// Bytes of the workspace that a bias may be copied to, after those of the product.
fn bias_bytes(width: Width, output: usize) -> usize {
    (output * width.bytes()).next_multiple_of(ALIGNMENT_MAX as usize)
}

/// The address of a bias, or of a copy of it where a product can add it. Every product with a bias is then computed in
/// one way, so that its bits do not depend on where the bias lies.
fn aligned_bias<E: Element>(cuda: &Cuda, bias: View<Cuda, E>) -> u64 {
    let at = bias.address().addr() as u64;
    if at.is_multiple_of(BIAS_ALIGNMENT) {
        return at;
    }
    let (workspace, len) = cuda.scratch();
    let needed = bias_bytes(E::WIDTH, bias.len());
    assert!(needed <= len || cuda.has_failed(), "{needed} bytes of workspace, of which there are {len}");
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
    // Not within the product, because its own nonlinearities are approximated differently.
    then.apply(cuda, y);
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
