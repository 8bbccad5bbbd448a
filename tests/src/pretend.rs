//! Pretend: libraries that behave like CUDA's, on the host. The system's C++ compiler builds them from
//! `tests/pretend/`, once for each state of their sources. Without such a compiler, tests that need the libraries report that they
//! are skipped. With `ZERO_TEST_GPU=1`, tests of the device run on CUDA's own libraries and a GPU instead; tests of the pretend
//! libraries, of orders and of failures then report that they are skipped. Without this variable, never looks for a GPU.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use libloading::Library;

use crate::long::is_left_out;

/// Where the sources are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/pretend");

/// The sources of the driver.
const DRIVER: [&str; 9] = [
    "cuda.cpp",
    "queue.cpp",
    "streams.cpp",
    "graphs.cpp",
    "memory.cpp",
    "copies.cpp",
    "modules.cpp",
    "block.cpp",
    "fibers.cpp",
];

/// The headers that kernels include. They lie beside the library that compiles kernels.
const HEADERS: [&str; 2] = ["shim.h", "module.h"];

/// Options for all libraries. Calls within a library are bound when it is linked, so that a function can be hidden from
/// other libraries.
const OPTIONS: [&str; 8] =
    ["-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Wl,-Bsymbolic"];

/// The variable that allows ranks of NCCL to share a GPU.
const SHARED_BY_NCCL: &str = "NCCL_MULTI_RANK_GPU_ENABLE";

/// Variables that locate libraries and devices. On a GPU, a process that is started with an empty environment needs them.
const PASSED_ON: [&str; 10] = [
    zero_cuda::FOLDERS_VARIABLE,
    zero_cuda::DEVICES_VARIABLE,
    "CUDA_VISIBLE_DEVICES",
    SHARED_BY_NCCL,
    "LD_LIBRARY_PATH",
    "PATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "HOME",
    "XDG_CACHE_HOME",
];

/// Whether tests run on a GPU.
pub fn is_hardware() -> bool {
    std::env::var_os("ZERO_TEST_GPU").is_some()
}

/// Whether NCCL can be tested here. On a GPU, NCCL connects several ranks only if this variable, which NCCL 2.30 and later read,
/// allows it.
pub fn is_nccl() -> bool {
    !is_hardware() || std::env::var_os(SHARED_BY_NCCL).is_some()
}

/// The folder of the libraries, for `ZERO_CUDA_LIBRARIES` of other processes; none if they cannot be built or if tests run on a
/// GPU.
///
/// # Panics
/// If the compiler refuses the sources.
pub fn libraries() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    BUILT.get_or_init(build).as_deref()
}

/// Makes this process use pretend CUDA devices, and keep their kernels beside the libraries. Returns whether this is possible, or
/// tests run on a GPU.
///
/// # Panics
/// If the compiler refuses the sources.
pub fn is_cuda() -> bool {
    if is_hardware() {
        return true;
    }
    let Some(folder) = libraries() else { return false };
    zero_cuda::use_libraries(folder);
    zero_cuda::use_kernels(&cache(folder).join("zero").join("kernels"));
    true
}

/// Variables for a new process: with them it uses pretend CUDA devices and the kernels that this process keeps or, if tests run on
/// a GPU, finds the devices of this machine. None if neither is possible.
///
/// # Panics
/// If the compiler refuses the sources.
pub fn variables() -> Option<Vec<(&'static str, OsString)>> {
    if is_hardware() {
        return Some(PASSED_ON.iter().filter_map(|&name| Some((name, std::env::var_os(name)?))).collect());
    }
    let folder = libraries()?;
    Some(vec![(zero_cuda::FOLDERS_VARIABLE, folder.into()), ("XDG_CACHE_HOME", cache(folder).into())])
}

/// The path of a program or a file that tests were built with; on a machine that they were copied to, the path of the file of the
/// same name beside this program.
///
/// # Panics
/// If this program has no path.
pub fn carried(path: &str) -> PathBuf {
    let beside = std::env::current_exe().unwrap().with_file_name(Path::new(path).file_name().unwrap());
    if beside.exists() { beside } else { path.into() }
}

/// The folder that keeps compiled kernels: below `PRETEND_KEEP` if it is set, since kernels that are kept elsewhere
/// would not be compiled again for it.
fn cache(folder: &Path) -> PathBuf {
    let kept = std::env::var_os("PRETEND_KEEP").map(PathBuf::from);
    let name = if std::env::var_os("PRETEND_SANITIZE").is_some() { "sanitized" } else { "plain" };
    kept.as_deref().unwrap_or(folder).join(name)
}

/// The compiler, without the tests' preloaded sanitizer.
fn compiler() -> Command {
    let mut command = Command::new(std::env::var("PRETEND_CXX").unwrap_or_else(|_| "g++".into()));
    command.env_remove("LD_PRELOAD");
    command
}

fn build() -> Option<PathBuf> {
    if is_hardware() {
        eprintln!("NOT TESTED: this is about the pretend CUDA libraries, and tests run on a GPU");
        return None;
    }
    let Ok(version) = compiler().arg("-v").output().map(|output| output.stderr) else {
        eprintln!(
            "NOT TESTED: no C++ compiler ({:?}) to build the pretend CUDA libraries by",
            compiler().get_program()
        );
        return None;
    };
    let mut hasher = DefaultHasher::new();
    (version, OPTIONS, DRIVER).hash(&mut hasher);
    let mut sources: Vec<_> = std::fs::read_dir(SOURCES).unwrap().map(|file| file.unwrap().path()).collect();
    sources.sort();
    for source in sources {
        std::fs::read(source).unwrap().hash(&mut hasher);
    }
    let folder = below_target().join(format!("{:016x}", hasher.finish()));
    if !folder.exists() {
        let unfinished = folder.with_extension(std::process::id().to_string());
        std::fs::create_dir_all(&unfinished).unwrap();
        compile(&unfinished);
        // Another process may have been faster; its files are complete too.
        if std::fs::rename(&unfinished, &folder).is_err() {
            std::fs::remove_dir_all(&unfinished).unwrap();
        }
    }
    Some(folder)
}

/// `target/pretend`, wherever this program's target directory is.
fn below_target() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let deps = program.ancestors().find(|folder| folder.ends_with("deps")).expect("tests lie in target/PROFILE/deps");
    deps.parent().and_then(Path::parent).unwrap().join("pretend")
}

fn compile(folder: &Path) {
    for header in HEADERS {
        std::fs::copy(Path::new(SOURCES).join(header), folder.join(header)).unwrap();
    }
    let compiling = |name: &str, sources: &[&str], more: &[&str]| {
        let mut command = compiler();
        command.current_dir(SOURCES).args(OPTIONS).args(more).args(sources);
        command.arg(format!("-Wl,-soname,{name}")).arg("-o").arg(folder.join(name));
        command.arg(format!("-L{}", folder.display()));
        command
    };
    let driver = compiling("libcuda.so.1", &DRIVER, &["-pthread"]).spawn().unwrap();
    run(&mut compiling("libnvrtc.so.13", &["nvrtc.cpp"], &[]));
    finish(driver);
    // The libraries of products and of communication put their work into the driver's streams.
    let products = ["-O3", "-march=native", "-ffp-contract=fast"];
    let driver = ["-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN"];
    run(compiling("libcublasLt.so.13", &["cublaslt.cpp"], &products).args(driver));
    run(compiling("libnccl.so.2", &["nccl.cpp"], &[]).args(driver));
}

fn run(command: &mut Command) {
    finish(command.spawn().unwrap());
}

fn finish(mut child: std::process::Child) {
    assert!(child.wait().unwrap().success(), "the pretend CUDA libraries do not compile");
}

/// From now on, the pretend driver of this process executes work in the order of another seed. Does not affect a GPU.
///
/// # Panics
/// If there are no libraries.
pub fn seed(seed: u64) {
    if is_hardware() {
        return;
    }
    // SAFETY: the type is that of the function in `cuda.cpp`.
    unsafe { driver().get::<extern "C" fn(u64) -> i32>(b"pretend_seed\0").unwrap()(seed) };
}

/// From now on, these calls fail; they are written as in `PRETEND_FAIL`. If the pretend driver of this process has failed, it works
/// again.
///
/// # Panics
/// If there are no libraries.
pub fn fail(failures: &str) {
    let failures = CString::new(failures).unwrap();
    // SAFETY: the type is that of the function in `cuda.cpp`, which keeps nothing of the text.
    unsafe { driver().get::<extern "C" fn(*const i8) -> i32>(b"pretend_fail\0").unwrap()(failures.as_ptr().cast()) };
}

/// The number of this thread's calls of a function of the pretend driver, by its name; 0 on a GPU, whose driver does not count.
///
/// # Panics
/// If there are no libraries.
pub fn count(name: &str) -> u64 {
    if is_hardware() {
        return 0;
    }
    let (name, mut count) = (CString::new(name).unwrap(), 0);
    // SAFETY: the type is that of the function in `cuda.cpp`, which keeps nothing of the name.
    let status = unsafe {
        let count_of = driver().get::<extern "C" fn(*const i8, *mut u64) -> i32>(b"pretend_count\0").unwrap();
        count_of(name.as_ptr().cast(), &mut count)
    };
    assert_eq!(status, 0);
    count
}

/// The kernels that this process has requested from the pretend driver, written as in C++: `layer_norm<float, 8, 24, 0x3727c5ac>`.
///
/// # Panics
/// If there are no libraries.
pub fn kernels() -> BTreeSet<String> {
    extern "C" fn tell(kernels: &mut BTreeSet<String>, name: *const i8) {
        // SAFETY: the text ends in a zero, and lives until this call returns.
        kernels.insert(unsafe { CStr::from_ptr(name.cast()) }.to_str().expect("names are ASCII").to_owned());
    }
    type Tell = extern "C" fn(&mut BTreeSet<String>, *const i8);
    type TellAll = extern "C" fn(Tell, &mut BTreeSet<String>) -> i32;
    let mut kernels = BTreeSet::new();
    // SAFETY: the type is that of the function in `modules.cpp`, which passes its arguments on and keeps none.
    unsafe { driver().get::<TellAll>(b"pretend_kernels\0").unwrap()(tell, &mut kernels) };
    kernels
}

/// The number of resources that this process has allocated from the pretend driver and not freed.
///
/// # Panics
/// If there are no libraries.
pub fn held() -> i32 {
    // SAFETY: the type is that of the function in `cuda.cpp`.
    unsafe { driver().get::<extern "C" fn() -> i32>(b"pretend_held\0").unwrap()() }
}

/// Free bytes of the pretend driver's devices, or of the GPU that this thread uses.
///
/// # Panics
/// If there are no libraries.
pub fn free_bytes() -> usize {
    let (mut free_bytes, mut total_bytes) = (0, 0);
    // SAFETY: the type is that of the function in CUDA's headers, with room for two numbers.
    let status = unsafe {
        let get = driver().get::<extern "C" fn(*mut usize, *mut usize) -> i32>(b"cuMemGetInfo_v2\0").unwrap();
        get(&mut free_bytes, &mut total_bytes)
    };
    assert_eq!(status, 0, "a thread that has used a device, which works");
    free_bytes
}

/// The pretend driver of this process, or the driver of this machine if tests run on a GPU.
///
/// # Panics
/// If there are no libraries.
pub fn driver() -> &'static Library {
    static DRIVER: OnceLock<Library> = OnceLock::new();
    DRIVER.get_or_init(|| {
        let name = "libcuda.so.1";
        let named = std::env::var_os(zero_cuda::FOLDERS_VARIABLE).unwrap_or_default();
        let path = if is_hardware() {
            let found = std::env::split_paths(&named).map(|folder| folder.join(name)).find(|path| path.exists());
            found.unwrap_or(name.into())
        } else {
            libraries().expect("a C++ compiler").join(name)
        };
        // SAFETY: when it is loaded, the pretend driver only hides a function, and the real one was
        // loaded when a device was opened.
        unsafe { Library::new(path) }.unwrap()
    })
}

/// Whether [`again`] has started this process, in which a test does the work that needs a separate process.
pub fn is_another() -> bool {
    std::env::var_os("PRETEND_AGAIN").is_some()
}

/// Runs a test of this program, by its full name, in a separate process with further variables, in which [`is_another`] is true.
///
/// # Panics
/// If the process does not start, or runs no such test.
pub fn again(test: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env("PRETEND_AGAIN", "1");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("running 1 test"), "`{test}` is no test: {said}");
    output
}

/// Runs the calling test, which takes long, in a separate process, because the pretend driver of a process does one thing at a
/// time, however many tests run. Returns whether nothing is left to do: the process has run the test, or long tests are skipped.
/// Does nothing on a GPU, in such a process, or if all tests of a program run one after another.
///
/// # Panics
/// If the test fails there.
pub fn is_done_apart() -> bool {
    if is_left_out("long training on pretend devices") {
        return true;
    }
    let thread = std::thread::current();
    let test = thread.name().expect("tests run on threads with their names");
    if is_hardware() || is_another() || test == "main" {
        return false;
    }
    let output = again(test, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}
