//! Update: the end of a step: agreement on loss and norm, clipping, AdamW on what this rank keeps the state of. The order
//! of every sum follows the layout, never the stage.
#![allow(unsafe_code)]

use zero_plan::{Kind, Plan};

use super::{Engine, StepReport};
use crate::device::{AdamW, Device};
use crate::layer::Tensors;
use crate::model::Model;
use crate::transport::{Lost, Transport};

/// What the user chooses about the optimizer for one step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hyper {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay, of matrices only.
    pub weight_decay: f64,
    /// The norm to which longer gradients are scaled down, if any.
    pub clip: Option<f64>,
}

impl Hyper {
    /// AdamW (Loshchilov and Hutter, 2019) at step `steps_done` + 1, for sums of `summed` gradients whose mean has
    /// `norm`. Clipping scales by clip / (norm + 1e-6) where that is less than 1, as PyTorch does.
    pub(super) fn adamw(&self, steps_done: u64, norm: f64, summed: usize) -> AdamW {
        let t = (steps_done + 1) as f64;
        let scale = self.clip.map_or(1.0, |clip| (clip / (norm + 1e-6)).min(1.0));
        AdamW {
            lr: self.lr,
            beta1: self.beta1,
            beta2: self.beta2,
            eps: self.epsilon,
            weight_decay: self.weight_decay,
            grad_scale: scale / summed as f64,
            correction1: 1.0 - self.beta1.powf(t),
            correction2: 1.0 - self.beta2.powf(t),
        }
    }
}

/// A stretch of a flat buffer that this rank updates, counted from the start of what it owns of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    start: usize,
    len: usize,
    decays: bool,
}

/// What `rank` updates of each unit: all of it, or its shard, without the padding.
pub(super) fn segments<M: Model>(plan: &Plan, rank: usize) -> Vec<Vec<Segment>> {
    let segments_of = |unit: usize| {
        let (start, len) = owned(plan, unit, rank);
        let mut tensors = Tensors::default();
        if plan.placements[unit].padded > 0 {
            (M::CODE[plan.units[unit].position].tensors)(&mut tensors);
        }
        let cut = |tensor: crate::layer::Tensor| {
            let from = tensor.start.max(start);
            let to = (tensor.start + tensor.len()).min(start + len);
            (from < to).then(|| Segment { start: from - start, len: to - from, decays: tensor.decays() })
        };
        tensors.into_list().into_iter().filter_map(cut).collect()
    };
    (0..plan.units.len()).map(segments_of).collect()
}

/// The stretch of a unit's flat buffer whose optimizer state `rank` keeps.
pub(super) fn owned(plan: &Plan, unit: usize, rank: usize) -> (usize, usize) {
    let placement = &plan.placements[unit];
    if plan.config.shards_optimizer() {
        let len = placement.shard(plan.config.ranks);
        (rank * len, len)
    } else {
        (0, placement.padded)
    }
}

/// Sums the numbers of all ranks along the tree that gradients are summed along.
pub(super) fn tree_sum(numbers: &[[f64; 2]]) -> [f64; 2] {
    match numbers {
        [one] => *one,
        _ => {
            let (left, right) = numbers.split_at(numbers.len().next_power_of_two() / 2);
            let (left, right) = (tree_sum(left), tree_sum(right));
            [left[0] + right[0], left[1] + right[1]]
        }
    }
}

impl<'p, M: Model, T: Transport<'p>> Engine<'p, M, T> {
    /// Number of gradients in a sum: one for each rank and micro-batch.
    pub(super) fn gradients_summed(&self) -> usize {
        self.plan.config.ranks * self.plan.config.micro_batches
    }

    /// Mean loss of the step and norm of its mean gradient, over all ranks.
    pub(super) fn agree(&mut self, loss: f64) -> Result<StepReport, Lost> {
        let mut squares = 0.0;
        for unit in 0..self.plan.units.len() {
            let (kind, start, len) = self.arena.reduced(unit);
            // SAFETY: every bucket is settled: nobody writes the sums before the next step.
            squares += self.device.sum_squares(unsafe { self.arena.view(kind, start, len) });
        }
        self.transport.exchange([loss, squares], &mut self.exchanged)?;
        let [loss, squares] = tree_sum(&self.exchanged);
        let summed = self.gradients_summed() as f64;
        Ok(StepReport { loss: loss / summed, gradient_norm: squares.sqrt() / summed })
    }

    /// Updates what this rank keeps the optimizer state of, and publishes it where peers need it.
    pub(super) fn update(&mut self, unit: usize, adamw: &AdamW) {
        let plan = self.plan;
        let placement = &plan.placements[unit];
        let sharded = plan.config.shards_optimizer();
        let ((params_start, _), (grads, grads_start), state_start) = if sharded {
            let (kind, start, _) = self.arena.reduced(unit);
            (self.arena.shard(unit, self.arena.rank()), (kind, start), placement.start / plan.config.ranks)
        } else {
            (self.arena.flat(unit), (Kind::Gradients, self.arena.local_gradients(unit).0), placement.start)
        };
        let half = plan.memory.region(Kind::Optimizer).elements / 2;
        for &Segment { start, len, decays } in &self.segments[unit] {
            let step = AdamW { weight_decay: if decays { adamw.weight_decay } else { 0.0 }, ..*adamw };
            // SAFETY: four stretches of three regions, the two halves of the optimizer state among them. All ranks have
            // agreed, which they do after their last use of the parameters, so nobody reads what is written here.
            unsafe {
                self.device.adamw(
                    &step,
                    self.arena.view_mut(Kind::Parameters, params_start + start, len),
                    self.arena.view(grads, grads_start + start, len),
                    self.arena.view_mut(Kind::Optimizer, state_start + start, len),
                    self.arena.view_mut(Kind::Optimizer, half + state_start + start, len),
                );
            }
        }
        if sharded {
            self.transport.publish(unit);
        }
    }
}
