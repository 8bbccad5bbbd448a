//! Checks of the reference itself: against finite differences, values worked out by hand, and PyTorch.

use super::golden::Golden;
use super::optimizer::{AdamW, clip, learning_rate};
use super::{Config, Gpt, Tensor};

const ODD: Config = Config { vocab: 7, context: 6, dim: 6, heads: 2, layers: 2, tied: false };
const SEQUENCES: usize = 2;
const LENGTH: usize = 5;

/// Numbers spread evenly over -1 to 1 (splitmix64).
fn noise(mut state: u64) -> impl FnMut() -> f64 {
    move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (bits ^ (bits >> 31)) as f64 / (u64::MAX as f64) * 2.0 - 1.0
    }
}

fn noisy(config: Config) -> Gpt {
    let mut next = noise(1);
    Gpt::new(config, |name, shape| {
        let mean = if name.ends_with("weight") && shape.len() == 1 { 1.0 } else { 0.0 };
        (0..shape.iter().product()).map(|_| mean + 0.5 * next()).collect()
    })
}

fn odd_tokens(seed: u64) -> Vec<u32> {
    let mut next = noise(seed);
    (0..SEQUENCES * LENGTH).map(|_| ((next() + 1.0) / 2.0 * ODD.vocab as f64) as u32).collect()
}

/// Central differences with a step of 1e-4 are off by about 1e-8 times the third derivative.
fn check_gradients(config: Config) {
    let mut model = noisy(config);
    let (ids, targets) = (odd_tokens(2), odd_tokens(3));
    let (_, gradients) = model.loss_and_gradients(&ids, &targets, SEQUENCES, LENGTH);
    let nudge = 1e-4;
    for (index, gradient) in gradients.iter().enumerate() {
        for (element, &computed) in gradient.iter().enumerate() {
            let weight = model.tensors[index].data[element];
            let mut loss_at = |value: f64| {
                model.tensors[index].data[element] = value;
                model.loss_and_gradients(&ids, &targets, SEQUENCES, LENGTH).0
            };
            let measured = (loss_at(weight + nudge) - loss_at(weight - nudge)) / (2.0 * nudge);
            model.tensors[index].data[element] = weight;
            let name = &model.tensors[index].name;
            assert!((computed - measured).abs() < 1e-7, "{name}[{element}]: {computed}, not {measured}");
        }
    }
}

#[test]
fn gradients_equal_finite_differences() {
    check_gradients(ODD);
}

#[test]
fn tied_gradients_equal_finite_differences() {
    check_gradients(Config { tied: true, ..ODD });
}

#[test]
fn every_unit_has_a_gradient() {
    let model = noisy(ODD);
    let (_, gradients) = model.loss_and_gradients(&odd_tokens(2), &odd_tokens(3), SEQUENCES, LENGTH);
    for (tensor, gradient) in model.tensors.iter().zip(gradients) {
        assert!(gradient.iter().any(|g| g.abs() > 1e-4), "{}", tensor.name);
    }
}

#[test]
fn a_model_of_zeros_guesses_evenly() {
    let model = Gpt::new(ODD, |_, shape| vec![0.0; shape.iter().product()]);
    let (loss, _) = model.loss_and_gradients(&odd_tokens(2), &odd_tokens(3), SEQUENCES, LENGTH);
    assert!((loss - 7.0_f64.ln()).abs() < 1e-12);
}

#[test]
fn adamw_decays_matrices_only() {
    let tensor = |shape: &[usize]| Tensor { name: String::new(), shape: shape.to_vec(), data: vec![2.0] };
    let mut tensors = [tensor(&[1, 1]), tensor(&[1])];
    let mut optimizer = AdamW::new(0.9, 0.95, 0.0, 0.1, &tensors);
    let gradients = [vec![3.0], vec![-3.0]];
    optimizer.step(&mut tensors, &gradients, 0.5);
    // The first step moves by the learning rate against the gradient's sign; decay takes 0.5 * 0.1 * 2 off the matrix.
    assert!((tensors[0].data[0] - (2.0 - 0.1 - 0.5)).abs() < 1e-12);
    assert!((tensors[1].data[0] - (2.0 + 0.5)).abs() < 1e-12);
}

#[test]
fn clipping_scales_only_what_is_too_long() {
    let mut gradients = [vec![3.0], vec![0.0, 4.0]];
    assert!((clip(&mut gradients, 6.0) - 5.0).abs() < 1e-12);
    assert_eq!(gradients, [vec![3.0], vec![0.0, 4.0]]);
    assert!((clip(&mut gradients, 1.0) - 5.0).abs() < 1e-12);
    assert!((gradients[0][0] - 3.0 / 5.000_001).abs() < 1e-12);
    assert!((gradients[1][1] - 4.0 / 5.000_001).abs() < 1e-12);
}

#[test]
fn learning_rate_rises_then_falls() {
    let rates: Vec<f64> = (0..9).map(|step| learning_rate(step, 9, 4, 2.0, 0.1)).collect();
    // Cosine from 2.0 to 0.2 in quarters: 1.1 + 0.9 cos(0), cos(pi/4), 0, -cos(pi/4), -1.
    let quarter = 0.9 * std::f64::consts::FRAC_1_SQRT_2;
    let expected = [0.5, 1.0, 1.5, 2.0, 2.0, 1.1 + quarter, 1.1, 1.1 - quarter, 0.2];
    for (step, (rate, expected)) in rates.iter().zip(expected).enumerate() {
        assert!((rate - expected).abs() < 1e-12, "step {step}: {rate}, not {expected}");
    }
    assert!((learning_rate(4, 5, 4, 2.0, 0.1) - 0.2).abs() < 1e-12, "one step after the warm-up is the last");
    assert!((learning_rate(0, 5, 0, 2.0, 0.1) - 2.0).abs() < 1e-12, "without warm-up the first step has it in full");
}

/// Loss and gradients of a step, averaged over ranks and micro-batches.
fn mean_over_micro_batches(golden: &Golden, model: &Gpt, step: usize) -> (f64, Vec<Vec<f64>>) {
    let mut total_loss = 0.0;
    let mut totals: Vec<Vec<f64>> = model.tensors.iter().map(|tensor| vec![0.0; tensor.data.len()]).collect();
    for rank in 0..golden.ranks {
        for micro_batch in 0..golden.micro_batches {
            let (ids, targets) = golden.micro_batch(step, rank, micro_batch);
            let (loss, gradients) = model.loss_and_gradients(ids, targets, golden.sequences, golden.length);
            total_loss += loss;
            for (total, gradient) in totals.iter_mut().flatten().zip(gradients.iter().flatten()) {
                *total += gradient;
            }
        }
    }
    let count = (golden.ranks * golden.micro_batches) as f64;
    totals.iter_mut().flatten().for_each(|total| *total /= count);
    (total_loss / count, totals)
}

/// Rounding to `f32` moves a number by up to 2^-24 of it; the floor is for gradients that are zero except for rounding.
fn assert_stored_equal(name: &str, computed: &[f64], stored: &[f64]) {
    assert_eq!(computed.len(), stored.len(), "{name}");
    for (element, (computed, stored)) in computed.iter().zip(stored).enumerate() {
        let tolerance = 6.0e-8 * stored.abs() + 1e-12;
        assert!((computed - stored).abs() <= tolerance, "{name}[{element}]: {computed}, not {stored}");
    }
}

fn check_golden(variant: &str) {
    let golden = Golden::read(variant);
    let mut model = golden.initial.clone();
    let mut optimizer = AdamW::new(golden.beta1, golden.beta2, golden.eps, golden.weight_decay, &model.tensors);
    for step in 0..golden.steps {
        let (loss, mut gradients) = mean_over_micro_batches(&golden, &model, step);
        if step == 0 {
            for (tensor, (computed, stored)) in model.tensors.iter().zip(gradients.iter().zip(&golden.gradients)) {
                assert_stored_equal(&tensor.name, computed, stored);
            }
        }
        let norm = clip(&mut gradients, golden.clip);
        assert!((loss - golden.losses[step]).abs() < 1e-12, "loss of step {step}: {loss}");
        assert!((norm - golden.norms[step]).abs() < 1e-12, "norm of step {step}: {norm}");
        assert!(norm > golden.clip, "step {step} does not clip, so it would not show a wrong factor");
        optimizer.step(&mut model.tensors, &gradients, golden.lr);
    }
    for (computed, stored) in model.tensors.iter().zip(&golden.last.tensors) {
        assert_stored_equal(&computed.name, &computed.data, &stored.data);
    }
}

#[test]
fn pytorch_agrees() {
    check_golden("untied");
}

#[test]
fn pytorch_agrees_when_tied() {
    check_golden("tied");
}
