//! Ways: how the library computes a product of each shape; it is asked once for each shape. Never multiplies.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::cublaslt::sys as lt;
use cudarc::cublaslt::sys::cublasLtMatmulAlgoConfigAttributes_t as Setting;
use cudarc::cublaslt::sys::cublasLtMatmulDescAttributes_t as Attribute;
use cudarc::cublaslt::sys::cublasLtMatmulPreferenceAttributes_t as Preference;
use zero_plan::Width;

use super::shape::{Operand, ProductShape};
use crate::context::DeviceContext;
use crate::error::CudaError;
use crate::library::{Blas, CallStatus, Suggestion};

/// The address of a bias must be a multiple of this for a product to add it.
pub(crate) const BIAS_ALIGNMENT: u64 = 16;

/// Sums over cut depths: in f32, in the workspace, and rounded once with the result. The other schemes add in the width
/// of the result, which would round each part.
const REDUCTION: u32 = lt::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;

/// The number of ways that the library is asked for; the first usable way is taken.
const SUGGESTIONS: usize = 8;

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

/// A way to compute a product.
pub(crate) struct ProductWay {
    pub operation: lt::cublasLtMatmulDesc_t,
    /// Layouts of the library's first operand, its second, and the result; added numbers have the layout of the result.
    pub layouts: [lt::cublasLtMatrixLayout_t; 3],
    pub algorithm: lt::cublasLtMatmulAlgo_t,
    /// The values of [`SETTINGS`].
    settings: [u64; SETTINGS.len()],
    pub workspace_bytes: usize,
}

/// The library's part of a device, and the ways that it has returned.
pub(crate) struct Products {
    context: Arc<DeviceContext>,
    pub(crate) handle: lt::cublasLtHandle_t,
    pub(crate) ways: HashMap<ProductShape, ProductWay>,
}

fn width(width: Width) -> lt::cudaDataType {
    match width {
        Width::F32 => lt::cudaDataType_t::CUDA_R_32F,
        Width::BF16 => lt::cudaDataType_t::CUDA_R_16BF,
    }
}

pub(crate) fn said(call: &str, status: CallStatus) -> Result<(), String> {
    // The library's own texts for these are only their names.
    let meaning = match status {
        0 => return Ok(()),
        1 => "it was not initialised",
        3 => "it has no memory left",
        7 => "a value was refused",
        8 => "the device cannot do it",
        13 => "the device failed",
        15 => "it has no algorithm for it",
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

    /// For a handle that never multiplies.
    pub fn none(context: &Arc<DeviceContext>) -> Self {
        Self { context: Arc::clone(context), handle: null_mut(), ways: HashMap::new() }
    }

    /// A hash of all ways so far, independent of their order: it is equal if products have equal bits.
    pub(crate) fn fingerprint(&self) -> u64 {
        let hash = |(shape, way): (&ProductShape, &ProductWay)| {
            let mut hasher = blake3::Hasher::new();
            let operands = [shape.c, shape.a, shape.b];
            let alignments = operands.map(|operand| operand.alignment);
            hasher.update(format!("{shape} {alignments:?} {:?} {}", shape.added, shape.has_bias).as_bytes());
            // The algorithm itself may have bytes without a meaning, which differ from one process to the next.
            hasher.update(bytemuck::cast_slice(&way.settings));
            u64::from_le_bytes(hasher.finalize().as_bytes()[..8].try_into().expect("eight bytes"))
        };
        self.ways.iter().map(hash).fold(self.context.blas_version(), u64::wrapping_add)
    }

    /// The way to compute a product of this shape.
    pub(crate) fn way(&mut self, shape: ProductShape) -> Result<&ProductWay, CudaError> {
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
            // The way is chosen with an address that has the same alignment as later ones.
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
    pub(crate) fn set<T>(&self, way: &ProductWay, attribute: Attribute, value: &T) -> Result<(), String> {
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
        // SAFETY: made above, and not used afterwards. A failure cannot be reported to anybody.
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
        // SAFETY: without room for a value, the library only returns its length; then there is as much room as it said.
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

    /// The first way that the library reports as usable.
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
        // SAFETY: the descriptions of the product exist, and there is room for as many ways as are requested.
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
            .ok_or_else(|| "it has no algorithm".to_owned())
    }
}

impl ProductWay {
    /// # Safety
    /// Its handles are not used afterwards.
    unsafe fn drop(&self, blas: &Blas) {
        // SAFETY: by the caller's promise; made by `describe`. A failure cannot be reported to anybody.
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
        // SAFETY: no queue multiplies any more. A failure cannot be reported to anybody.
        unsafe {
            self.ways.values().for_each(|way| way.drop(blas));
            if !self.handle.is_null() {
                let _ = (blas.cublasLtDestroy)(self.handle);
            }
        }
    }
}
