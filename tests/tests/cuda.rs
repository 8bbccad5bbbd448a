//! CUDA without a GPU, on the pretend libraries of `pretend/`. Where there is no C++ compiler to build them, nothing is
//! tested here, and tests say so.

#[path = "cuda/chunks.rs"]
mod chunks;
#[path = "cuda/constants.rs"]
mod constants;
#[path = "cuda/engine.rs"]
mod engine;
#[path = "cuda/events.rs"]
mod events;
#[path = "cuda/failures.rs"]
mod failures;
#[path = "cuda/fused.rs"]
mod fused;
#[path = "cuda/graphs.rs"]
mod graphs;
#[path = "cuda/hardware.rs"]
mod hardware;
#[path = "cuda/kernels/mod.rs"]
mod kernels;
#[path = "cuda/launches.rs"]
mod launches;
#[path = "cuda/nccl.rs"]
mod nccl;
#[path = "cuda/pretend/mod.rs"]
mod pretend;
#[path = "cuda/processes/mod.rs"]
mod processes;
#[path = "cuda/repeats.rs"]
mod repeats;
#[path = "processes/run.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod run;
#[path = "cuda/spine/mod.rs"]
mod spine;
#[path = "processes/system.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod system;
