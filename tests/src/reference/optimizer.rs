//! The reference's optimizer: AdamW, clipping by the global norm, and the learning rate over the steps.
//!
//! Follows PyTorch's documentation of `AdamW` and `clip_grad_norm_`. Never averages gradients.

use std::f64::consts::PI;

use super::Tensor;

/// AdamW (Loshchilov and Hutter, arXiv:1711.05101), decaying only tensors with two or more dims.
#[derive(Clone, Debug)]
pub struct AdamW {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment, after its bias is corrected.
    pub eps: f64,
    /// Decay of the weights per step and unit of learning rate.
    pub weight_decay: f64,
    first: Vec<Vec<f64>>,
    second: Vec<Vec<f64>>,
    steps_done: i32,
}

impl AdamW {
    /// An optimizer that has not made a step; its moments are zero.
    pub fn new(beta1: f64, beta2: f64, eps: f64, weight_decay: f64, tensors: &[Tensor]) -> Self {
        let zeros: Vec<Vec<f64>> = tensors.iter().map(|tensor| vec![0.0; tensor.data.len()]).collect();
        Self { beta1, beta2, eps, weight_decay, first: zeros.clone(), second: zeros, steps_done: 0 }
    }

    /// Updates every tensor by its gradient.
    pub fn step(&mut self, tensors: &mut [Tensor], gradients: &[Vec<f64>], learning_rate: f64) {
        self.steps_done += 1;
        let correction1 = 1.0 - self.beta1.powi(self.steps_done);
        let correction2 = 1.0 - self.beta2.powi(self.steps_done);
        for (index, tensor) in tensors.iter_mut().enumerate() {
            let decay = if tensor.shape.len() >= 2 { self.weight_decay } else { 0.0 };
            for (element, weight) in tensor.data.iter_mut().enumerate() {
                let gradient = gradients[index][element];
                let first = &mut self.first[index][element];
                let second = &mut self.second[index][element];
                *first = self.beta1 * *first + (1.0 - self.beta1) * gradient;
                *second = self.beta2 * *second + (1.0 - self.beta2) * gradient * gradient;
                *weight -= learning_rate * decay * *weight;
                *weight -= learning_rate * (*first / correction1) / ((*second / correction2).sqrt() + self.eps);
            }
        }
    }
}

/// Scales the gradients by `min(1, norm_max / (norm + 1e-6))`, and returns their global norm from before.
pub fn clip(gradients: &mut [Vec<f64>], norm_max: f64) -> f64 {
    let norm = gradients.iter().flatten().map(|g| g * g).sum::<f64>().sqrt();
    let factor = (norm_max / (norm + 1e-6)).min(1.0);
    for gradient in gradients.iter_mut().flatten() {
        *gradient *= factor;
    }
    norm
}

/// Learning rate of `step` (from 0) of `steps`.
///
/// Rises in equal parts over the first `warmup` steps, to `lr` at the last of them; then follows half a cosine from `lr` at step
/// `warmup` to `lr_min_ratio * lr` at step `steps - 1`.
pub fn learning_rate(step: usize, steps: usize, warmup: usize, lr: f64, lr_min_ratio: f64) -> f64 {
    if step < warmup {
        return lr * (step + 1) as f64 / warmup as f64;
    }
    let last = steps - 1;
    // Without this, the only step after the warm-up would divide zero by zero.
    let progress = if step >= last { 1.0 } else { (step - warmup) as f64 / (last - warmup) as f64 };
    let lr_min = lr_min_ratio * lr;
    lr_min + (lr - lr_min) * 0.5 * (1.0 + (PI * progress).cos())
}
