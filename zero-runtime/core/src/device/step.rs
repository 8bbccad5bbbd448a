//! Step: the numbers that decide one step of the optimizer, as blocks of words that ops on a device read and write. Never
//! updates a parameter.

use bytemuck::{Pod, Zeroable};

use super::stored::{Stored, StoredMut, Weights};

/// One step's scalars. They are f64, as in PyTorch: 1 - 0.999 in f32 is off by 1e-5.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Learning rate of this step.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Parameters shrink by `lr * weight_decay`, whatever their gradient.
    pub weight_decay: f64,
    /// A factor that gradients are multiplied by first: clipping, loss scale, averaging.
    pub grad_scale: f64,
    /// 1 - beta1^t at step t, from 1.
    pub correction1: f64,
    /// 1 - beta2^t.
    pub correction2: f64,
}

impl AdamW {
    /// The numbers of a step's blocks, for parameters that are subject to weight decay or for those that are not.
    pub fn of(hyper: &HyperBlock, report: &ReportBlock, decays: bool) -> Self {
        Self {
            lr: hyper.lr,
            beta1: hyper.beta1,
            beta2: hyper.beta2,
            eps: hyper.epsilon,
            weight_decay: if decays { hyper.weight_decay } else { 0.0 },
            grad_scale: report.grad_scale,
            correction1: hyper.correction1,
            correction2: hyper.correction2,
        }
    }
}

/// Consecutive elements of a flat buffer that are either all subject to weight decay, or all not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecayRun {
    /// Number of elements.
    pub len: usize,
    /// Whether weight decay applies to them.
    pub decays: bool,
}

impl DecayRun {
    /// The most runs of one [`Kernels::update`](super::Kernels::update).
    pub const MOST: usize = 64;

    /// Calls `step` with the elements of each run, in order.
    ///
    /// # Panics
    /// If the length of a tensor differs from the length of all runs together.
    pub fn each<D>(
        runs: &[Self],
        weights: Weights<D>,
        grads: Stored<D>,
        m: StoredMut<D>,
        v: StoredMut<D>,
        mut step: impl FnMut(bool, Weights<D>, Stored<D>, StoredMut<D>, StoredMut<D>),
    ) {
        let mut rest = (weights, grads, m, v);
        for &Self { len, decays } in runs {
            let (weights, grads, m, v) = rest;
            let ((weights, more_weights), (grads, more_grads)) = (weights.split_at(len), grads.split_at(len));
            let ((m, more_m), (v, more_v)) = (m.split_at(len), v.split_at(len));
            step(decays, weights, grads, m, v);
            rest = (more_weights, more_grads, more_m, more_v);
        }
        let left = [rest.0.params.len(), rest.1.len(), rest.2.len(), rest.3.len()];
        assert_eq!(left, [0; 4], "elements after the last run");
    }
}

/// The host's numbers for a step, written before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct HyperBlock {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Decay of Muon's momentum.
    pub momentum: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay, for parameters that are subject to it.
    pub weight_decay: f64,
    /// The norm to which longer gradients are scaled down; infinite if none are.
    pub clip: f64,
    /// 1 - beta1^t at step t, from 1.
    pub correction1: f64,
    /// 1 - beta2^t.
    pub correction2: f64,
}

/// The outcome of a step, the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct ReportBlock {
    /// Mean loss over all data of the step.
    pub loss: f64,
    /// Norm of the mean gradient, before clipping.
    pub gradient_norm: f64,
    /// A factor for the summed gradients: the reciprocal of their number, and less where they are clipped.
    pub grad_scale: f64,
    /// 1 where loss and norm are finite; otherwise 0, and nothing is updated.
    pub is_finite: f64,
}

impl ReportBlock {
    /// Whether loss and norm are finite, so that parameters are updated.
    pub fn is_finite(&self) -> bool {
        self.is_finite == 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_subject_to_it_decays() {
        let hyper = HyperBlock {
            lr: 0.1,
            beta1: 0.9,
            beta2: 0.5,
            momentum: 0.95,
            epsilon: 1e-8,
            weight_decay: 0.2,
            clip: 1.0,
            correction1: 0.271,
            correction2: 0.875,
        };
        let report = ReportBlock { loss: 1.0, gradient_norm: 2.0, grad_scale: 0.125, is_finite: 1.0 };
        let expected = AdamW {
            lr: 0.1,
            beta1: 0.9,
            beta2: 0.5,
            eps: 1e-8,
            weight_decay: 0.2,
            grad_scale: 0.125,
            correction1: 0.271,
            correction2: 0.875,
        };
        assert_eq!(AdamW::of(&hyper, &report, true), expected);
        assert_eq!(AdamW::of(&hyper, &report, false), AdamW { weight_decay: 0.0, ..expected });
    }
}
