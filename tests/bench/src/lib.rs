//! Benchmark: what a training step, a collective and an op of the schedule cost, beside PyTorch where that has an
//! equivalent. The binary measures all of it in rounds; `benches/` has micro-benchmarks. Never asserts a figure.
//!
//! A round measures everything once, ours and the peer's in turn, because the speed of a shared machine drifts; ratios
//! are of figures of one round ([`rounds`]). A figure that shows how well this does is a line of [`claims`].
//!
//! Where the next one goes: a micro-benchmark is a function in `benches/`. What PyTorch has too is measured by
//! [`rounds`], so that both run under the same conditions.

use std::error::Error;

pub mod checkpoints;
pub mod claims;
pub mod collectives;
pub mod emulated;
pub mod figures;
pub mod flop;
#[cfg(feature = "cuda")]
pub mod gpu;
pub mod hosts;
pub mod hosts_predicted;
pub mod machine;
pub mod models;
pub mod overlap;
pub mod predicted;
pub mod processes;
pub mod rounds;
pub mod schedule;
pub mod tables;

/// What a measurement gives, or why there is none, in words.
pub type Outcome<T> = Result<T, Box<dyn Error>>;
