//! States: the published formulas of sharded training: bytes of model states, volumes, bubbles, operations. What a plan
//! takes and sends is counted from its tables and held against them. Never looks at a plan.

use crate::config::{Config, Order, Precision};

/// Bytes of model states by kind, of one parameter or of all that a rank holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateBytes {
    /// Parameters as layers read them.
    pub params_bytes: usize,
    /// Their gradients.
    pub gradients_bytes: usize,
    /// Master copy, where there is one, and moments.
    pub optimizer_bytes: usize,
}

impl StateBytes {
    /// Of one parameter: 2, 2 and K in the ZeRO paper (arXiv 1910.02054, section 3.1), where K is 12 for Adam.
    pub const fn of_param(precision: &Precision) -> Self {
        Self {
            params_bytes: precision.params.bytes(),
            gradients_bytes: precision.reduce.bytes(),
            optimizer_bytes: precision.optimizer_bytes(),
        }
    }

    /// Of `params` parameters on one of `ranks` ranks, where `self` is what one parameter takes (ZeRO paper, Table 1).
    /// Each stage shards one more kind of state: first the optimizer's, then gradients, then parameters. What does not
    /// divide is rounded up.
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

/// How often all parameters of a model travel along `zero` in a step, in multiples of Psi, their number. A ring of N
/// ranks moves (N-1)/N of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Reduce-scatters of gradients.
    pub reduce_scatters: usize,
    /// All-gathers: of parameters, and of gradients at stage 0, whose all-reduce is a reduce-scatter and an all-gather.
    pub all_gathers: usize,
}

impl Volume {
    /// Of a step (ZeRO paper, section 7). What is not held from one micro-batch to the next travels again in each.
    pub const fn of(config: &Config) -> Self {
        let all_gathers = match config.stage {
            3 if config.holds_parameters() => 1,
            3 => 2 * config.micro_batches,
            _ => 1,
        };
        Self { reduce_scatters: config.reductions(), all_gathers }
    }

    /// Both.
    pub const fn total(self) -> usize {
        self.reduce_scatters + self.all_gathers
    }
}

/// How long one micro-batch takes on one pipeline stage, in any one unit of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassTimes {
    /// TF: forward.
    pub forward: f64,
    /// TB: gradients of activations.
    pub input_gradient: f64,
    /// TW: gradients of parameters.
    pub weight_gradient: f64,
}

impl PassTimes {
    /// Three equal times, as the zero-bubble paper assumes for its bubble rates.
    pub const ALIKE: Self = Self { forward: 1.0, input_gradient: 1.0, weight_gradient: 1.0 };

    fn total(&self) -> f64 {
        self.forward + self.input_gradient + self.weight_gradient
    }
}

/// Published pipeline schedules: those of [`Order`], and those of the zero-bubble paper (arXiv 2401.10241) that split
/// backward in two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pipelining {
    /// All forward passes, then all backward passes.
    GPipe,
    /// One forward, one backward.
    OneFOneB,
    /// 1F1B with several chunks on each pipeline stage.
    Interleaved {
        /// Chunks on each pipeline stage.
        chunks: usize,
    },
    /// Gradients of parameters fill the bubble, in the memory of 1F1B.
    ZeroBubbleH1,
    /// Gradients of parameters fill all of the bubble, in twice the memory of 1F1B.
    ZeroBubbleH2,
}

impl From<Order> for Pipelining {
    fn from(order: Order) -> Self {
        match order {
            Order::GPipe => Pipelining::GPipe,
            Order::OneFOneB => Pipelining::OneFOneB,
            Order::Interleaved { chunks } => Pipelining::Interleaved { chunks },
        }
    }
}

/// A bubble as a rate. Both of these are published under that name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bubble {
    /// Idle time over the time of the step: (p-1)/(m+p-1) for 1F1B.
    pub of_step: f64,
    /// Idle time over the time that the work alone would take: (p-1)/m for 1F1B.
    pub over_ideal: f64,
}

impl Pipelining {
    /// Time in a step that each of `stages` pipeline stages is idle (zero-bubble paper, Table 2; interleaved: Narayanan
    /// et al., 2021, section 2.2).
    pub fn bubble_time(self, stages: usize, times: &PassTimes) -> f64 {
        let idle = match self {
            Pipelining::GPipe | Pipelining::OneFOneB => times.total(),
            Pipelining::Interleaved { chunks } => times.total() / chunks as f64,
            Pipelining::ZeroBubbleH1 => times.total() - 2.0 * times.weight_gradient,
            Pipelining::ZeroBubbleH2 => times.total() - 3.0 * times.weight_gradient,
        };
        (stages - 1) as f64 * idle
    }

    /// The same time as a rate, in both conventions.
    pub fn bubble(self, stages: usize, micro_batches: usize, times: &PassTimes) -> Bubble {
        let idle = self.bubble_time(stages, times);
        let ideal = micro_batches as f64 * times.total();
        Bubble { of_step: idle / (ideal + idle), over_ideal: idle / ideal }
    }

    /// The most micro-batches that a pipeline stage keeps activations of, where one counts for all chunks of the
    /// pipeline stage. The published figures assume that there are as many; it is never more than there are.
    pub fn activations_max(self, stages: usize, micro_batches: usize) -> f64 {
        let (stages, all) = (stages as f64, micro_batches as f64);
        let published = match self {
            Pipelining::GPipe => all,
            Pipelining::OneFOneB | Pipelining::ZeroBubbleH1 => stages,
            Pipelining::Interleaved { chunks } => stages + (stages - 1.0) / chunks as f64,
            Pipelining::ZeroBubbleH2 => 2.0 * stages - 1.0,
        };
        published.min(all)
    }
}

/// Floating-point operations of one transformer layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerOperations {
    /// Forward.
    pub forward: usize,
    /// Gradients of activations.
    pub input_gradient: usize,
    /// Gradients of parameters.
    pub weight_gradient: usize,
}

impl LayerOperations {
    /// Of `sequences` sequences of `length` tokens, `hidden` wide, in a layer with a feed-forward part of four times
    /// that width (zero-bubble paper, Table 1). The number of heads drops out.
    pub const fn of(length: usize, sequences: usize, hidden: usize) -> Self {
        let activations = length * sequences * hidden;
        Self {
            forward: activations * (24 * hidden + 4 * length),
            input_gradient: activations * (24 * hidden + 8 * length),
            weight_gradient: activations * 24 * hidden,
        }
    }
}

#[cfg(test)]
mod tests;
