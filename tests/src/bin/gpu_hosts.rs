//! A small model of text on GPUs of two hosts, or, if its first argument is `lone`, of three hosts with one GPU each.

use std::process::ExitCode;

use zero_runtime::prelude::*;
use zero_tests::small::main_of;
use zero_tests::small_model;

small_model! { #[zero(spec = "specs/gpu_hosts.ron")] GpuHosts }
small_model! { #[zero(spec = "specs/gpu_lone.ron")] GpuLone }

fn main() -> ExitCode {
    main_of::<GpuHosts, GpuLone>("lone")
}
