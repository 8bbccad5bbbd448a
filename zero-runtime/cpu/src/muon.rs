//! Muon: the elementwise parts of its step (Jordan et al., "Muon: an optimizer for hidden layers in neural networks",
//! 2024). Never multiplies matrices, and never depends on how a flat range is cut into calls.

use super::simd::{check_len, vectorised};
use zero_core::device::Element;

/// With g, `gradients` times `grad_scale`: `m` := m + (1 - `momentum`) (g - m), then `gradients` := g + `momentum` (m -
/// g). This is `torch.optim.Muon` with `nesterov`.
pub fn momentum(momentum: f64, grad_scale: f64, gradients: &mut [f32], m: &mut [f32]) {
    check_len("m", m.len(), gradients.len());
    let (fresh, momentum, grad_scale) = ((1.0 - momentum) as f32, momentum as f32, grad_scale as f32);
    vectorised(
        #[inline(always)]
        || {
            for (gradient, m) in gradients.iter_mut().zip(m) {
                let scaled = *gradient * grad_scale;
                *m = (scaled - *m).mul_add(fresh, *m);
                *gradient = (*m - scaled).mul_add(momentum, scaled);
            }
        },
    );
}

/// `to` := `from` times `factor`.
pub fn scaled<To: Element, From: Element>(to: &mut [To], from: &[From], factor: f32) {
    check_len("from", from.len(), to.len());
    vectorised(
        #[inline(always)]
        || {
            for (to, from) in to.iter_mut().zip(from) {
                *to = To::narrow(from.widen() * factor);
            }
        },
    );
}

/// `params` := `keep` `params` - `size` `direction`.
pub fn step_along<E: Element>(keep: f32, size: f32, params: &mut [f32], direction: &[E]) {
    check_len("direction", direction.len(), params.len());
    vectorised(
        #[inline(always)]
        || {
            for (param, direction) in params.iter_mut().zip(direction) {
                *param = (-size).mul_add(direction.widen(), *param * keep);
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LENGTHS, assert_close, bits, noise, stored, to_f64};
    use zero_core::device::bf16;

    /// Several steps, in the form of `torch.optim.Muon`: two linear interpolations.
    #[test]
    fn momentum_matches_f64_over_steps() {
        for len in LENGTHS {
            let (mut m, mut expected) = (noise(len, 1), to_f64(&noise(len, 1)));
            for step in 0..5 {
                let mut found = noise(len, 10 + step);
                let gradients: Vec<f64> = to_f64(&found).iter().map(|g| 0.5 * g).collect();
                momentum(0.95, 0.5, &mut found, &mut m);
                expected.iter_mut().zip(&gradients).for_each(|(m, g)| *m = 0.95 * *m + 0.05 * g);
                let directions: Vec<f64> = expected.iter().zip(&gradients).map(|(m, g)| 0.05 * g + 0.95 * m).collect();
                assert_close("direction", &found, &directions, 1e-6);
            }
            assert_close("m", &m, &expected, 1e-6);
        }
    }

    /// Worked out by hand.
    #[test]
    fn the_first_direction_is_mostly_the_gradient() {
        let (mut gradients, mut m) = ([4.0], [0.0]);
        momentum(0.75, 0.5, &mut gradients, &mut m);
        assert_eq!((gradients, m), ([0.875], [0.5]));
    }

    /// To the bit: one product, rounded once.
    fn scaled_matches_the_definition<To: Element, From: Element>() {
        for len in LENGTHS {
            let (from, mut to) = (stored::<From>(len, 1), vec![To::narrow(f32::NAN); len]);
            scaled(&mut to, &from, 0.3);
            let expected: Vec<To> = from.iter().map(|x| To::narrow(x.widen() * 0.3)).collect();
            assert_eq!(bits(&to), bits(&expected));
        }
    }

    #[test]
    fn every_mix_is_scaled() {
        scaled_matches_the_definition::<f32, f32>();
        scaled_matches_the_definition::<f32, bf16>();
        scaled_matches_the_definition::<bf16, f32>();
        scaled_matches_the_definition::<bf16, bf16>();
    }

    fn steps_match_f64<E: Element>() {
        for len in LENGTHS {
            let (mut params, direction) = (noise(len, 1), stored::<E>(len, 2));
            let pairs = to_f64(&params).into_iter().zip(to_f64(&direction));
            let expected: Vec<f64> = pairs.map(|(p, o)| 0.75 * p - 0.3 * o).collect();
            step_along(0.75, 0.3, &mut params, &direction);
            assert_close("params", &params, &expected, 1e-6);
        }
    }

    #[test]
    fn a_step_along_a_direction_matches_f64() {
        steps_match_f64::<f32>();
        steps_match_f64::<bf16>();
    }

    #[test]
    fn elements_give_the_same_bits_however_the_range_is_cut() {
        let len = 257;
        let direction = stored::<bf16>(len, 4);
        let run = |cut: usize| {
            let (mut gradients, mut m, mut params) = (noise(len, 1), noise(len, 2), noise(len, 3));
            let parts = gradients.chunks_mut(cut).zip(m.chunks_mut(cut));
            parts.for_each(|(gradients, m)| momentum(0.95, 0.3, gradients, m));
            let parts = params.chunks_mut(cut).zip(direction.chunks(cut));
            parts.for_each(|(params, direction)| step_along(0.999, 0.01, params, direction));
            bits(&[gradients, m, params].concat())
        };
        for cut in [1, 3, 7, 16, 17, 65, 128] {
            assert_eq!(run(cut), run(len), "cut into {cut}");
        }
    }

    #[test]
    #[should_panic(expected = "`direction` has 3 elements, expected 2")]
    fn lengths_must_agree() {
        step_along(1.0, 1.0, &mut [0.0; 2], &[0.0f32; 3]);
    }
}
