//! Benchmark: the cost of a training step, a collective and an op of the schedule, beside PyTorch's equivalent where there is one.
//! The binary measures everything in rounds; `benches/` has micro-benchmarks. Never asserts a figure.
//!
//! A round measures everything once, ours and the peer's in turn, because the speed of a shared machine drifts; ratios
//! are of figures of one round ([`rounds`]). A figure of merit is a line of [`claims`].
//!
//! Where the next one goes: a micro-benchmark is a function in `benches/`. [`rounds`] measures whatever PyTorch has too, so that
//! both run under the same conditions.

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
pub mod limits;
pub mod machine;
pub mod models;
pub mod overlap;
pub mod predicted;
pub mod processes;
pub mod rounds;
pub mod schedule;
pub mod tables;
pub mod tiers;
pub mod update_phase;

/// The result of a measurement, or a message that says why there is none.
pub type Outcome<T> = Result<T, Box<dyn Error>>;
