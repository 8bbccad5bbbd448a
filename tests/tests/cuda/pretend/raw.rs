//! Raw: a few CUDA calls of the pretend libraries, as CUDA's headers declare them; each returns its status. Never checks its
//! arguments.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use libloading::Library;
use zero_tests::pretend;

pub type Handle = *mut c_void;

/// Calls a function of a library by its name. Each argument has its type, and the result is an `int`.
macro_rules! call {
    ($library:expr, $name:ident($($argument:expr => $type:ty),* $(,)?)) => {{
        let name = concat!(stringify!($name), "\0").as_bytes();
        // SAFETY: the types are those of the pretend library, which stays loaded for as long as the process runs.
        unsafe { ($library).get::<unsafe extern "C" fn($($type),*) -> i32>(name).unwrap()($($argument),*) }
    }};
}
pub(super) use call;

fn library(name: &str) -> Library {
    // SAFETY: the library is built from the sources here, and is harmless to load.
    unsafe { Library::new(pretend::libraries().unwrap().join(name)) }.unwrap()
}

pub fn compiler() -> &'static Library {
    static COMPILER: OnceLock<Library> = OnceLock::new();
    COMPILER.get_or_init(|| library("libnvrtc.so.13"))
}

pub fn blas() -> &'static Library {
    static BLAS: OnceLock<Library> = OnceLock::new();
    BLAS.get_or_init(|| library("libcublasLt.so.13"))
}

pub fn driver() -> &'static Library {
    pretend::driver()
}

/// Makes a context for this thread. Returns whether there is something to test.
pub fn begin() -> bool {
    if pretend::libraries().is_none() {
        return false;
    }
    let mut context: Handle = null_mut();
    assert_eq!(call!(driver(), cuInit(0 => u32)), 0);
    assert_eq!(call!(driver(), cuDevicePrimaryCtxRetain(&mut context => *mut Handle, 0 => i32)), 0);
    assert_eq!(call!(driver(), cuCtxSetCurrent(context => Handle)), 0);
    true
}

pub fn stream() -> Handle {
    let mut stream = null_mut();
    assert_eq!(call!(driver(), cuStreamCreate(&mut stream => *mut Handle, 1 => u32)), 0);
    stream
}

pub fn event() -> Handle {
    let mut event = null_mut();
    assert_eq!(call!(driver(), cuEventCreate(&mut event => *mut Handle, 2 => u32)), 0);
    event
}

pub fn record(event: Handle, stream: Handle) -> i32 {
    call!(driver(), cuEventRecord(event => Handle, stream => Handle))
}

pub fn wait(stream: Handle, event: Handle) -> i32 {
    call!(driver(), cuStreamWaitEvent(stream => Handle, event => Handle, 0 => u32))
}

pub fn finish(stream: Handle) -> i32 {
    call!(driver(), cuStreamSynchronize(stream => Handle))
}

/// Allocates this many bytes of the device.
pub fn allocate(bytes: usize) -> u64 {
    let mut start = 0;
    assert_eq!(call!(driver(), cuMemAlloc_v2(&mut start => *mut u64, bytes => usize)), 0);
    start
}

pub fn fill(to: u64, value: u8, bytes: usize, stream: Handle) -> i32 {
    call!(driver(), cuMemsetD8Async(to => u64, value => u8, bytes => usize, stream => Handle))
}

pub fn copy(to: u64, from: u64, bytes: usize, stream: Handle) -> i32 {
    call!(driver(), cuMemcpyDtoDAsync_v2(to => u64, from => u64, bytes => usize, stream => Handle))
}

pub fn send<T>(to: u64, from: &[T], stream: Handle) -> i32 {
    let start = from.as_ptr().cast::<c_void>();
    call!(driver(), cuMemcpyHtoDAsync_v2(to => u64, start => *const c_void, size_of_val(from) => usize, stream => Handle))
}

/// Numbers in memory of the device, once a stream has done all its work.
pub fn receive<T: Copy + Default>(from: u64, len: usize, stream: Handle) -> Result<Vec<T>, i32> {
    let mut to = vec![T::default(); len];
    let start = to.as_mut_ptr().cast::<c_void>();
    let bytes = len * size_of::<T>();
    let status =
        call!(driver(), cuMemcpyDtoHAsync_v2(start => *mut c_void, from => u64, bytes => usize, stream => Handle));
    match (status, finish(stream)) {
        (0, 0) => Ok(to),
        (0, status) | (status, _) => Err(status),
    }
}

/// The kernel `name` of `source`, compiled as the runtime does, or the compiler's message.
pub fn kernel(source: &str, name: &str, options: &[&str]) -> Result<Handle, String> {
    let [source, name] = [source, name].map(|text| CString::new(text).unwrap());
    let options: Vec<_> = options.iter().map(|option| CString::new(*option).unwrap()).collect();
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let (mut program, mut module, mut function) = (null_mut(), null_mut(), null_mut());
    let mut symbol: *const c_char = std::ptr::null();
    let (none, mut bytes) = (std::ptr::null(), 0usize);
    call!(compiler(), nvrtcCreateProgram(
        &mut program => *mut Handle, source.as_ptr() => *const c_char, c"test.cu".as_ptr() => *const c_char, 0 => i32,
        none => *const c_char, none => *const c_char,
    ));
    call!(compiler(), nvrtcAddNameExpression(program => Handle, name.as_ptr() => *const c_char));
    let (count, first) = (options.len() as i32, options.as_ptr());
    if call!(compiler(), nvrtcCompileProgram(program => Handle, count => i32, first => *const *const c_char)) != 0 {
        call!(compiler(), nvrtcGetProgramLogSize(program => Handle, &mut bytes => *mut usize));
        let mut log = vec![0u8; bytes];
        call!(compiler(), nvrtcGetProgramLog(program => Handle, log.as_mut_ptr() => *mut u8));
        return Err(CStr::from_bytes_until_nul(&log).unwrap().to_string_lossy().into_owned());
    }
    let text = name.as_ptr();
    call!(compiler(), nvrtcGetLoweredName(program => Handle, text => *const c_char, &mut symbol => *mut *const c_char));
    call!(compiler(), nvrtcGetCUBINSize(program => Handle, &mut bytes => *mut usize));
    let mut code = vec![0u8; bytes];
    call!(compiler(), nvrtcGetCUBIN(program => Handle, code.as_mut_ptr() => *mut u8));
    let load = call!(driver(), cuModuleLoadData(&mut module => *mut Handle, code.as_ptr() => *const u8));
    assert_eq!(load, 0);
    let get = call!(
        driver(),
        cuModuleGetFunction(&mut function => *mut Handle, module => Handle, symbol => *const c_char)
    );
    assert_eq!(get, 0);
    call!(compiler(), nvrtcDestroyProgram(&mut program => *mut Handle));
    Ok(function)
}

/// The options that all kernels need.
pub const OPTIONS: [&str; 3] = ["--gpu-architecture=sm_90a", "--fmad=false", "--std=c++17"];

/// Launches a kernel whose arguments are words, of blocks in one dimension.
pub fn launch(kernel: Handle, blocks: u32, threads: u32, arguments: &mut [u64], stream: Handle) -> i32 {
    let mut pointers: Vec<*mut u64> = arguments.iter_mut().map(std::ptr::from_mut).collect();
    let (one, none): (u32, *mut c_void) = (1, null_mut());
    call!(driver(), cuLaunchKernel(
        kernel => Handle, blocks => u32, one => u32, one => u32, threads => u32, one => u32, one => u32, 0 => u32,
        stream => Handle, pointers.as_mut_ptr() => *mut *mut u64, none => Handle,
    ))
}
