//! Errors of a device that is not available, or stops: one error with a code, and no fallback to the processor. Each test has its
//! own process, because libraries stay open.

use std::path::PathBuf;

use zero_core::device::Device;
use zero_core::device::{DeviceError, Kernels, Storage};
use zero_cuda::Cuda;
use zero_cuda::{CudaError, DEVICES_VARIABLE, FOLDERS_VARIABLE, use_libraries};
use zero_tests::buffers::{of, values};
use zero_tests::pretend;

use super::device;

/// Runs a test of this folder again, in a process with these variables, which calls `inside`.
pub fn apart(test: &str, variables: &[(&str, &str)], inside: impl FnOnce()) {
    if pretend::libraries().is_none() {
        return;
    }
    if pretend::is_another() {
        return inside();
    }
    let output = pretend::again(&format!("spine::{test}"), variables);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Asserts that opening a device fails with this error, and that its help has a remedy.
#[track_caller]
fn assert_refused(ordinal: usize, code: &str, what: &str) {
    assert!(pretend::is_cuda());
    let error = Cuda::open(ordinal).err().expect("a device that cannot be had");
    assert_eq!((error.code(), error.to_string().as_str()), (code, what));
    assert!(!error.help().is_empty());
    // A run reports it the same way.
    let error = <Cuda as Device>::open(ordinal).err().expect("a device that cannot be had");
    assert_eq!(error.code(), code);
    assert!(error.report().starts_with(&format!("error[{code}]: {what}")), "{}", error.report());
}

fn refused(test: &str, failure: (&str, &str), ordinal: usize, code: &str, what: &str) {
    apart(&format!("refusals::{test}"), &[failure], || assert_refused(ordinal, code, what));
}

/// Some of the pretend libraries in a separate folder.
fn some(names: &[&str]) -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir().expect("a folder");
    for name in names {
        std::os::unix::fs::symlink(pretend::libraries()?.join(name), folder.path().join(name)).expect("a link");
    }
    let path = folder.path().to_owned();
    Some((folder, path))
}

#[test]
fn z0430_a_library_is_missing() {
    let inside = || {
        let missing: [(&[&str], _); 3] = [
            (&[], "libcuda.so.1"),
            (&["libcuda.so.1"], "libnvrtc.so.13"),
            (&["libcuda.so.1", "libnvrtc.so.13"], "libcublasLt.so.13"),
        ];
        for (there, name) in missing {
            let (_folder, path) = some(there).expect("libraries");
            use_libraries(&path);
            match Cuda::open(0).err().expect("a library that is missing") {
                // A machine may have the library elsewhere.
                error @ CudaError::LibraryMissing { .. } => {
                    assert_eq!(error.code(), "Z0430");
                    assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
                    assert!(error.help().contains(FOLDERS_VARIABLE), "{}", error.help());
                }
                error => panic!("{error}"),
            }
        }
    };
    apart("refusals::z0430_a_library_is_missing", &[], inside);
}

/// The folders of NVIDIA's packages from `pip`, in a virtual environment that is active or whose Python is on the PATH; the driver
/// is never there.
#[test]
fn libraries_are_found_where_pytorch_has_put_them() {
    let test = "spine::refusals::libraries_are_found_where_pytorch_has_put_them";
    if pretend::is_another() {
        let cuda = Cuda::open(0).expect("libraries of a virtual environment");
        let (x, mut y) = (of(&cuda, &[1.0f32]), of(&cuda, &[2.0f32]));
        cuda.add(y.view_mut(), x.view());
        assert_eq!((values(&cuda, &y), cuda.failure()), (vec![3.0], None));
        return;
    }
    let Some((folder, driver)) = some(&["libcuda.so.1"]) else { return };
    let built = pretend::libraries().expect("libraries");
    let environment = folder.path().join("venv");
    for (package, names) in
        [("cuda_nvrtc", &["libnvrtc.so.13", "shim.h", "module.h"][..]), ("cublas", &["libcublasLt.so.13"])]
    {
        let place = environment.join("lib/python3.12/site-packages/nvidia").join(package).join("lib");
        std::fs::create_dir_all(&place).expect("a folder");
        for name in names {
            std::os::unix::fs::symlink(built.join(name), place.join(name)).expect("a link");
        }
    }
    let path = |path: &std::path::Path| path.to_str().expect("a path of letters").to_owned();
    let cache = path(&folder.path().join("cache"));
    let programs = environment.join("bin");
    std::fs::create_dir(&programs).expect("a folder");
    std::fs::write(programs.join("python3"), "").expect("a file");
    let called = format!("{}:{}", path(&programs), std::env::var("PATH").expect("a path of letters"));
    for way in [("VIRTUAL_ENV", path(&environment)), ("PATH", called)] {
        let variables = [(FOLDERS_VARIABLE, path(&driver)), way, ("XDG_CACHE_HOME", cache.clone())];
        let output = pretend::again(test, &variables.each_ref().map(|(name, value)| (*name, value.as_str())));
        assert!(output.status.success(), "{}: {}", variables[1].0, String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn z0431_a_function_is_missing() {
    let test = "z0431_a_function_is_missing";
    apart(&format!("refusals::{test}"), &[("PRETEND_FAIL", "symbol:cuMemCreate")], || {
        let driver = pretend::libraries().expect("libraries").join("libcuda.so.1");
        assert_refused(0, "Z0431", &format!("`{}` has no function `cuMemCreate`", driver.display()));
    });
}

#[test]
fn z0432_the_driver_is_old() {
    let what = "the driver is for CUDA 12.8, expected at least 13.0";
    refused("z0432_the_driver_is_old", ("PRETEND_FAIL", "driver:12080"), 0, "Z0432", what);
}

#[test]
fn z0433_there_is_no_device() {
    let what = "there is no CUDA device 0: the driver shows 0";
    refused("z0433_there_is_no_device", ("PRETEND_FAIL", "device:none"), 0, "Z0433", what);
}

#[test]
fn z0433_there_are_fewer_devices() {
    let what = "there is no CUDA device 2: the driver shows 2";
    refused("z0433_there_are_fewer_devices", ("PRETEND_DEVICES", "2"), 2, "Z0433", what);
}

/// Both ranks use the first device: there is no second one.
#[test]
fn ranks_share_a_device_if_they_are_told_to() {
    let inside = || {
        assert!(pretend::is_cuda());
        let opened = [0, 1].map(|rank| <Cuda as Device>::open(rank).expect("a device for two"));
        // Each has its own context, so that a rank can load a kernel while work of the other rank waits for it.
        let contexts = ["cuDevicePrimaryCtxRetain", "cuCtxCreate_v4"].map(pretend::count);
        assert!(pretend::is_hardware() || contexts == [1, 1], "{contexts:?}");
        drop(opened);
        // The next rank has the primary context again.
        let _opened = <Cuda as Device>::open(1).expect("a device");
        let contexts = ["cuDevicePrimaryCtxRetain", "cuCtxCreate_v4"].map(pretend::count);
        assert!(pretend::is_hardware() || contexts == [2, 1], "{contexts:?}");
    };
    let variables = [("PRETEND_DEVICES", "1"), (DEVICES_VARIABLE, "0,0")];
    apart("refusals::ranks_share_a_device_if_they_are_told_to", &variables, inside);
}

#[test]
fn z0441_no_device_is_chosen_for_a_rank() {
    let inside = || {
        assert!(pretend::is_cuda());
        let error = <Cuda as Device>::open(2).err().expect("two devices for three ranks");
        assert_eq!(error.code(), "Z0441");
        let what = "ZERO_CUDA_DEVICES is `0,0`, expected device numbers, one of them for rank 2 of this host";
        assert!(error.report().contains(what), "{}", error.report());
    };
    apart("refusals::z0441_no_device_is_chosen_for_a_rank", &[(DEVICES_VARIABLE, "0,0")], inside);
}

#[test]
fn z0434_the_device_is_old() {
    apart("refusals::z0434_the_device_is_old", &[("PRETEND_CAPABILITY", "75")], || {
        assert!(pretend::is_cuda());
        let error = Cuda::open(0).err().expect("a device that cannot be had");
        assert_eq!(error.code(), "Z0434");
        assert!(error.to_string().ends_with("has compute capability 7.5, expected at least 8.0"), "{error}");
    });
}

#[test]
fn z0435_memory_is_short() {
    apart("refusals::z0435_memory_is_short", &[("PRETEND_MEMORY", "67108864")], || {
        let cuda = device().expect("a device");
        let held = cuda.allocate(40 << 20).expect("what there is");
        let error = cuda.allocate(40 << 20).err().expect("more than there is");
        assert_eq!(error.code(), "Z0435");
        let said = "CUDA device 0 has less than 40.0 MiB of memory left: 24.0 MiB of 64.0 MiB are free";
        assert_eq!(error.to_string(), said);
        assert!(matches!(error, DeviceError::Failed(_)));
        drop(held);
        assert!(cuda.allocate(40 << 20).is_ok(), "what was given back is there again");
        assert_eq!(cuda.failure(), None, "a rank that asks for less can go on");
    });
}

#[test]
fn z0436_the_driver_refuses_a_call() {
    let error = CudaError::Call { call: "cuStreamCreate", ordinal: 1, reason: "no".to_owned() };
    assert_eq!((error.code(), error.to_string().as_str()), ("Z0436", "`cuStreamCreate` failed on CUDA device 1: no"));
}

#[test]
fn z0442_host_memory_is_short() {
    apart("refusals::z0442_host_memory_is_short", &[("PRETEND_FAIL", "host_memory:2")], || {
        let cuda = device().expect("a device");
        let error = cuda.allocate_on_host(40 << 20).err().expect("more than there is");
        assert_eq!(error.code(), "Z0442");
        let said = "cannot pin 40.0 MiB of host memory for CUDA device 0: CUDA_ERROR_OUT_OF_MEMORY, out of memory";
        assert_eq!(error.to_string(), said);
        assert_eq!(cuda.failure(), None, "a rank that asks for less can go on");
    });
}

#[test]
fn z0437_a_kernel_does_not_compile() {
    apart("refusals::z0437_a_kernel_does_not_compile", &[("PRETEND_FAIL", "compile:1")], || {
        let cuda = device().expect("a device");
        // A new folder, because kernels that were compiled before are not compiled again.
        let folder = tempfile::tempdir().expect("a folder");
        zero_cuda::use_kernels(folder.path());
        let (x, mut y) = (of(&cuda, &[1.0f32]), of(&cuda, &[1.0f32]));
        cuda.mul(y.view_mut(), x.view());
        let failure = cuda.failure().expect("a kernel that does not compile");
        assert_eq!(failure.code, "Z0437");
        let begin = "cannot compile the kernel `mul<float, 1>` for CUDA device 0: ";
        assert!(failure.what.starts_with(begin) && failure.what.contains("error: "), "{failure}");
    });
}

#[test]
fn z0439_there_is_no_way_to_a_product() {
    use zero_core::device::{Matrix, Write, bf16};
    let Some(cuda) = device() else { return };
    let (x, mut c) = (of(&cuda, &[1.0f32]), of(&cuda, &[bf16::ONE]));
    // No library rounds sums of f32 operands to bf16.
    cuda.matmul(c.view_mut(), Matrix::new(x.view(), 1, 1), Matrix::new(x.view(), 1, 1), Write::Set);
    let failure = cuda.failure().expect("a product that cannot be had");
    assert_eq!(failure.code, "Z0439", "{failure}");
    let begin = "cannot multiply (1, 1) of f32 by (1, 1) of f32 to (1, 1) of bf16 on CUDA device 0: ";
    assert!(failure.what.starts_with(begin), "{failure}");
}

#[test]
fn z0440_the_device_stops() {
    apart("refusals::z0440_the_device_stops", &[("PRETEND_FAIL", "async:1")], || {
        let cuda = device().expect("a device");
        let (x, mut y) = (of(&cuda, &[1.0f32]), of(&cuda, &[1.0f32]));
        cuda.add(y.view_mut(), x.view());
        cuda.read(y.view(), &mut [0.0]);
        let failure = cuda.failure().expect("a device that has stopped");
        assert_eq!(failure.code, "Z0440", "{failure}");
        assert!(failure.what.starts_with("CUDA device 0 has stopped: CUDA_ERROR_"), "{failure}");
    });
}
