//! The optimizer step, and the checks of a gradient before it. Elementwise functions never depend on how a flat range
//! is cut into calls.

use super::Cpu;
use super::simd::{LANES, check_len, fold, vectorised};
use zero_core::device::{AdamW, Element, MEAN_LANES};

/// Updates `params` and the moments `m` and `v` by `grads`, all (n), as `torch.optim.AdamW` does: decoupled decay
/// first (Loshchilov and Hutter, 2019).
///
/// Elementwise: one call for n elements and several calls give the same bits.
pub fn adamw(step: &AdamW, params: &mut [f32], grads: &[f32], m: &mut [f32], v: &mut [f32]) {
    check_len("grads", grads.len(), params.len());
    check_len("m", m.len(), params.len());
    check_len("v", v.len(), params.len());
    let keep = (1.0 - step.lr * step.weight_decay) as f32;
    let (beta2, eps, grad_scale) = (step.beta2 as f32, step.eps as f32, step.grad_scale as f32);
    let (fresh1, fresh2) = ((1.0 - step.beta1) as f32, (1.0 - step.beta2) as f32);
    let step_size = (step.lr / step.correction1) as f32;
    let root_correction = (1.0 / step.correction2.sqrt()) as f32;
    vectorised(
        #[inline(always)]
        || {
            for (((param, &grad), m), v) in params.iter_mut().zip(grads).zip(m).zip(v) {
                let grad = grad * grad_scale;
                *m = (grad - *m).mul_add(fresh1, *m);
                *v = (fresh2 * grad).mul_add(grad, beta2 * *v);
                let denominator = v.sqrt().mul_add(root_correction, eps);
                *param = (-step_size).mul_add(*m / denominator, *param * keep);
            }
        },
    );
}

/// Squares are summed in blocks of this many elements, and blocks along a tree: the order depends on the length alone.
const BLOCK: usize = 4096;

/// The sum of squares, in f64 and in a fixed order.
pub fn sum_squares<E: Element>(cpu: Cpu, x: &[E]) -> f64 {
    cpu.sum_by_blocks(x, BLOCK, &sum_block)
}

fn sum_block<E: Element>(x: &[E]) -> f64 {
    sum_lanes::<_, LANES>(x, square_onto)
}

/// The sum, in f64 and in a fixed order: over as many partial sums as a GPU's block has threads.
pub fn sum(x: &[f32]) -> f64 {
    sum_lanes::<_, { MEAN_LANES }>(x, |total, x| total + f64::from(x))
}

/// Adds every `N`th element to one of `N` sums, and then adds up the sums pairwise.
fn sum_lanes<E: Element, const N: usize>(x: &[E], onto: impl Fn(f64, E) -> f64) -> f64 {
    vectorised(
        #[inline(always)]
        || {
            let mut lanes = [0.0f64; N];
            let (blocks, tail) = x.as_chunks::<N>();
            for block in blocks {
                for (total, &x) in lanes.iter_mut().zip(block) {
                    *total = onto(*total, x);
                }
            }
            for (total, &x) in lanes.iter_mut().zip(tail) {
                *total = onto(*total, x);
            }
            fold(lanes, |a, b| a + b)
        },
    )
}

/// `total` plus the square of `x`.
#[inline(always)]
fn square_onto(total: f64, x: impl Element) -> f64 {
    let x = f64::from(x.widen());
    x.mul_add(x, total)
}

/// Whether all elements are finite.
pub fn all_finite<E: Element>(x: &[E]) -> bool {
    vectorised(
        #[inline(always)]
        || x.chunks(1024).all(|block| block.iter().fold(true, |finite, x| finite & x.widen().is_finite())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LENGTHS, assert_close, noise, to_f64};
    use zero_core::device::bf16;

    fn step(t: i32) -> AdamW {
        let (beta1, beta2) = (0.9, 0.999);
        AdamW {
            lr: 1e-2,
            beta1,
            beta2,
            eps: 1e-8,
            weight_decay: 0.1,
            grad_scale: 0.5,
            correction1: 1.0 - f64::powi(beta1, t),
            correction2: 1.0 - f64::powi(beta2, t),
        }
    }

    #[test]
    fn adamw_matches_f64_over_steps() {
        let len = 130;
        let mut params = noise(len, 1);
        let (mut m, mut v) = (vec![0.0; len], vec![0.0; len]);
        let (mut p64, mut m64, mut v64) = (to_f64(&params), vec![0.0; len], vec![0.0; len]);
        for t in 1..=5 {
            let grads = noise(len, 10 + t as u64);
            let step = step(t);
            adamw(&step, &mut params, &grads, &mut m, &mut v);
            for i in 0..len {
                let g = 0.5 * f64::from(grads[i]);
                p64[i] *= 1.0 - step.lr * step.weight_decay;
                m64[i] = step.beta1 * m64[i] + (1.0 - step.beta1) * g;
                v64[i] = step.beta2 * v64[i] + (1.0 - step.beta2) * g * g;
                let m_hat = m64[i] / step.correction1;
                let v_hat = v64[i] / step.correction2;
                p64[i] -= step.lr * m_hat / (v_hat.sqrt() + step.eps);
            }
            assert_close("params", &params, &p64, 1e-6);
        }
        assert_close("m", &m, &m64, 1e-6);
        assert_close("v", &v, &v64, 1e-7);
    }

    #[test]
    fn the_first_step_moves_by_the_learning_rate() {
        let step = AdamW { weight_decay: 0.0, ..step(1) };
        let (mut params, mut m, mut v) = ([1.0, 1.0], [0.0; 2], [0.0; 2]);
        adamw(&step, &mut params, &[3.0, -0.01], &mut m, &mut v);
        assert!((params[0] - 0.99).abs() < 1e-6 && (params[1] - 1.01).abs() < 1e-6, "{params:?}");
    }

    #[test]
    fn adamw_gives_the_same_bits_however_the_range_is_cut() {
        let len = 257;
        let grads = noise(len, 2);
        let run = |cut: usize| {
            let (mut params, mut m, mut v) = (noise(len, 1), noise(len, 3), noise(len, 4));
            v.iter_mut().for_each(|v| *v = v.abs());
            for start in (0..len).step_by(cut) {
                let range = start..len.min(start + cut);
                adamw(
                    &step(3),
                    &mut params[range.clone()],
                    &grads[range.clone()],
                    &mut m[range.clone()],
                    &mut v[range],
                );
            }
            [params, m, v].concat().iter().map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        let whole = run(len);
        for cut in [1, 3, 7, 16, 17, 65, 128] {
            assert_eq!(run(cut), whole, "cut into {cut}");
        }
    }

    #[test]
    fn sum_squares_matches_f64() {
        for len in LENGTHS.into_iter().chain([BLOCK, BLOCK + 1, 5 * BLOCK - 7]) {
            let x = noise(len, 1);
            let naive: f64 = to_f64(&x).iter().map(|x| x * x).sum();
            assert!((sum_squares(Cpu::ONE_THREAD, &x) - naive).abs() <= 1e-13 * naive, "length {len}");
        }
        assert_eq!(sum_squares::<f32>(Cpu::ONE_THREAD, &[]), 0.0);
    }

    #[test]
    fn sum_adds_lanes_and_then_halves() {
        // A one that is added to the large number is lost; two of them are not.
        let (large, mut x) = (2f64.powi(53), vec![0.0f32; 2 * MEAN_LANES + 1]);
        [x[0], x[MEAN_LANES], x[MEAN_LANES / 2]] = [1.0, 1.0, large as f32];
        assert_eq!(sum(&x), large + 2.0);
        x[MEAN_LANES] = 0.0;
        assert_eq!(sum(&x), large);
        assert_eq!([sum(&[]), sum(&[1.0; 1000])], [0.0, 1000.0]);
    }

    #[test]
    fn bf16_sums_as_its_f32_copy_does() {
        for len in LENGTHS {
            let stored: Vec<_> = noise(len, 1).iter().map(|&x| bf16::from_f32(x)).collect();
            let wide: Vec<_> = stored.iter().map(|x| x.to_f32()).collect();
            let [narrow, wide] = [sum_squares(Cpu::ONE_THREAD, &stored), sum_squares(Cpu::ONE_THREAD, &wide)];
            assert_eq!(narrow.to_bits(), wide.to_bits(), "length {len}");
        }
    }

    fn finds_the_one_that_is_not<E: Element>(largest: E) {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for position in [0, 15, 16, 1023, 1024, 2999] {
                let mut x = vec![largest; 3000];
                assert!(all_finite(&x));
                x[position] = E::narrow(bad);
                assert!(!all_finite(&x), "{bad} at {position}");
            }
        }
        assert!(all_finite::<E>(&[]));
    }

    #[test]
    fn all_finite_finds_the_one_that_is_not() {
        finds_the_one_that_is_not(f32::MAX);
        finds_the_one_that_is_not(bf16::MAX);
    }
}
