//! Marks: the properties of a device, of CUDA's libraries and of their choices that decide bits. Never compares.
#![allow(unsafe_code)]

use super::Cuda;
use super::error::CudaError;
use super::handle::module::compiler_version;
use zero_core::device::Mark;
use zero_plan::Fingerprint;

impl Cuda {
    /// The marks of this device, with the ways of all products so far.
    pub(super) fn marks(&self) -> Result<Vec<Mark>, CudaError> {
        let context = &self.context;
        let [major, minor] = context.capability;
        let [nvrtc_major, nvrtc_minor] = compiler_version(context)?;
        let number = |major: i32, minor: i32, step: i32| (major * step + minor) as u64;
        Ok(vec![
            Mark::new("device name with the hash", Fingerprint::of(&self.name()?)),
            Mark::new("compute capability (in tenths)", number(major, minor, 10)),
            Mark::new("driver for CUDA", self.driver_version()?),
            Mark::new("compiler NVRTC", number(nvrtc_major, nvrtc_minor, 1000)),
            Mark::new("library cublasLt", context.blas_version()),
            Mark::of_shapes("choice of matrix products, with the hash", self.products()),
        ])
    }

    fn driver_version(&self) -> Result<u64, CudaError> {
        let mut version = 0;
        // SAFETY: room for a number.
        let status = unsafe { (self.context.libraries.driver.cuDriverGetVersion)(&mut version) };
        self.context.check("cuDriverGetVersion", status).map(|()| version as u64)
    }
}
