//! Published: formulas that only tests need, for pipeline schedules and transformer layers. Never looks at a plan.

use super::Bubble;
use crate::config::Order;

/// How long one micro-batch takes on one pipeline stage, in any unit of time.
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
    /// Gradients of parameters fill part of the bubble, with the memory of 1F1B.
    ZeroBubbleH1,
    /// Gradients of parameters fill the whole bubble, with twice the memory of 1F1B.
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

impl Pipelining {
    /// Time in a step that each of `pipeline_stages` pipeline stages is idle (zero-bubble paper, Table 2; interleaved:
    /// Narayanan et al., 2021, section 2.2).
    pub fn bubble_time(self, pipeline_stages: usize, times: &PassTimes) -> f64 {
        let idle = match self {
            Pipelining::GPipe | Pipelining::OneFOneB => times.total(),
            Pipelining::Interleaved { chunks } => times.total() / chunks as f64,
            Pipelining::ZeroBubbleH1 => times.total() - 2.0 * times.weight_gradient,
            Pipelining::ZeroBubbleH2 => times.total() - 3.0 * times.weight_gradient,
        };
        (pipeline_stages - 1) as f64 * idle
    }

    /// The same time as a rate, in both conventions.
    pub fn bubble(self, pipeline_stages: usize, micro_batches: usize, times: &PassTimes) -> Bubble {
        let idle = self.bubble_time(pipeline_stages, times);
        let ideal = micro_batches as f64 * times.total();
        Bubble { of_step: idle / (ideal + idle), over_ideal: idle / ideal }
    }

    /// The most micro-batches whose activations a pipeline stage keeps, where one counts for all chunks of the pipeline
    /// stage. The published figures assume that there are that many micro-batches; the result is never more than there
    /// are.
    pub fn activations_max(self, pipeline_stages: usize, micro_batches: usize) -> f64 {
        let (pipeline_stages, all) = (pipeline_stages as f64, micro_batches as f64);
        let published = match self {
            Pipelining::GPipe => all,
            Pipelining::OneFOneB | Pipelining::ZeroBubbleH1 => pipeline_stages,
            Pipelining::Interleaved { chunks } => pipeline_stages + (pipeline_stages - 1.0) / chunks as f64,
            Pipelining::ZeroBubbleH2 => 2.0 * pipeline_stages - 1.0,
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
    /// For `sequences` sequences of `length` tokens, `hidden` wide, in a layer with a feed-forward part of four times
    /// that width (zero-bubble paper, Table 1). The number of heads cancels out.
    pub const fn of(length: usize, sequences: usize, hidden: usize) -> Self {
        let activations = length * sequences * hidden;
        Self {
            forward: activations * (24 * hidden + 4 * length),
            input_gradient: activations * (24 * hidden + 8 * length),
            weight_gradient: activations * 24 * hidden,
        }
    }
}
