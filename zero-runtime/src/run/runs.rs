//! Runs: hands a program over to the code that runs it on its device. For devices of this crate, that code is compiled here
//! and not in each program. Never looks at the program.

use std::ffi::OsString;
use std::process::ExitCode;

#[cfg(feature = "cuda")]
use crate::device::Cuda;
use crate::device::{Cpu, Device};
use zero_core::model::Program;
use zero_files::data::Sequences;

/// A device that programs run on. Your own device needs `impl Runs for Mine {}`.
pub trait Runs: Device {
    /// Executes `arguments`, and returns the exit code of the process. The program is trained on its own data or, without
    /// any, on text.
    fn run(program: &'static Program<Self>, arguments: Vec<OsString>, data: Option<&dyn Sequences>) -> ExitCode {
        super::run(program, arguments, data)
    }
}

// Written out, because a default would be compiled where it is called.
impl Runs for Cpu {
    #[inline(never)]
    fn run(program: &'static Program<Self>, arguments: Vec<OsString>, data: Option<&dyn Sequences>) -> ExitCode {
        super::run(program, arguments, data)
    }
}

#[cfg(feature = "cuda")]
impl Runs for Cuda {
    #[inline(never)]
    fn run(program: &'static Program<Self>, arguments: Vec<OsString>, data: Option<&dyn Sequences>) -> ExitCode {
        super::run(program, arguments, data)
    }
}
