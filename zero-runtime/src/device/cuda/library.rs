//! Library: finds CUDA's libraries on this machine and looks up every function that is called, before the first call: what
//! is missing is an error with a name. Types are cudarc's; its own loader is not used, as it panics at what is missing, and
//! results are plain numbers here, as a newer library may give one that no enumeration has. Never calls a function.
#![allow(unsafe_code)]
#![allow(non_snake_case, reason = "functions are called as CUDA calls them")]

use std::collections::HashMap;
use std::ffi::{OsString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cudarc::cublaslt::sys as lt;
use cudarc::driver::sys as cu;
use cudarc::nvrtc::sys as rtc;
use libloading::Library;

use super::error::CudaError;
use super::nccl::{Configuration, Name};

/// Folders to look in first, separated by colons.
pub const FOLDERS_VARIABLE: &str = "ZERO_CUDA_LIBRARIES";

/// What a call came to; 0 is success.
pub(super) type Status = c_uint;

/// A struct of the functions of a library.
macro_rules! functions {
    ($(#[$doc:meta])* $name:ident { $($function:ident: fn($($argument:ty),* $(,)?) $(-> $result:ty)?;)* }) => {
        $(#[$doc])*
        pub(super) struct $name {
            $(pub $function: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $name {
            fn of(library: &Opened) -> Result<Self, CudaError> {
                Ok(Self {
                    $($function: {
                        // SAFETY: the type is that of the function of this name in CUDA's headers, as cudarc has it.
                        unsafe { library.function(concat!(stringify!($function), "\0")) }?
                    },)*
                })
            }
        }
    };
}

functions! {
    /// The driver, `libcuda`.
    Driver {
        cuInit: fn(c_uint) -> Status;
        cuDriverGetVersion: fn(*mut c_int) -> Status;
        cuGetErrorName: fn(Status, *mut *const c_char) -> Status;
        cuGetErrorString: fn(Status, *mut *const c_char) -> Status;
        cuDeviceGetCount: fn(*mut c_int) -> Status;
        cuDeviceGet: fn(*mut cu::CUdevice, c_int) -> Status;
        cuDeviceGetName: fn(*mut c_char, c_int, cu::CUdevice) -> Status;
        cuDeviceGetAttribute: fn(*mut c_int, cu::CUdevice_attribute, cu::CUdevice) -> Status;
        cuDevicePrimaryCtxRetain: fn(*mut cu::CUcontext, cu::CUdevice) -> Status;
        cuDevicePrimaryCtxRelease_v2: fn(cu::CUdevice) -> Status;
        cuCtxSetCurrent: fn(cu::CUcontext) -> Status;
        cuMemGetInfo_v2: fn(*mut usize, *mut usize) -> Status;
        cuMemGetAllocationGranularity: fn(
            *mut usize, *const cu::CUmemAllocationProp, cu::CUmemAllocationGranularity_flags,
        ) -> Status;
        cuMemAddressReserve: fn(*mut cu::CUdeviceptr, usize, usize, cu::CUdeviceptr, c_ulonglong) -> Status;
        cuMemAddressFree: fn(cu::CUdeviceptr, usize) -> Status;
        cuMemCreate: fn(
            *mut cu::CUmemGenericAllocationHandle, usize, *const cu::CUmemAllocationProp, c_ulonglong,
        ) -> Status;
        cuMemRelease: fn(cu::CUmemGenericAllocationHandle) -> Status;
        cuMemMap: fn(cu::CUdeviceptr, usize, usize, cu::CUmemGenericAllocationHandle, c_ulonglong) -> Status;
        cuMemUnmap: fn(cu::CUdeviceptr, usize) -> Status;
        cuMemSetAccess: fn(cu::CUdeviceptr, usize, *const cu::CUmemAccessDesc, usize) -> Status;
        cuMemExportToShareableHandle: fn(
            *mut c_void, cu::CUmemGenericAllocationHandle, cu::CUmemAllocationHandleType, c_ulonglong,
        ) -> Status;
        cuMemImportFromShareableHandle: fn(
            *mut cu::CUmemGenericAllocationHandle, *mut c_void, cu::CUmemAllocationHandleType,
        ) -> Status;
        cuMemHostAlloc: fn(*mut *mut c_void, usize, c_uint) -> Status;
        cuMemFreeHost: fn(*mut c_void) -> Status;
        cuMemHostRegister_v2: fn(*mut c_void, usize, c_uint) -> Status;
        cuMemHostUnregister: fn(*mut c_void) -> Status;
        cuMemHostGetDevicePointer_v2: fn(*mut cu::CUdeviceptr, *mut c_void, c_uint) -> Status;
        cuMemsetD8Async: fn(cu::CUdeviceptr, u8, usize, cu::CUstream) -> Status;
        cuMemcpyHtoDAsync_v2: fn(cu::CUdeviceptr, *const c_void, usize, cu::CUstream) -> Status;
        cuMemcpyDtoHAsync_v2: fn(*mut c_void, cu::CUdeviceptr, usize, cu::CUstream) -> Status;
        cuMemcpyAsync: fn(cu::CUdeviceptr, cu::CUdeviceptr, usize, cu::CUstream) -> Status;
        cuStreamCreateWithPriority: fn(*mut cu::CUstream, c_uint, c_int) -> Status;
        cuStreamDestroy_v2: fn(cu::CUstream) -> Status;
        cuStreamSynchronize: fn(cu::CUstream) -> Status;
        cuStreamQuery: fn(cu::CUstream) -> Status;
        cuStreamWaitValue32_v2: fn(cu::CUstream, cu::CUdeviceptr, u32, c_uint) -> Status;
        cuStreamWriteValue32_v2: fn(cu::CUstream, cu::CUdeviceptr, u32, c_uint) -> Status;
        cuStreamWaitEvent: fn(cu::CUstream, cu::CUevent, c_uint) -> Status;
        cuEventCreate: fn(*mut cu::CUevent, c_uint) -> Status;
        cuEventDestroy_v2: fn(cu::CUevent) -> Status;
        cuEventRecord: fn(cu::CUevent, cu::CUstream) -> Status;
        cuEventSynchronize: fn(cu::CUevent) -> Status;
        cuStreamBeginCapture_v2: fn(cu::CUstream, cu::CUstreamCaptureMode) -> Status;
        cuStreamEndCapture: fn(cu::CUstream, *mut cu::CUgraph) -> Status;
        cuStreamGetCaptureInfo_v3: fn(
            cu::CUstream, *mut c_uint, *mut u64, *mut cu::CUgraph, *mut *const cu::CUgraphNode,
            *mut *const cu::CUgraphEdgeData, *mut usize,
        ) -> Status;
        cuStreamUpdateCaptureDependencies_v2: fn(
            cu::CUstream, *mut cu::CUgraphNode, *const cu::CUgraphEdgeData, usize, c_uint,
        ) -> Status;
        cuGraphAddBatchMemOpNode: fn(
            *mut cu::CUgraphNode, cu::CUgraph, *const cu::CUgraphNode, usize,
            *const cu::CUDA_BATCH_MEM_OP_NODE_PARAMS,
        ) -> Status;
        cuGraphInstantiateWithFlags: fn(*mut cu::CUgraphExec, cu::CUgraph, c_ulonglong) -> Status;
        cuGraphExecBatchMemOpNodeSetParams: fn(
            cu::CUgraphExec, cu::CUgraphNode, *const cu::CUDA_BATCH_MEM_OP_NODE_PARAMS,
        ) -> Status;
        cuGraphUpload: fn(cu::CUgraphExec, cu::CUstream) -> Status;
        cuGraphLaunch: fn(cu::CUgraphExec, cu::CUstream) -> Status;
        cuGraphExecDestroy: fn(cu::CUgraphExec) -> Status;
        cuGraphDestroy: fn(cu::CUgraph) -> Status;
        cuModuleLoadData: fn(*mut cu::CUmodule, *const c_void) -> Status;
        cuModuleUnload: fn(cu::CUmodule) -> Status;
        cuModuleGetFunction: fn(*mut cu::CUfunction, cu::CUmodule, *const c_char) -> Status;
        cuLaunchKernel: fn(
            cu::CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, cu::CUstream, *mut *mut c_void,
            *mut *mut c_void,
        ) -> Status;
    }
}

functions! {
    /// The compiler of kernels, `libnvrtc`.
    Compiler {
        nvrtcVersion: fn(*mut c_int, *mut c_int) -> Status;
        nvrtcGetErrorString: fn(Status) -> *const c_char;
        nvrtcCreateProgram: fn(
            *mut rtc::nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
        ) -> Status;
        nvrtcDestroyProgram: fn(*mut rtc::nvrtcProgram) -> Status;
        nvrtcAddNameExpression: fn(rtc::nvrtcProgram, *const c_char) -> Status;
        nvrtcCompileProgram: fn(rtc::nvrtcProgram, c_int, *const *const c_char) -> Status;
        nvrtcGetLoweredName: fn(rtc::nvrtcProgram, *const c_char, *mut *const c_char) -> Status;
        nvrtcGetCUBINSize: fn(rtc::nvrtcProgram, *mut usize) -> Status;
        nvrtcGetCUBIN: fn(rtc::nvrtcProgram, *mut c_char) -> Status;
        nvrtcGetProgramLogSize: fn(rtc::nvrtcProgram, *mut usize) -> Status;
        nvrtcGetProgramLog: fn(rtc::nvrtcProgram, *mut c_char) -> Status;
    }
}

functions! {
    /// Matrix products, `libcublasLt`.
    Blas {
        cublasLtGetVersion: fn() -> usize;
        cublasLtCreate: fn(*mut lt::cublasLtHandle_t) -> Status;
        cublasLtDestroy: fn(lt::cublasLtHandle_t) -> Status;
        cublasLtMatmulDescCreate: fn(
            *mut lt::cublasLtMatmulDesc_t, lt::cublasComputeType_t, lt::cudaDataType,
        ) -> Status;
        cublasLtMatmulDescDestroy: fn(lt::cublasLtMatmulDesc_t) -> Status;
        cublasLtMatmulDescSetAttribute: fn(
            lt::cublasLtMatmulDesc_t, lt::cublasLtMatmulDescAttributes_t, *const c_void, usize,
        ) -> Status;
        cublasLtMatrixLayoutCreate: fn(*mut lt::cublasLtMatrixLayout_t, lt::cudaDataType, u64, u64, i64) -> Status;
        cublasLtMatrixLayoutDestroy: fn(lt::cublasLtMatrixLayout_t) -> Status;
        cublasLtMatmulPreferenceCreate: fn(*mut lt::cublasLtMatmulPreference_t) -> Status;
        cublasLtMatmulPreferenceDestroy: fn(lt::cublasLtMatmulPreference_t) -> Status;
        cublasLtMatmulPreferenceSetAttribute: fn(
            lt::cublasLtMatmulPreference_t, lt::cublasLtMatmulPreferenceAttributes_t, *const c_void, usize,
        ) -> Status;
        cublasLtMatmulAlgoGetHeuristic: fn(
            lt::cublasLtHandle_t, lt::cublasLtMatmulDesc_t, lt::cublasLtMatrixLayout_t, lt::cublasLtMatrixLayout_t,
            lt::cublasLtMatrixLayout_t, lt::cublasLtMatrixLayout_t, lt::cublasLtMatmulPreference_t, c_int,
            *mut Suggestion, *mut c_int,
        ) -> Status;
        cublasLtMatmul: fn(
            lt::cublasLtHandle_t, lt::cublasLtMatmulDesc_t, *const c_void, *const c_void, lt::cublasLtMatrixLayout_t,
            *const c_void, lt::cublasLtMatrixLayout_t, *const c_void, *const c_void, lt::cublasLtMatrixLayout_t,
            *mut c_void, lt::cublasLtMatrixLayout_t, *const lt::cublasLtMatmulAlgo_t, *mut c_void, usize,
            cu::CUstream,
        ) -> Status;
    }
}

functions! {
    /// Communication, `libnccl`. Results are numbers, and memory is what the driver calls it.
    Nccl {
        ncclGetVersion: fn(*mut c_int) -> c_int;
        ncclGetUniqueId: fn(*mut Name) -> c_int;
        ncclGetErrorString: fn(c_int) -> *const c_char;
        ncclGetLastError: fn(*mut c_void) -> *const c_char;
        ncclCommInitRankConfig: fn(*mut *mut c_void, c_int, Name, c_int, *mut Configuration) -> c_int;
        ncclCommGetAsyncError: fn(*mut c_void, *mut c_int) -> c_int;
        ncclCommDestroy: fn(*mut c_void) -> c_int;
        ncclCommAbort: fn(*mut c_void) -> c_int;
        ncclGroupStart: fn() -> c_int;
        ncclGroupEnd: fn() -> c_int;
        ncclSend: fn(*mut c_void, usize, c_int, c_int, *mut c_void, cu::CUstream) -> c_int;
        ncclRecv: fn(*mut c_void, usize, c_int, c_int, *mut c_void, cu::CUstream) -> c_int;
    }
}

/// `cublasLtMatmulHeuristicResult_t`, with the status as a number.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Suggestion {
    pub algorithm: lt::cublasLtMatmulAlgo_t,
    pub workspace_bytes: usize,
    pub status: Status,
    pub waves: f32,
    pub reserved: [c_int; 4],
}

const _: () = assert!(size_of::<Suggestion>() == size_of::<lt::cublasLtMatmulHeuristicResult_t>());

/// All functions that this device calls. They stay for as long as the process does: a driver has threads of its own.
pub(super) struct Libraries {
    pub driver: Driver,
    pub compiler: Compiler,
    /// Which compiler that is: others of the same version may make other code.
    pub compiler_path: PathBuf,
    pub blas: Blas,
}

/// Where to look before anywhere else.
static FOLDER: Mutex<Option<PathBuf>> = Mutex::new(None);

/// What was opened, by the folders that were to be looked in first.
static OPENED: Cache<Libraries> = Mutex::new(None);
static CARRIERS: Cache<Nccl> = Mutex::new(None);

type Cache<T> = Mutex<Option<HashMap<Vec<PathBuf>, &'static T>>>;

/// From here on, devices that are opened use the libraries in this folder, before those of [`FOLDERS_VARIABLE`] and of the
/// system.
pub fn use_libraries(folder: &Path) {
    *FOLDER.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder.to_owned());
}

impl Libraries {
    /// Those of this machine.
    pub fn get() -> Result<&'static Self, CudaError> {
        opened_once(&OPENED, Self::open)
    }

    fn open(first: &[PathBuf]) -> Result<Self, CudaError> {
        let driver = Driver::of(&Opened::find("libcuda.so.1", first)?)?;
        let compiler = Opened::find("libnvrtc.so.13", first)?;
        let blas = Blas::of(&Opened::find("libcublasLt.so.13", first)?)?;
        Ok(Self { driver, compiler: Compiler::of(&compiler)?, compiler_path: compiler.path, blas })
    }
}

/// The library that carries bytes between devices: only plans that ask for it need it.
pub(super) fn nccl() -> Result<&'static Nccl, CudaError> {
    opened_once(&CARRIERS, |first| Nccl::of(&Opened::find("libnccl.so.2", first)?))
}

/// What `open` finds, where it was not found already.
fn opened_once<T>(
    cache: &Cache<T>,
    open: impl FnOnce(&[PathBuf]) -> Result<T, CudaError>,
) -> Result<&'static T, CudaError> {
    let named = std::env::var_os(FOLDERS_VARIABLE).unwrap_or_default();
    let own = FOLDER.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let first: Vec<PathBuf> = own.into_iter().chain(folders(&named)).collect();
    let mut opened = cache.lock().unwrap_or_else(PoisonError::into_inner);
    let opened = opened.get_or_insert_default();
    if let Some(found) = opened.get(&first) {
        return Ok(found);
    }
    let found: &'static T = Box::leak(Box::new(open(&first)?));
    opened.insert(first, found);
    Ok(found)
}

fn folders(list: &OsString) -> Vec<PathBuf> {
    std::env::split_paths(list).filter(|folder| !folder.as_os_str().is_empty()).collect()
}

/// A library that stays open.
struct Opened {
    path: PathBuf,
    library: &'static Library,
}

impl Opened {
    /// Looks in the folders `first`, then where the system's loader looks, then where PyTorch has been installed.
    fn find(name: &'static str, first: &[PathBuf]) -> Result<Self, CudaError> {
        let mut reason = None;
        let loaders = || [PathBuf::from(name)].into_iter();
        let in_folders = first.iter().map(|folder| folder.join(name)).filter(|path| path.exists());
        for path in in_folders.chain(loaders()).chain(of_pytorch(name)) {
            load_builtins(&path);
            // SAFETY: a library of CUDA by name or by the user's own word: what it runs when it is loaded is its business.
            match unsafe { Library::new(&path) } {
                Ok(library) => return Ok(Self { path, library: Box::leak(Box::new(library)) }),
                // The loader's own search is the least telling reason.
                Err(error) if path.is_absolute() || reason.is_none() => reason = Some(error.to_string()),
                Err(_) => {}
            }
        }
        Err(CudaError::LibraryMissing { name, reason: reason.unwrap_or_default() })
    }

    /// # Safety
    /// `F` is the type of a pointer to the function of this name, which ends in a zero.
    unsafe fn function<F: Copy>(&self, name: &'static str) -> Result<F, CudaError> {
        // SAFETY: by the caller's promise.
        let found = unsafe { self.library.get::<F>(name.as_bytes()) };
        let missing = |_| CudaError::FunctionMissing { library: self.path.clone(), name: name.trim_end_matches('\0') };
        Ok(*found.map_err(missing)?)
    }
}

/// The compiler loads a part of itself by its bare name, which the loader finds only if it is open already.
fn load_builtins(path: &Path) {
    let is_compiler = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libnvrtc.so"));
    let Some(folder) = path.parent().filter(|folder| is_compiler && !folder.as_os_str().is_empty()) else { return };
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for file in files.filter(|file| file.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so.13")) {
        // SAFETY: as for the compiler, whose part it is.
        if let Ok(builtins) = unsafe { Library::new(file.path()) } {
            std::mem::forget(builtins);
        }
    }
}

/// The files of this name in `nvidia/*/lib` of each place that Python's packages are installed to.
fn of_pytorch(name: &str) -> Vec<PathBuf> {
    let roots = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local"));
    let roots = roots.chain(home).chain(["/usr/local", "/usr"].map(PathBuf::from));
    let pythons = roots.flat_map(|root| entries(&root.join("lib"), "python3"));
    let packages = pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|packages| python.join(packages)));
    let nvidia = packages.flat_map(|packages| entries(&packages.join("nvidia"), ""));
    nvidia.map(|part| part.join("lib").join(name)).filter(|path| path.exists()).collect()
}

/// What is in a folder under a name that begins so, in order.
fn entries(folder: &Path, begin: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named = files.filter(|file| file.file_name().to_string_lossy().starts_with(begin));
    let mut paths: Vec<_> = named.map(|file| file.path()).collect();
    paths.sort();
    paths
}
