//! Error: the reasons why a CUDA device is unavailable or stops, each with message, stable code and way out. Never
//! prints.

use std::path::PathBuf;

use zero_plan::Bytes;

use super::variables::{DEVICES_VARIABLE, FOLDERS_VARIABLE};
use zero_core::device::{DeviceError, Failure};

/// Why a device is unavailable, or no longer works.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// A library of CUDA is missing.
    #[error("cannot load `{name}`, which the CUDA device needs: {reason}")]
    LibraryMissing {
        /// Its file.
        name: &'static str,
        /// The message of the system's loader.
        reason: String,
    },
    /// A library of CUDA is too old, or another library has its name.
    #[error("`{}` has no function `{name}`", library.display())]
    FunctionMissing {
        /// The file.
        library: PathBuf,
        /// The missing function.
        name: &'static str,
    },
    /// The driver does not know the version of CUDA that this is written for.
    #[error("the driver is for CUDA {}, expected at least {}", version(*found), version(*expected))]
    DriverOld {
        /// Thousands are major versions, tens are minor ones.
        found: i32,
        /// The same.
        expected: i32,
    },
    /// There is no device of this number.
    #[error("there is no CUDA device {ordinal}: the driver shows {count}")]
    NoDevice {
        /// The number, from 0.
        ordinal: usize,
        /// The number of devices.
        count: usize,
    },
    /// The device lacks instructions that kernels use.
    #[error(
        "CUDA device {ordinal} ({name}) has compute capability {}.{}, expected at least {}.{}",
        found[0], found[1], expected[0], expected[1]
    )]
    DeviceOld {
        /// The number, from 0.
        ordinal: usize,
        /// Its name.
        name: String,
        /// Major and minor version.
        found: [i32; 2],
        /// The same.
        expected: [i32; 2],
    },
    /// The device has too little memory left.
    #[error(
        "CUDA device {ordinal} has less than {} of memory left: {} of {} are free",
        Bytes(*bytes), Bytes(*free_bytes), Bytes(*total_bytes)
    )]
    OutOfMemory {
        /// The number, from 0.
        ordinal: usize,
        /// Bytes that were requested.
        bytes: usize,
        /// Bytes that the driver has left.
        free_bytes: usize,
        /// Bytes of the whole device.
        total_bytes: usize,
    },
    /// The driver does not reserve that much memory of the host for the device.
    #[error("cannot pin {} of host memory for CUDA device {ordinal}: {reason}", Bytes(*bytes))]
    HostMemory {
        /// The number of the device, from 0.
        ordinal: usize,
        /// Bytes that were requested.
        bytes: usize,
        /// The driver's message.
        reason: String,
    },
    /// A call of the driver failed.
    #[error("`{call}` failed on CUDA device {ordinal}: {reason}")]
    Call {
        /// The function.
        call: &'static str,
        /// The number of the device, from 0.
        ordinal: usize,
        /// The driver's message.
        reason: String,
    },
    /// A kernel does not compile.
    #[error("cannot compile the kernel `{kernel}` for CUDA device {ordinal}: {reason}")]
    Compile {
        /// Its name, with the constants that it is compiled for.
        kernel: String,
        /// The number of the device, from 0.
        ordinal: usize,
        /// The compiler's message.
        reason: String,
    },
    /// A kernel does not load, or does not start.
    #[error("cannot start the kernel `{kernel}` on CUDA device {ordinal}: {reason}")]
    Launch {
        /// Its name, with the constants that it is compiled for.
        kernel: String,
        /// The number of the device, from 0.
        ordinal: usize,
        /// The driver's message.
        reason: String,
    },
    /// A matrix product cannot be computed.
    #[error("cannot multiply {product} on CUDA device {ordinal}: {reason}")]
    Product {
        /// Shapes and widths.
        product: String,
        /// The number of the device, from 0.
        ordinal: usize,
        /// The library's message.
        reason: String,
    },
    /// A pass was captured as a graph, and a later one made other calls.
    #[error("call {call} of a step to CUDA device {ordinal} differs from the step that was captured as a graph")]
    Changed {
        /// The number of the device, from 0.
        ordinal: usize,
        /// The number of the call in the step, from 1.
        call: usize,
    },
    /// The device failed at an op after the call for it had returned.
    #[error("CUDA device {ordinal} has stopped: {reason}")]
    Stopped {
        /// The number of the device, from 0.
        ordinal: usize,
        /// The driver's message.
        reason: String,
    },
    /// NCCL is too old, or a different version than on rank 0.
    #[error(
        "`libnccl.so.2` is NCCL {}, expected {}",
        release(*found), if *of_rank_0 { format!("{}, as on rank 0", release(*expected)) }
        else { format!("at least {}", release(*expected)) }
    )]
    CarrierVersion {
        /// Ten thousands are major versions, hundreds are minor ones.
        found: i32,
        /// The same.
        expected: i32,
        /// Whether the expected version is that of rank 0.
        of_rank_0: bool,
    },
    /// NCCL cannot carry bytes between devices.
    #[error("NCCL's `{call}` failed on CUDA device {ordinal}: {reason}")]
    Communicator {
        /// The function.
        call: &'static str,
        /// The number of the device, from 0.
        ordinal: usize,
        /// NCCL's message.
        reason: String,
    },
    /// Devices that are to be described together differ.
    #[error("the GPUs of this machine are of several kinds: {one} and {other}")]
    Kinds {
        /// The name of one device.
        one: String,
        /// The name of a device of another kind.
        other: String,
    },
    /// The variable that lists devices of ranks has none for this rank.
    #[error(
        "{DEVICES_VARIABLE} is `{devices}`, expected device numbers, one of them for rank {local_rank} of this host"
    )]
    Choice {
        /// Its value.
        devices: String,
        /// The number of the rank on its host, from 0.
        local_rank: usize,
    },
}

fn version(number: i32) -> String {
    format!("{}.{}", number / 1000, number % 1000 / 10)
}

/// A version as NCCL writes it.
fn release(number: i32) -> String {
    format!("{}.{}.{}", number / 10_000, number % 10_000 / 100, number % 100)
}

impl CudaError {
    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::LibraryMissing { .. } => "Z0430",
            Self::FunctionMissing { .. } => "Z0431",
            Self::DriverOld { .. } => "Z0432",
            Self::NoDevice { .. } => "Z0433",
            Self::DeviceOld { .. } => "Z0434",
            Self::OutOfMemory { .. } => "Z0435",
            Self::Call { .. } => "Z0436",
            Self::Compile { .. } => "Z0437",
            Self::Launch { .. } => "Z0438",
            Self::Product { .. } => "Z0439",
            Self::Stopped { .. } => "Z0440",
            Self::Choice { .. } => "Z0441",
            Self::HostMemory { .. } => "Z0442",
            Self::CarrierVersion { .. } => "Z0445",
            Self::Communicator { .. } => "Z0446",
            Self::Kinds { .. } => "Z0447",
            Self::Changed { .. } => "Z0449",
        }
    }

    /// What to do about it.
    pub fn help(&self) -> String {
        let help = match self {
            Self::LibraryMissing { name: "libcuda.so.1", .. } => {
                return format!("install NVIDIA's driver, or name the folder of the library in {FOLDERS_VARIABLE}");
            }
            Self::LibraryMissing { name: "libnccl.so.2", .. } => {
                return format!(
                    "install NCCL 2.28 or a later one, or PyTorch with it, or name the folder of the library in \
                     {FOLDERS_VARIABLE}; within one host, `transport: Peer` does not need it"
                );
            }
            Self::LibraryMissing { .. } => {
                return format!(
                    "install CUDA 13, or PyTorch built for it, or name the folder of the library in {FOLDERS_VARIABLE}"
                );
            }
            Self::FunctionMissing { .. } => {
                return format!("install CUDA 13, and check whether {FOLDERS_VARIABLE} names an older version");
            }
            Self::DriverOld { .. } => "install a newer driver",
            Self::NoDevice { .. } => {
                return format!(
                    "start as many ranks as there are devices, or let ranks share them: {DEVICES_VARIABLE}=0,0; see \
                     CUDA_VISIBLE_DEVICES too"
                );
            }
            Self::Kinds { .. } => return format!("choose GPUs of one kind: {DEVICES_VARIABLE}=0,1"),
            Self::Choice { .. } => "name a device for each rank of the host, separated by commas: 0,1,2,3",
            Self::DeviceOld { .. } => "use a device of the Ampere generation or a later one",
            Self::OutOfMemory { .. } => {
                "end other programs on the device, or build from a spec that needs less: a higher stage or a smaller batch"
            }
            Self::HostMemory { .. } => {
                "end other programs on the host, see the limits of its control groups, or keep less there: more ranks along \
                 `zero`, or `offload` for fewer states"
            }
            Self::Call { .. } => "check the state of the device in `nvidia-smi` and in the system's log",
            Self::Compile { .. } => "this is a bug in zero, or an untested compiler: please report it",
            Self::Changed { .. } => {
                "each step must make the same calls: run with --eager, and please report it with the spec"
            }
            Self::Launch { .. } | Self::Product { .. } => "please report it, with the spec and the versions of CUDA",
            Self::CarrierVersion { of_rank_0: true, .. } => "make all ranks load the same library",
            Self::CarrierVersion { .. } => "install NCCL 2.28 or a later one",
            Self::Communicator { .. } => "start it with NCCL_DEBUG=WARN for more details",
            Self::Stopped { .. } => {
                "see `dmesg` for faults of the device (Xid); if there are none, please report it with the spec"
            }
        };
        help.to_owned()
    }
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Self {
        Self { code: error.code(), what: error.to_string(), help: error.help() }
    }
}

impl From<CudaError> for DeviceError {
    fn from(error: CudaError) -> Self {
        Self::Failed(error.into())
    }
}
