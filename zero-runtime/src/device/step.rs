//! Step: the numbers that decide one step of the optimizer, as blocks of words that ops on a device read and write. Never
//! updates a parameter.

use bytemuck::{Pod, Zeroable};

/// One step's scalars. In f64, as PyTorch has them: 1 - 0.999 in f32 is off by 1e-5.
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
    /// What gradients are multiplied by first: clipping, loss scale, averaging.
    pub grad_scale: f64,
    /// 1 - beta1^t at step t, from 1.
    pub correction1: f64,
    /// 1 - beta2^t.
    pub correction2: f64,
}

impl AdamW {
    /// What the blocks of a step say for parameters that are subject to weight decay, or not.
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

/// What the host says about a step before it begins.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct HyperBlock {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Decay of the momentum of what Muon updates.
    pub momentum: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay, of what is subject to it.
    pub weight_decay: f64,
    /// The norm to which longer gradients are scaled down; infinite where none are.
    pub clip: f64,
    /// 1 - beta1^t at step t, from 1.
    pub correction1: f64,
    /// 1 - beta2^t.
    pub correction2: f64,
}

/// What a step came to, the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct ReportBlock {
    /// Mean loss over all data of the step.
    pub loss: f64,
    /// Norm of the mean gradient, before clipping.
    pub gradient_norm: f64,
    /// What the summed gradients are multiplied by: their number's reciprocal, and less where they are clipped.
    pub grad_scale: f64,
    /// 1 where loss and norm are finite, else 0: then nothing is updated.
    pub is_finite: f64,
}

impl ReportBlock {
    /// Whether there is anything to update by.
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
