//! CUDA without a GPU, on the pretend libraries of `pretend/`. Without a C++ compiler to build them, all tests here are skipped,
//! and report this. `pretend/settings.h` lists the variables that change their order of work, sizes and failures.
//! `gpu/check.sh` runs these tests on a GPU.
//!
//! The driver of a process does one thing at a time, so a long training begins with `pretend::is_done_apart`.

mod chunks;
mod constants;
mod engine;
mod events;
mod failures;
mod graphs;
mod hardware;
mod kernels;
mod launches;
mod nccl;
mod offload;
mod pretend;
mod processes;
mod publish;
mod repeats;
#[path = "../processes/run.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod run;
mod spine;
#[path = "../processes/system.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod system;
