//! Softmax cross-entropy over the vocabulary, and its gradient in place of the logits. Never averages: the caller
//! weights each row.

use super::elementwise::each;
use super::math::exp;
use super::simd::{check_len, divided, max, sum, vectorised};
use zero_core::device::Element;

/// `loss` (rows) := ln sum e^logit - the target's logit.
///
/// `logits`: (rows, vocab); `targets`: (rows), each below vocab.
pub fn cross_entropy<E: Element>(logits: &[E], targets: &[u32], loss: &mut [f32]) {
    let vocab = check_shapes(logits.len(), targets, loss);
    vectorised(
        #[inline(always)]
        || {
            for (row, logits) in logits.chunks_exact(vocab).enumerate() {
                loss[row] = log_sum_exp(logits) - logits[targets[row] as usize].widen();
            }
        },
    );
}

/// `logits` (rows, vocab) := their gradient, (softmax - 1 at the target) times the gradient of the loss, which is in
/// `loss` (rows); and `loss` := the loss.
pub fn cross_entropy_backward<E: Element>(logits: &mut [E], targets: &[u32], loss: &mut [f32]) {
    let vocab = check_shapes(logits.len(), targets, loss);
    vectorised(
        #[inline(always)]
        || {
            for (row, logits) in logits.chunks_exact_mut(vocab).enumerate() {
                let (target, lse, dloss) = (targets[row] as usize, log_sum_exp(logits), loss[row]);
                let logit = logits[target].widen();
                loss[row] = lse - logit;
                // Computed separately, because it must be rounded only after the subtraction.
                let at_target = exp(logit - lse) * dloss - dloss;
                each(logits, [], |x, []| exp(x - lse) * dloss);
                logits[target] = E::narrow(at_target);
            }
        },
    );
}

/// ln sum e^logit.
#[inline(always)]
fn log_sum_exp<E: Element>(logits: &[E]) -> f32 {
    let largest = max(logits);
    largest + sum([logits], |[x]| exp(x - largest)).ln()
}

/// The vocabulary's size, from the number of `logits`; panics unless all shapes agree and every target lies in the vocabulary.
#[track_caller]
fn check_shapes(logits: usize, targets: &[u32], loss: &[f32]) -> usize {
    check_len("loss", loss.len(), targets.len());
    let vocab = divided("logits", logits, targets.len());
    if let Some(target) = targets.iter().find(|&&target| target as usize >= vocab) {
        panic!("target {target} is not in the vocabulary, expected an id below {vocab}");
    }
    vocab
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LENGTHS, assert_close, noise, to_f64};
    use zero_core::device::bf16;

    fn match_f64<E: Element>(rows: usize, vocab: usize) {
        let mut logits: Vec<E> = noise(rows * vocab, 1).iter().map(|x| E::narrow(10.0 * x)).collect();
        let targets: Vec<u32> = (0..rows).map(|row| (row * 7 % vocab) as u32).collect();
        let dloss = noise(rows, 2);
        let (mut losses, mut gradients) = (vec![], vec![]);
        for (row, logits) in to_f64(&logits).chunks(vocab).enumerate() {
            let total: f64 = logits.iter().map(|x| x.exp()).sum();
            let target = targets[row] as usize;
            losses.push(total.ln() - logits[target]);
            let slope = |(i, x): (usize, &f64)| x.exp() / total - f64::from(u8::from(i == target));
            gradients.extend(logits.iter().enumerate().map(|logit| slope(logit) * f64::from(dloss[row])));
        }
        let (mut loss, mut again) = (vec![0.0; rows], dloss);
        cross_entropy(&logits, &targets, &mut loss);
        assert_close("loss", &loss, &losses, 2e-6);
        cross_entropy_backward(&mut logits, &targets, &mut again);
        assert_eq!(again, loss);
        assert_close("dlogits", &logits, &gradients, 4e-6);
    }

    #[test]
    fn matches_f64_forward_and_backward() {
        for vocab in LENGTHS {
            for rows in [1, 5] {
                match_f64::<f32>(rows, vocab);
                match_f64::<bf16>(rows, vocab);
            }
        }
    }

    fn show_what_is_not_finite<E: Element>() {
        for bad in [f32::NAN, f32::INFINITY] {
            let mut logits = [0.0, bad, 0.0, 0.0].map(E::narrow);
            let (mut loss, mut again) = ([0.0; 2], [1.0; 2]);
            cross_entropy(&logits, &[0, 0], &mut loss);
            assert!(loss[0].is_nan() && loss[1] == 2f32.ln(), "{loss:?}");
            cross_entropy_backward(&mut logits, &[0, 0], &mut again);
            assert!(again[0].is_nan() && again[1] == 2f32.ln(), "{again:?}");
            let gradients = logits.map(E::widen);
            assert!(gradients[..2].iter().all(|x| x.is_nan()) && gradients[3] == 0.5, "{gradients:?}");
        }
    }

    #[test]
    fn what_is_not_finite_shows() {
        show_what_is_not_finite::<f32>();
        show_what_is_not_finite::<bf16>();
    }

    #[test]
    fn uniform_logits_cost_ln_vocab_however_large() {
        for logit in [-1e30, 0.0, 1e4] {
            let mut loss = [0.0];
            cross_entropy(&[logit; 8], &[3], &mut loss);
            let expected = if logit.abs() > 1e5 { 0.0 } else { 8f32.ln() };
            assert!((loss[0] - expected).abs() < 1e-3, "logit {logit}: loss {}", loss[0]);
        }
    }

    #[test]
    #[should_panic(expected = "target 8 is not in the vocabulary, expected an id below 8")]
    fn a_target_beyond_the_vocabulary_is_refused() {
        cross_entropy(&[0.0; 8], &[8], &mut [0.0]);
    }
}
