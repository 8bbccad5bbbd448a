//! States: the published formulas of sharded training: bytes of model states, volumes, bubbles, operations. Tests
//! compare them with the figures that are counted from the tables of a plan. Never looks at a plan.

use serde::Serialize;

use crate::config::{Config, Precision};
use crate::mesh::Axis;

/// Bytes of model states by kind, for one parameter or for everything that a rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StateBytes {
    /// Parameters as layers read them.
    pub params_bytes: usize,
    /// Their gradients.
    pub gradients_bytes: usize,
    /// Moments, and the master copy if there is one.
    pub optimizer_bytes: usize,
}

impl StateBytes {
    /// For one parameter: 2, 2 and K in the ZeRO paper (arXiv 1910.02054, section 3.1), where K is 12 for Adam.
    pub const fn of_param(precision: &Precision) -> Self {
        Self {
            params_bytes: precision.params.bytes(),
            gradients_bytes: precision.reduce.bytes(),
            optimizer_bytes: precision.optimizer_bytes(),
        }
    }

    /// For `params` parameters on one of `ranks` ranks, where `self` is the bytes of one parameter (ZeRO paper, Table
    /// 1). Each stage shards one more kind of state: first the optimizer's, then gradients, then parameters. All shares
    /// are rounded up.
    pub const fn per_rank(self, params: usize, ranks: usize, stage: u8) -> Self {
        const fn share(bytes: usize, ranks: usize, is_sharded: bool) -> usize {
            if is_sharded { bytes.div_ceil(ranks) } else { bytes }
        }
        Self {
            params_bytes: share(params * self.params_bytes, ranks, stage >= 3),
            gradients_bytes: share(params * self.gradients_bytes, ranks, stage >= 2),
            optimizer_bytes: share(params * self.optimizer_bytes, ranks, stage >= 1),
        }
    }

    /// All of them.
    pub const fn total(self) -> usize {
        self.params_bytes + self.gradients_bytes + self.optimizer_bytes
    }
}

/// The numbers that are sent along `zero` in a step, in multiples of Psi, the number of parameters of a model. A ring
/// of N ranks moves (N-1)/N of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Reduce-scatters of gradients.
    pub reduce_scatters: usize,
    /// All-gathers: of parameters, and of gradients at stage 0, whose all-reduce is a reduce-scatter and an all-gather.
    pub all_gathers: usize,
    /// All-gathers of directions, if the optimizer needs whole matrices and each rank has only its shard of them. Only
    /// units with matrices have directions.
    pub directions: usize,
}

impl Volume {
    /// For a step (ZeRO paper, section 7; with Muon, Liu et al., 2025, arXiv 2502.16982, section 2.3). Numbers that are
    /// not held from one micro-batch to the next are sent again in each.
    pub const fn of(config: &Config) -> Self {
        let all_gathers = match config.stage {
            3 if config.holds_parameters() => 1,
            3 => 2 * config.micro_batches,
            _ => 1,
        };
        let directions = config.spreads_directions(Axis::Zero) as usize;
        Self { reduce_scatters: config.reductions(), all_gathers, directions }
    }

    /// All of them.
    pub const fn total(self) -> usize {
        self.reduce_scatters + self.all_gathers + self.directions
    }
}

/// The pipeline bubble as a rate. Both conventions are published under that name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bubble {
    /// Idle time over the time of the step: (p-1)/(m+p-1) for 1F1B.
    pub of_step: f64,
    /// Idle time over the time that the work alone would take: (p-1)/m for 1F1B.
    pub over_ideal: f64,
}

impl Bubble {
    /// For pipeline stages of equal cost (zero-bubble paper, arXiv 2401.10241, Table 2; interleaved: Narayanan et al.,
    /// 2021, section 2.2).
    pub const fn of(config: &Config) -> Self {
        let idle = (config.mesh.pipeline - 1) as f64;
        let ideal = (config.chunks_per_rank() * config.micro_batches) as f64;
        Self { of_step: idle / (ideal + idle), over_ideal: idle / ideal }
    }
}

#[cfg(test)]
mod published;
#[cfg(test)]
mod tests;
