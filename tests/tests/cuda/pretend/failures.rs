//! Failures: mistakes of kernels, and failures that a test requests. A failed device stays failed, so each test has its own
//! process.
#![allow(unsafe_code)]

use std::process::Output;

use zero_tests::pretend;

use super::raw::{self, Handle, OPTIONS, allocate, call, compiler, driver, finish, kernel, launch, receive, stream};

/// Correct kernels, and kernels with one mistake each.
const SOURCE: &str = r#"
template <int WIDTH> __global__ void sum(float* x) {
    __shared__ float part[WIDTH];
    float mine = x[threadIdx.x];
    for (int by = 16; by; by >>= 1) mine += __shfl_xor_sync(0xffffffffu, mine, by);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = mine;
    __syncthreads();
    float all = 0;
    for (int i = 0; i < blockDim.x / 32; i++) all += part[i];
    x[threadIdx.x] = all;
}
__global__ void leaves(float* x) {
    if (threadIdx.x == 3) return;
    __syncthreads();
    x[threadIdx.x] = 0;
}
__global__ void parts(float* x) {
    if (threadIdx.x % 2) __syncwarp();
    else x[threadIdx.x] = __shfl_down_sync(~0u, x[0], 1);
}
__global__ void nobody(float* x) { x[threadIdx.x] = __shfl_sync(1u << threadIdx.x % 32, x[0], 31); }
"#;

fn status_of(name: &str) -> i32 {
    let (one, x) = (stream(), allocate(4 << 10));
    let kernel = kernel(SOURCE, name, &OPTIONS).unwrap();
    assert_eq!(launch(kernel, 2, 64, &mut [x], one), 0);
    finish(one)
}

/// Runs this test of this file again, in another process that calls `inside`.
fn apart(test: &str, variables: &[(&str, &str)], inside: impl FnOnce()) -> Option<Output> {
    pretend::libraries()?;
    if pretend::is_another() {
        inside();
        return None;
    }
    let output = pretend::again(&format!("pretend::failures::{test}"), variables);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(output)
}

#[test]
fn threads_that_miss_a_barrier_are_named() {
    let inside = || {
        raw::begin();
        let name = std::env::var("KERNEL").unwrap();
        assert_eq!(status_of(&name), 719);
        assert_eq!(finish(stream_that_is_there()), 719, "the device stays broken");
    };
    let expected = [
        ("leaves", "waits at __syncthreads, but thread (3, 0, 0) of block"),
        ("parts", "lanes of its warp wait elsewhere, or by other masks"),
        ("nobody", "a shuffle reads a lane that takes no part in it"),
    ];
    for (name, text) in expected {
        let Some(output) = apart("threads_that_miss_a_barrier_are_named", &[("KERNEL", name)], inside) else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(text) && said.contains(name), "{said}");
    }
}

/// The default stream.
fn stream_that_is_there() -> Handle {
    std::ptr::null_mut()
}

#[test]
fn what_is_asked_to_fail_fails_once() {
    let inside = || {
        raw::begin();
        let (one, right) = (stream(), kernel(SOURCE, "sum<32>", &OPTIONS).unwrap());
        let mut second = 0;
        let x = allocate(256);
        assert_eq!(call!(driver(), cuMemAlloc_v2(&mut second => *mut u64, 64 => usize)), 2);
        allocate(64);
        assert_eq!([launch(right, 1, 64, &mut [x], one), launch(right, 1, 64, &mut [x], one)], [701, 0]);
        assert_eq!(finish(one), 700, "the kernel is refused when it is its turn");
        assert_eq!(receive::<f32>(x, 1, one), Err(700), "and the device then stays broken");
    };
    let failures = [("PRETEND_FAIL", "memory:2,launch:1,async:1")];
    apart("what_is_asked_to_fail_fails_once", &failures, inside);
}

#[test]
fn a_machine_without_a_device_or_with_an_old_driver_says_so() {
    let inside = || {
        let mut version = 0;
        assert_eq!(call!(driver(), cuInit(0 => u32)), 100);
        assert_eq!(call!(driver(), cuDriverGetVersion(&mut version => *mut i32)), 0);
        assert_eq!(version, 12_000);
    };
    let failures = [("PRETEND_FAIL", "device:none,driver:12000")];
    apart("a_machine_without_a_device_or_with_an_old_driver_says_so", &failures, inside);
}

#[test]
fn a_function_can_be_missing() {
    let inside = || {
        raw::begin();
        // SAFETY: the functions are only looked up, not called.
        let found =
            ["cuMemCreate\0", "cuMemRelease\0"].map(|name| unsafe { driver().get::<fn()>(name.as_bytes()) }.is_ok());
        assert_eq!(found, [false, true]);
    };
    apart("a_function_can_be_missing", &[("PRETEND_FAIL", "symbol:cuMemCreate")], inside);
}

#[test]
fn a_kernel_of_templates_sums() {
    if !raw::begin() {
        return;
    }
    let (one, x) = (stream(), allocate(256));
    let sum = kernel(SOURCE, "sum<32>", &OPTIONS).unwrap();
    let numbers: Vec<f32> = (0..64).map(|i| i as f32).collect();
    assert_eq!([raw::send(x, &numbers, one), launch(sum, 1, 64, &mut [x], one)], [0; 2]);
    assert_eq!(receive::<f32>(x, 64, one).unwrap(), [2016.0; 64]);
}

/// The compiler's message names each mistake.
#[test]
fn what_a_gpu_would_compile_otherwise_is_refused() {
    if !raw::begin() {
        return;
    }
    let refused = |source: &str, options: &[&str]| kernel(source, "f", options).unwrap_err();
    let empty = "__global__ void f() {}";
    assert!(refused(empty, &["--gpu-architecture=sm_90a"]).contains("--fmad=false"));
    assert!(refused(empty, &["--fmad=false"]).contains("--gpu-architecture"));
    assert!(refused(empty, &[&OPTIONS[..], &["--use_fats_math"]].concat()).contains("--use_fats_math"));
    assert!(refused("__global__ void f(float* x) { *x = expf(*x); }", &OPTIONS).contains("expf"));
    assert!(refused("__global__ void f(float* x) { atomicAdd(x, 1.0f); }", &OPTIONS).contains("atomicAdd"));
    assert!(kernel(empty, "f", &OPTIONS).is_ok());
    let mut version = [0; 2];
    let [major, minor] = version.each_mut();
    assert_eq!(call!(compiler(), nvrtcVersion(major => *mut i32, minor => *mut i32)), 0);
    assert_eq!(version, [13, 0]);
}

/// Only `tests/sanitize.sh` compiles kernels so that this is noticed.
#[test]
fn a_kernel_that_writes_out_of_bounds_is_found() {
    if std::env::var_os("PRETEND_SANITIZE").is_none() || pretend::libraries().is_none() {
        return;
    }
    if pretend::is_another() {
        raw::begin();
        let source = "__global__ void f(int* x, int n) { __shared__ int part[8]; part[n] = *x; *x = part[0]; }";
        let out_of_bounds = kernel(source, "f", &OPTIONS).unwrap();
        let one = stream();
        assert_eq!([launch(out_of_bounds, 1, 1, &mut [allocate(4), 8], one), finish(one)], [0; 2]);
        return;
    }
    let output = pretend::again("pretend::failures::a_kernel_that_writes_out_of_bounds_is_found", &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("index 8 out of bounds for type 'int [8]'"), "{said}");
}

/// Another thread may then be executing code of the driver.
#[test]
fn an_end_by_another_thread_than_the_first_is_found() {
    if pretend::libraries().is_none() {
        return;
    }
    if pretend::is_another() {
        raw::begin();
        std::thread::spawn(|| std::process::exit(0)).join().unwrap();
    }
    let output = pretend::again("pretend::failures::an_end_by_another_thread_than_the_first_is_found", &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("taken down by a thread beside the one that uses it"), "{said}");
}
