//! Update: the end of a step: agreement on loss and norm, clipping, AdamW on what this rank keeps the state of. The order
//! of every sum follows the layout, never the stage.
#![allow(unsafe_code)]

use std::ops::Range;

use zero_plan::Kind;

use super::turn::Turn;
use super::{Engine, StepReport};
use crate::arena::Arena;
use crate::device::{AdamW, Device, Weights};
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

/// What a rank updates of each unit: all of it, or its shard, without the padding.
pub(super) fn segments<M: Model>(arena: &Arena) -> Vec<Vec<Segment>> {
    let plan = arena.plan();
    let segments_of = |unit: usize| {
        let (start, len) = owned(arena, unit);
        let mut tensors = Tensors::default();
        if plan.units[unit].params > 0 && plan.placements[unit].stage == arena.coordinates().pipeline {
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

/// The stretch of a unit's flat buffer whose optimizer state a rank keeps.
fn owned(arena: &Arena, unit: usize) -> (usize, usize) {
    let (config, placement) = (&arena.plan().config, &arena.plan().placements[unit]);
    if config.shards_optimizer() {
        let len = placement.shard(config);
        (arena.coordinates().zero * len, len)
    } else {
        (0, placement.padded)
    }
}

/// Sums numbers along the tree that gradients are summed along.
fn tree_sum(number: &impl Fn(usize) -> f64, span: Range<usize>) -> f64 {
    if span.len() == 1 {
        return number(span.start);
    }
    let middle = span.start + span.len().next_power_of_two() / 2;
    tree_sum(number, span.start..middle) + tree_sum(number, middle..span.end)
}

impl<'p, M: Model, T: Transport<'p>> Engine<'p, M, T> {
    /// Number of gradients in a sum: one for each rank with data of its own, and each micro-batch.
    pub(super) fn gradients_summed(&self) -> usize {
        self.plan.config.mesh.data_ranks() * self.plan.config.micro_batches
    }

    /// Sum over all data of the losses that ranks have exchanged as the first of `values` numbers each: along the tree
    /// over replicas of trees over the ranks of each.
    pub(super) fn summed_loss(&self, values: usize) -> f64 {
        let zero = self.plan.config.mesh.zero;
        let of_replica = |replica: usize| {
            let loss = |data: usize| self.exchanged[self.ranks_by_data[data] * values];
            tree_sum(&loss, replica * zero..(replica + 1) * zero)
        };
        tree_sum(&of_replica, 0..self.plan.config.mesh.replica)
    }

    /// Mean loss of the step and norm of its mean gradient, over all ranks. Squares are summed unit by unit, and within
    /// each along the tree over its parts, whoever has them: so the norm depends on no layout.
    pub(super) fn agree(&mut self, loss: f64) -> Result<StepReport, Lost> {
        let plan = self.plan;
        let at = self.arena.coordinates();
        self.mine.fill(0.0);
        self.mine[0] = loss;
        for unit in 0..plan.units.len() {
            if plan.units[unit].params > 0 && plan.placements[unit].stage == at.pipeline {
                let (kind, start, _) = self.arena.reduced(unit, at.zero);
                let (part, len) = self.arena.part(unit, at.replica);
                // SAFETY: every bucket is summed: nobody writes this rank's parts before the next step.
                self.mine[1 + unit] = self.device.sum_squares(unsafe { self.arena.stored(kind, start + part, len) });
            }
        }
        let mine = std::mem::take(&mut self.mine);
        let done = self.exchange(Turn::Agree, &mine);
        self.mine = mine;
        done?;
        let values = plan.agreed_values();
        let squares_of = |unit: usize| {
            let ranks = &self.ranks_by_part[plan.placements[unit].stage];
            tree_sum(&|part| self.exchanged[ranks[part] * values + 1 + unit], 0..ranks.len())
        };
        let squares: f64 = (0..plan.units.len()).map(squares_of).sum();
        let summed = self.gradients_summed() as f64;
        Ok(StepReport { loss: self.summed_loss(values) / summed, gradient_norm: squares.sqrt() / summed })
    }

    /// Updates what this rank keeps the optimizer state of, and publishes it where peers need it.
    pub(super) fn update(&mut self, unit: usize, adamw: &AdamW) {
        let plan = self.plan;
        let (placement, precision) = (&plan.placements[unit], &plan.config.precision);
        let sharded = plan.config.shards_optimizer();
        let zero = self.arena.coordinates().zero;
        let ((params_start, _), (grads, grads_start), state_start) = if sharded {
            let (kind, start, _) = self.arena.reduced(unit, zero);
            (self.arena.shard(unit, zero), (kind, start), placement.start / plan.config.mesh.zero)
        } else {
            (self.arena.flat(unit), (Kind::Gradients, self.arena.local_gradients(unit).0), placement.start)
        };
        let half = self.arena.memory().region(Kind::Optimizer).elements / 2;
        for &Segment { start, len, decays } in &self.segments[unit] {
            let step = AdamW { weight_decay: if decays { adamw.weight_decay } else { 0.0 }, ..*adamw };
            // SAFETY: stretches of different regions, and of the two halves of the optimizer state. All ranks have agreed,
            // which they do after their last use of the parameters, so nobody reads what is written here.
            unsafe {
                let state = |kind, at| self.arena.stored_mut(kind, at + start, len);
                let weights = Weights {
                    params: state(Kind::Parameters, params_start),
                    master: precision.has_master_copy().then(|| state(Kind::Master, state_start)),
                };
                let gradients = self.arena.stored(grads, grads_start + start, len);
                let (m, v) = (state(Kind::Optimizer, state_start), state(Kind::Optimizer, half + state_start));
                self.device.adamw(&step, weights, gradients, m, v);
            }
        }
        if sharded {
            // SAFETY: what has been written of it is whole, and all ranks have agreed.
            unsafe { self.transport.publish(unit) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At the third step, of sums of four gradients: by the formulas of the paper.
    #[test]
    fn clipping_shortens_and_never_lengthens_and_moments_are_corrected() {
        let hyper = Hyper { lr: 0.1, beta1: 0.9, beta2: 0.5, epsilon: 1e-8, weight_decay: 0.2, clip: Some(1.0) };
        let scale = |hyper: &Hyper, norm| 4.0 * hyper.adamw(2, norm, 4).grad_scale;
        assert!((scale(&hyper, 2.0) - 0.5).abs() < 1e-6);
        assert_eq!(scale(&hyper, 0.5), 1.0);
        assert_eq!(scale(&Hyper { clip: None, ..hyper }, 2.0), 1.0);
        let step = hyper.adamw(2, 2.0, 4);
        assert!((step.correction1 - 0.271).abs() < 1e-12 && (step.correction2 - 0.875).abs() < 1e-12);
        assert_eq!((step.lr, step.weight_decay), (0.1, 0.2));
    }
}
