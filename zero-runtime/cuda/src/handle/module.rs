//! Module: kernels from their sources: compiled once for a device, kept as files, and loaded once. Never launches a kernel.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys as cu;

use super::Cuda;
use super::launch::{Function, Kernel};
use crate::context::DeviceContext;
use crate::error::CudaError;
use crate::library::{CallStatus, Compiler};
use crate::source::{HEADERS, KernelSource};

/// How all kernels are compiled: a product and a sum become one op only if the source says so.
const OPTIONS: [&str; 2] = ["--std=c++17", "--fmad=false"];

/// Lines of a compiler's error that a message shows.
const LINES_MAX: usize = 20;

/// The kernels launched so far.
#[derive(Default)]
pub(crate) struct Modules {
    functions: HashMap<Kernel, Function>,
    /// The modules that contain them.
    modules: Vec<cu::CUmodule>,
}

impl Modules {
    /// # Safety
    /// None of these kernels runs or will be launched again.
    pub unsafe fn unload(&mut self, context: &DeviceContext) {
        self.functions.clear();
        for module in self.modules.drain(..) {
            // SAFETY: loaded into this context. A failure cannot be reported to anybody.
            let _ = unsafe { (context.libraries.driver.cuModuleUnload)(module) };
        }
    }
}

impl Cuda {
    /// A kernel that can be launched.
    pub(crate) fn function(&self, kernel: Kernel) -> Result<Function, CudaError> {
        let known = self.modules.borrow().functions.get(&kernel).copied();
        known.map_or_else(|| self.load(kernel, &CompiledKernel::of(&self.context, kernel)?), Ok)
    }

    pub(crate) fn is_loaded(&self, kernel: Kernel) -> bool {
        self.modules.borrow().functions.contains_key(&kernel)
    }

    /// Loads a compiled kernel on the device.
    pub(crate) fn load(&self, kernel: Kernel, code: &CompiledKernel) -> Result<Function, CudaError> {
        let driver = &self.context.libraries.driver;
        let (mut module, mut function) = (null_mut(), null_mut());
        // SAFETY: code of a kernel, made by this driver's compiler and complete, as its hash shows; room for the
        // result.
        let status = unsafe { (driver.cuModuleLoadData)(&mut module, code.cubin.as_ptr().cast()) };
        self.check_kernel(kernel, status)?;
        self.modules.borrow_mut().modules.push(module);
        // SAFETY: the module was loaded just now, and the name ends in a zero.
        let status = unsafe { (driver.cuModuleGetFunction)(&mut function, module, code.symbol.as_ptr()) };
        self.check_kernel(kernel, status)?;
        self.modules.borrow_mut().functions.insert(kernel, function);
        Ok(function)
    }
}

/// A compiled kernel.
pub(crate) struct CompiledKernel {
    /// The kernel's name in it.
    symbol: CString,
    cubin: Vec<u8>,
}

impl CompiledKernel {
    /// From a file, if the kernel was compiled before; otherwise from the compiler.
    pub(crate) fn of(context: &DeviceContext, kernel: Kernel) -> Result<Self, CudaError> {
        let failed = |reason| CudaError::Compile { kernel: kernel.to_string(), ordinal: context.ordinal, reason };
        let compiler = &context.libraries.compiler;
        let [major, minor] = compiler_version(context)?;
        let architecture = architecture(context.capability);
        let version = format!("{major}.{minor} {}", context.libraries.compiler_path.display());
        let mut key = blake3::Hasher::new();
        let expression = kernel.to_string();
        let [_, source] = kernel.source.text();
        let headers = HEADERS.iter().map(|[_, text]| *text);
        for part in headers.chain([source, &OPTIONS.join(" "), &architecture, &expression, &version]) {
            key.update(&part.len().to_le_bytes()).update(part.as_bytes());
        }
        let file = folder().map(|folder| folder.join(key.finalize().to_hex().as_str()));
        if let Some(code) = file.as_deref().and_then(Self::read) {
            return Ok(code);
        }
        let program = CompiledSource::new(compiler, kernel.source).map_err(failed)?;
        let code = program.compile(&architecture, &expression).map_err(failed)?;
        if let Some(file) = file {
            // A kernel that is not kept is compiled again next time.
            let _ = code.write(&file);
        }
        Ok(code)
    }

    /// A kernel that [`CompiledKernel::write`] has written, if it is complete.
    fn read(path: &Path) -> Option<Self> {
        let file = std::fs::read(path).ok()?;
        let (hash, rest) = file.split_at_checked(blake3::OUT_LEN)?;
        if blake3::hash(rest).as_bytes() != hash {
            return None;
        }
        let end = rest.iter().position(|&byte| byte == 0)? + 1;
        let symbol = CStr::from_bytes_with_nul(&rest[..end]).ok()?.to_owned();
        Some(Self { symbol, cubin: rest[end..].to_vec() })
    }

    /// Writes by a rename, so that a process that reads the file meanwhile finds all of it or nothing.
    fn write(&self, path: &Path) -> std::io::Result<()> {
        static WRITTEN: AtomicUsize = AtomicUsize::new(0);
        let nth = WRITTEN.fetch_add(1, Ordering::Relaxed);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        let rest = [self.symbol.as_bytes_with_nul(), &self.cubin].concat();
        let unfinished = path.with_extension(format!("{}-{nth}", std::process::id()));
        std::fs::write(&unfinished, [blake3::hash(&rest).as_bytes(), &rest[..]].concat())?;
        std::fs::rename(unfinished, path)
    }
}

/// The folder for compiled kernels, if one was set.
static FOLDER: Mutex<Option<PathBuf>> = Mutex::new(None);

/// From here on, compiled kernels are kept in this folder instead of the user's cache.
pub fn use_kernels(folder: &Path) {
    *FOLDER.lock().unwrap_or_else(PoisonError::into_inner) = Some(folder.to_owned());
}

/// The folder for compiled kernels, if this user has one.
fn folder() -> Option<PathBuf> {
    if let Some(folder) = FOLDER.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
        return Some(folder.clone());
    }
    let given = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = given("XDG_CACHE_HOME").or_else(|| given("HOME").map(|home| home.join(".cache")))?;
    Some(caches.join("zero").join("kernels"))
}

/// Major and minor version of the compiler.
pub(crate) fn compiler_version(context: &DeviceContext) -> Result<[i32; 2], CudaError> {
    let compiler = &context.libraries.compiler;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: room for two numbers.
    let status = unsafe { (compiler.nvrtcVersion)(&mut major, &mut minor) };
    let failed = |reason| CudaError::Call { call: "nvrtcVersion", ordinal: context.ordinal, reason };
    check(compiler, status).map_err(failed).map(|()| [major, minor])
}

/// The name of an architecture; from Hopper on, with the features that no other architecture has.
fn architecture([major, minor]: [i32; 2]) -> String {
    format!("sm_{major}{minor}{}", if major >= 9 { "a" } else { "" })
}

fn check(compiler: &Compiler, status: CallStatus) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    // SAFETY: the compiler has a text for every status, which lives as long as the library.
    let text = unsafe { (compiler.nvrtcGetErrorString)(status) };
    if text.is_null() {
        return Err(format!("status {status}"));
    }
    // SAFETY: a text that ends in a zero.
    Err(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// A source for the compiler.
struct CompiledSource<'a> {
    compiler: &'a Compiler,
    handle: cudarc::nvrtc::sys::nvrtcProgram,
}

impl<'a> CompiledSource<'a> {
    fn new(compiler: &'a Compiler, source: KernelSource) -> Result<Self, String> {
        let text = |text: &str| CString::new(text).expect("sources have no zeros");
        let [name, source] = source.text().map(text);
        let headers: Vec<_> = HEADERS.iter().map(|header| header.map(text)).collect();
        let pointers = |which: usize| headers.iter().map(|header| header[which].as_ptr()).collect::<Vec<_>>();
        let (names, texts, count) = (pointers(0), pointers(1), headers.len() as i32);
        let mut handle = null_mut();
        // SAFETY: texts that end in zeros, as many headers as the count says, and room for a handle.
        let status = unsafe {
            let create = compiler.nvrtcCreateProgram;
            create(&mut handle, source.as_ptr(), name.as_ptr(), count, texts.as_ptr(), names.as_ptr())
        };
        check(compiler, status).map(|()| Self { compiler, handle })
    }

    fn compile(&self, architecture: &str, expression: &str) -> Result<CompiledKernel, String> {
        let compiler = self.compiler;
        let expression = CString::new(expression).expect("names have no zeros");
        let architecture = format!("--gpu-architecture={architecture}");
        let options = OPTIONS.into_iter().chain([architecture.as_str()]);
        let options: Vec<_> = options.map(|option| CString::new(option).expect("options have no zeros")).collect();
        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let mut symbol = null();
        // SAFETY: a program that lives as long as this value, texts that end in zeros, and as many options as the count
        // says.
        unsafe {
            check(compiler, (compiler.nvrtcAddNameExpression)(self.handle, expression.as_ptr()))?;
            let status = (compiler.nvrtcCompileProgram)(self.handle, options.len() as i32, options.as_ptr());
            check(compiler, status).map_err(|error| format!("{error}\n{}", self.log()))?;
            check(compiler, (compiler.nvrtcGetLoweredName)(self.handle, expression.as_ptr(), &mut symbol))?;
        }
        // SAFETY: the compiler has returned a name that lives as long as the program.
        let symbol = unsafe { CStr::from_ptr(symbol) }.to_owned();
        let cubin = self.bytes(compiler.nvrtcGetCUBINSize, compiler.nvrtcGetCUBIN)?;
        Ok(CompiledKernel { symbol, cubin })
    }

    /// The beginning of the compiler's messages.
    fn log(&self) -> String {
        let compiler = self.compiler;
        let log = self.bytes(compiler.nvrtcGetProgramLogSize, compiler.nvrtcGetProgramLog).unwrap_or_default();
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
        log.lines().take(LINES_MAX).collect::<Vec<_>>().join("\n")
    }

    /// The result of a pair of functions that return its length and its bytes.
    fn bytes(
        &self,
        len: unsafe extern "C" fn(cudarc::nvrtc::sys::nvrtcProgram, *mut usize) -> CallStatus,
        get: unsafe extern "C" fn(cudarc::nvrtc::sys::nvrtcProgram, *mut c_char) -> CallStatus,
    ) -> Result<Vec<u8>, String> {
        let mut bytes = 0;
        // SAFETY: a program that lives as long as this value, and room for a number.
        check(self.compiler, unsafe { len(self.handle, &mut bytes) })?;
        let mut result = vec![0u8; bytes];
        // SAFETY: as many bytes as the compiler has just requested.
        check(self.compiler, unsafe { get(self.handle, result.as_mut_ptr().cast()) })?;
        Ok(result)
    }
}

impl Drop for CompiledSource<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and not used afterwards. A failure cannot be reported to anybody.
        let _ = unsafe { (self.compiler.nvrtcDestroyProgram)(&mut self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deeper").join("code");
        let code = CompiledKernel { symbol: c"_Z3addv".to_owned(), cubin: vec![1, 0, 2] };
        assert!(CompiledKernel::read(&path).is_none());
        code.write(&path).unwrap();
        let found = CompiledKernel::read(&path).unwrap();
        assert_eq!((found.symbol, found.cubin), (code.symbol, code.cubin));
        let whole = std::fs::read(&path).unwrap();
        for bytes in [whole[..whole.len() - 1].to_vec(), [&whole[..], &[0]].concat(), vec![], vec![0; 40]] {
            std::fs::write(&path, bytes).unwrap();
            assert!(CompiledKernel::read(&path).is_none());
        }
    }

    #[test]
    fn architectures_have_their_names() {
        assert_eq!([[8, 0], [8, 9], [9, 0], [10, 3]].map(architecture), ["sm_80", "sm_89", "sm_90a", "sm_103a"]);
    }
}
