//! Library: finds CUDA's libraries on this machine and looks up every function before the first call, so that a missing
//! function is an error with its name. Types are cudarc's. Its own loader is not used, because it panics if something
//! is missing. Results are plain numbers here, because a newer library may return a number that no enumeration has.
//! Never calls a function.
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
use super::nccl_types::{Configuration, UniqueId};
use super::variables::FOLDERS_VARIABLE;

/// The status of a call; 0 is success.
pub(super) type CallStatus = c_uint;

/// A struct of the functions of a library.
macro_rules! functions {
    ($(#[$doc:meta])* $name:ident { $($function:ident: fn($($argument:ty),* $(,)?) $(-> $result:ty)?;)* }) => {
        $(#[$doc])*
        pub(super) struct $name {
            $(pub $function: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $name {
            fn of(library: &OpenLibrary) -> Result<Self, CudaError> {
                Ok(Self {
                    $($function: {
                        // SAFETY: the type is that of the function of this name in CUDA's headers, as declared by cudarc.
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
        cuInit: fn(c_uint) -> CallStatus;
        cuDriverGetVersion: fn(*mut c_int) -> CallStatus;
        cuGetErrorName: fn(CallStatus, *mut *const c_char) -> CallStatus;
        cuGetErrorString: fn(CallStatus, *mut *const c_char) -> CallStatus;
        cuDeviceGetCount: fn(*mut c_int) -> CallStatus;
        cuDeviceGet: fn(*mut cu::CUdevice, c_int) -> CallStatus;
        cuDeviceGetName: fn(*mut c_char, c_int, cu::CUdevice) -> CallStatus;
        cuDeviceGetAttribute: fn(*mut c_int, cu::CUdevice_attribute, cu::CUdevice) -> CallStatus;
        cuDevicePrimaryCtxRetain: fn(*mut cu::CUcontext, cu::CUdevice) -> CallStatus;
        cuDevicePrimaryCtxRelease_v2: fn(cu::CUdevice) -> CallStatus;
        cuCtxCreate_v4: fn(*mut cu::CUcontext, *mut cu::CUctxCreateParams, c_uint, cu::CUdevice) -> CallStatus;
        cuCtxDestroy_v2: fn(cu::CUcontext) -> CallStatus;
        cuCtxSetCurrent: fn(cu::CUcontext) -> CallStatus;
        cuMemGetInfo_v2: fn(*mut usize, *mut usize) -> CallStatus;
        cuMemGetAllocationGranularity: fn(
            *mut usize, *const cu::CUmemAllocationProp, cu::CUmemAllocationGranularity_flags,
        ) -> CallStatus;
        cuMemAddressReserve: fn(*mut cu::CUdeviceptr, usize, usize, cu::CUdeviceptr, c_ulonglong) -> CallStatus;
        cuMemAddressFree: fn(cu::CUdeviceptr, usize) -> CallStatus;
        cuMemCreate: fn(
            *mut cu::CUmemGenericAllocationHandle, usize, *const cu::CUmemAllocationProp, c_ulonglong,
        ) -> CallStatus;
        cuMemRelease: fn(cu::CUmemGenericAllocationHandle) -> CallStatus;
        cuMemMap: fn(cu::CUdeviceptr, usize, usize, cu::CUmemGenericAllocationHandle, c_ulonglong) -> CallStatus;
        cuMemUnmap: fn(cu::CUdeviceptr, usize) -> CallStatus;
        cuMemSetAccess: fn(cu::CUdeviceptr, usize, *const cu::CUmemAccessDesc, usize) -> CallStatus;
        cuMemExportToShareableHandle: fn(
            *mut c_void, cu::CUmemGenericAllocationHandle, cu::CUmemAllocationHandleType, c_ulonglong,
        ) -> CallStatus;
        cuMemImportFromShareableHandle: fn(
            *mut cu::CUmemGenericAllocationHandle, *mut c_void, cu::CUmemAllocationHandleType,
        ) -> CallStatus;
        cuMemHostAlloc: fn(*mut *mut c_void, usize, c_uint) -> CallStatus;
        cuMemFreeHost: fn(*mut c_void) -> CallStatus;
        cuMemHostRegister_v2: fn(*mut c_void, usize, c_uint) -> CallStatus;
        cuMemHostUnregister: fn(*mut c_void) -> CallStatus;
        cuMemHostGetDevicePointer_v2: fn(*mut cu::CUdeviceptr, *mut c_void, c_uint) -> CallStatus;
        cuMemsetD8Async: fn(cu::CUdeviceptr, u8, usize, cu::CUstream) -> CallStatus;
        cuMemcpyHtoDAsync_v2: fn(cu::CUdeviceptr, *const c_void, usize, cu::CUstream) -> CallStatus;
        cuMemcpyDtoHAsync_v2: fn(*mut c_void, cu::CUdeviceptr, usize, cu::CUstream) -> CallStatus;
        cuMemcpyAsync: fn(cu::CUdeviceptr, cu::CUdeviceptr, usize, cu::CUstream) -> CallStatus;
        cuStreamCreateWithPriority: fn(*mut cu::CUstream, c_uint, c_int) -> CallStatus;
        cuStreamDestroy_v2: fn(cu::CUstream) -> CallStatus;
        cuStreamSynchronize: fn(cu::CUstream) -> CallStatus;
        cuStreamQuery: fn(cu::CUstream) -> CallStatus;
        cuStreamWaitValue32_v2: fn(cu::CUstream, cu::CUdeviceptr, u32, c_uint) -> CallStatus;
        cuStreamWriteValue32_v2: fn(cu::CUstream, cu::CUdeviceptr, u32, c_uint) -> CallStatus;
        cuStreamWaitEvent: fn(cu::CUstream, cu::CUevent, c_uint) -> CallStatus;
        cuLaunchHostFunc: fn(cu::CUstream, cu::CUhostFn, *mut c_void) -> CallStatus;
        cuEventCreate: fn(*mut cu::CUevent, c_uint) -> CallStatus;
        cuEventDestroy_v2: fn(cu::CUevent) -> CallStatus;
        cuEventRecord: fn(cu::CUevent, cu::CUstream) -> CallStatus;
        cuEventSynchronize: fn(cu::CUevent) -> CallStatus;
        cuStreamBeginCapture_v2: fn(cu::CUstream, cu::CUstreamCaptureMode) -> CallStatus;
        cuStreamEndCapture: fn(cu::CUstream, *mut cu::CUgraph) -> CallStatus;
        cuStreamGetCaptureInfo_v3: fn(
            cu::CUstream, *mut c_uint, *mut u64, *mut cu::CUgraph, *mut *const cu::CUgraphNode,
            *mut *const cu::CUgraphEdgeData, *mut usize,
        ) -> CallStatus;
        cuStreamUpdateCaptureDependencies_v2: fn(
            cu::CUstream, *mut cu::CUgraphNode, *const cu::CUgraphEdgeData, usize, c_uint,
        ) -> CallStatus;
        cuGraphAddBatchMemOpNode: fn(
            *mut cu::CUgraphNode, cu::CUgraph, *const cu::CUgraphNode, usize,
            *const cu::CUDA_BATCH_MEM_OP_NODE_PARAMS,
        ) -> CallStatus;
        cuGraphInstantiateWithFlags: fn(*mut cu::CUgraphExec, cu::CUgraph, c_ulonglong) -> CallStatus;
        cuGraphExecBatchMemOpNodeSetParams: fn(
            cu::CUgraphExec, cu::CUgraphNode, *const cu::CUDA_BATCH_MEM_OP_NODE_PARAMS,
        ) -> CallStatus;
        cuGraphUpload: fn(cu::CUgraphExec, cu::CUstream) -> CallStatus;
        cuGraphLaunch: fn(cu::CUgraphExec, cu::CUstream) -> CallStatus;
        cuGraphExecDestroy: fn(cu::CUgraphExec) -> CallStatus;
        cuGraphDestroy: fn(cu::CUgraph) -> CallStatus;
        cuModuleLoadData: fn(*mut cu::CUmodule, *const c_void) -> CallStatus;
        cuModuleUnload: fn(cu::CUmodule) -> CallStatus;
        cuModuleGetFunction: fn(*mut cu::CUfunction, cu::CUmodule, *const c_char) -> CallStatus;
        cuLaunchKernel: fn(
            cu::CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, cu::CUstream, *mut *mut c_void,
            *mut *mut c_void,
        ) -> CallStatus;
    }
}

functions! {
    /// The compiler of kernels, `libnvrtc`.
    Compiler {
        nvrtcVersion: fn(*mut c_int, *mut c_int) -> CallStatus;
        nvrtcGetErrorString: fn(CallStatus) -> *const c_char;
        nvrtcCreateProgram: fn(
            *mut rtc::nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
        ) -> CallStatus;
        nvrtcDestroyProgram: fn(*mut rtc::nvrtcProgram) -> CallStatus;
        nvrtcAddNameExpression: fn(rtc::nvrtcProgram, *const c_char) -> CallStatus;
        nvrtcCompileProgram: fn(rtc::nvrtcProgram, c_int, *const *const c_char) -> CallStatus;
        nvrtcGetLoweredName: fn(rtc::nvrtcProgram, *const c_char, *mut *const c_char) -> CallStatus;
        nvrtcGetCUBINSize: fn(rtc::nvrtcProgram, *mut usize) -> CallStatus;
        nvrtcGetCUBIN: fn(rtc::nvrtcProgram, *mut c_char) -> CallStatus;
        nvrtcGetProgramLogSize: fn(rtc::nvrtcProgram, *mut usize) -> CallStatus;
        nvrtcGetProgramLog: fn(rtc::nvrtcProgram, *mut c_char) -> CallStatus;
    }
}

functions! {
    /// Matrix products, `libcublasLt`.
    Blas {
        cublasLtGetVersion: fn() -> usize;
        cublasLtCreate: fn(*mut lt::cublasLtHandle_t) -> CallStatus;
        cublasLtDestroy: fn(lt::cublasLtHandle_t) -> CallStatus;
        cublasLtMatmulDescCreate: fn(
            *mut lt::cublasLtMatmulDesc_t, lt::cublasComputeType_t, lt::cudaDataType,
        ) -> CallStatus;
        cublasLtMatmulDescDestroy: fn(lt::cublasLtMatmulDesc_t) -> CallStatus;
        cublasLtMatmulDescSetAttribute: fn(
            lt::cublasLtMatmulDesc_t, lt::cublasLtMatmulDescAttributes_t, *const c_void, usize,
        ) -> CallStatus;
        cublasLtMatrixLayoutCreate: fn(*mut lt::cublasLtMatrixLayout_t, lt::cudaDataType, u64, u64, i64) -> CallStatus;
        cublasLtMatrixLayoutDestroy: fn(lt::cublasLtMatrixLayout_t) -> CallStatus;
        cublasLtMatmulPreferenceCreate: fn(*mut lt::cublasLtMatmulPreference_t) -> CallStatus;
        cublasLtMatmulPreferenceDestroy: fn(lt::cublasLtMatmulPreference_t) -> CallStatus;
        cublasLtMatmulPreferenceSetAttribute: fn(
            lt::cublasLtMatmulPreference_t, lt::cublasLtMatmulPreferenceAttributes_t, *const c_void, usize,
        ) -> CallStatus;
        cublasLtMatmulAlgoGetHeuristic: fn(
            lt::cublasLtHandle_t, lt::cublasLtMatmulDesc_t, lt::cublasLtMatrixLayout_t, lt::cublasLtMatrixLayout_t,
            lt::cublasLtMatrixLayout_t, lt::cublasLtMatrixLayout_t, lt::cublasLtMatmulPreference_t, c_int,
            *mut Suggestion, *mut c_int,
        ) -> CallStatus;
        cublasLtMatmulAlgoConfigGetAttribute: fn(
            *const lt::cublasLtMatmulAlgo_t, lt::cublasLtMatmulAlgoConfigAttributes_t, *mut c_void, usize, *mut usize,
        ) -> CallStatus;
        cublasLtMatmul: fn(
            lt::cublasLtHandle_t, lt::cublasLtMatmulDesc_t, *const c_void, *const c_void, lt::cublasLtMatrixLayout_t,
            *const c_void, lt::cublasLtMatrixLayout_t, *const c_void, *const c_void, lt::cublasLtMatrixLayout_t,
            *mut c_void, lt::cublasLtMatrixLayout_t, *const lt::cublasLtMatmulAlgo_t, *mut c_void, usize,
            cu::CUstream,
        ) -> CallStatus;
    }
}

functions! {
    /// Communication, `libnccl`. Results are numbers, and memory is passed as the driver's addresses.
    Nccl {
        ncclGetVersion: fn(*mut c_int) -> c_int;
        ncclGetUniqueId: fn(*mut UniqueId) -> c_int;
        ncclGetErrorString: fn(c_int) -> *const c_char;
        ncclGetLastError: fn(*mut c_void) -> *const c_char;
        ncclCommInitRankConfig: fn(*mut *mut c_void, c_int, UniqueId, c_int, *mut Configuration) -> c_int;
        ncclCommGetAsyncError: fn(*mut c_void, *mut c_int) -> c_int;
        ncclCommDestroy: fn(*mut c_void) -> c_int;
        ncclCommAbort: fn(*mut c_void) -> c_int;
        ncclGroupStart: fn() -> c_int;
        ncclGroupEnd: fn() -> c_int;
        ncclSend: fn(*mut c_void, usize, c_int, c_int, *mut c_void, cu::CUstream) -> c_int;
        ncclRecv: fn(*mut c_void, usize, c_int, c_int, *mut c_void, cu::CUstream) -> c_int;
        ncclAllGather: fn(*const c_void, *mut c_void, usize, c_int, *mut c_void, cu::CUstream) -> c_int;
    }
}

/// `cublasLtMatmulHeuristicResult_t`, with the status as a number.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Suggestion {
    pub algorithm: lt::cublasLtMatmulAlgo_t,
    pub workspace_bytes: usize,
    pub status: CallStatus,
    pub waves: f32,
    pub reserved: [c_int; 4],
}

const _: () = assert!(size_of::<Suggestion>() == size_of::<lt::cublasLtMatmulHeuristicResult_t>());

/// All functions that this device calls. They stay as long as the process, because a driver has threads of its own.
pub(super) struct Libraries {
    pub driver: Driver,
    pub compiler: Compiler,
    /// The path of the compiler: other compilers of the same version may generate other code.
    pub compiler_path: PathBuf,
    pub blas: Blas,
}

/// The folder that is searched first.
static FOLDER: Mutex<Option<PathBuf>> = Mutex::new(None);

/// The opened libraries, by the folders that were searched first.
static OPENED: Cache<Libraries> = Mutex::new(None);
static CARRIERS: Cache<Nccl> = Mutex::new(None);

type Cache<T> = Mutex<Option<HashMap<Vec<PathBuf>, &'static T>>>;

/// From here on, newly opened devices use the libraries in this folder before those of [`FOLDERS_VARIABLE`] and of the
/// system.
pub fn use_libraries(folder: &Path) {
    *FOLDER.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder.to_owned());
}

impl Libraries {
    /// The libraries of this machine.
    pub fn get() -> Result<&'static Self, CudaError> {
        opened_once(&OPENED, Self::open)
    }

    fn open(first: &[PathBuf]) -> Result<Self, CudaError> {
        let driver = Driver::of(&OpenLibrary::find("libcuda.so.1", first)?)?;
        let compiler = OpenLibrary::find("libnvrtc.so.13", first)?;
        let blas = Blas::of(&OpenLibrary::find("libcublasLt.so.13", first)?)?;
        Ok(Self { driver, compiler: Compiler::of(&compiler)?, compiler_path: compiler.path, blas })
    }
}

/// The library that carries bytes between devices: only plans with NCCL need it.
pub(super) fn nccl() -> Result<&'static Nccl, CudaError> {
    opened_once(&CARRIERS, |first| Nccl::of(&OpenLibrary::find("libnccl.so.2", first)?))
}

/// The result of `open`, or of an earlier call.
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
struct OpenLibrary {
    path: PathBuf,
    library: &'static Library,
}

impl OpenLibrary {
    /// Searches the folders `first`, then the places of the system's loader, then PyTorch's installations.
    fn find(name: &'static str, first: &[PathBuf]) -> Result<Self, CudaError> {
        let mut reason = None;
        let loaders = || [PathBuf::from(name)].into_iter();
        let in_folders = first.iter().map(|folder| folder.join(name)).filter(|path| path.exists());
        for path in in_folders.chain(loaders()).chain(of_pytorch(name)) {
            load_builtins(&path);
            // SAFETY: a library of CUDA, named here or chosen by the user; its initialisers are trusted.
            match unsafe { Library::new(&path) } {
                Ok(library) => return Ok(Self { path, library: Box::leak(Box::new(library)) }),
                // The loader's own search gives the least informative reason.
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

/// The compiler loads a part of itself by its bare name, which the loader finds only if that part is already open.
fn load_builtins(path: &Path) {
    let is_compiler = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libnvrtc.so"));
    let Some(folder) = path.parent().filter(|folder| is_compiler && !folder.as_os_str().is_empty()) else { return };
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for file in files.filter(|file| file.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so.13")) {
        // SAFETY: as for the compiler, which it is part of.
        if let Ok(builtins) = unsafe { Library::new(file.path()) } {
            std::mem::forget(builtins);
        }
    }
}

/// The files of this name in `nvidia/*/lib` of each folder with installed Python packages.
fn of_pytorch(name: &str) -> Vec<PathBuf> {
    let roots = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    // A Python that is used without being activated.
    let called = std::env::var_os("PATH").into_iter().flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let called = called.filter(|folder| folder.join("python3").exists());
    let roots = roots.chain(called.filter_map(|folder| folder.parent().map(Path::to_owned)));
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local"));
    let roots = roots.chain(home).chain(["/usr/local", "/usr"].map(PathBuf::from));
    let pythons = roots.flat_map(|root| entries(&root.join("lib"), "python3"));
    let packages = pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|packages| python.join(packages)));
    let nvidia = packages.flat_map(|packages| entries(&packages.join("nvidia"), ""));
    nvidia.map(|part| part.join("lib").join(name)).filter(|path| path.exists()).collect()
}

/// The entries of a folder whose names begin with `begin`, in order.
fn entries(folder: &Path, begin: &str) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named = files.filter(|file| file.file_name().to_string_lossy().starts_with(begin));
    let mut paths: Vec<_> = named.map(|file| file.path()).collect();
    paths.sort();
    paths
}
