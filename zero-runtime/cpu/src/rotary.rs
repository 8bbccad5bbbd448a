//! Rotary: cosines and sines of positions, and rotations of pairs of features by them (Su et al., 2021). Never touches
//! features beyond the heads that it rotates.

use std::ops::Range;

use zero_plan::Width;

use super::attention::HEAD_DIM_MAX;
use super::math::sin_cos;
use super::simd::{check_len, divided, vectorised};
use super::strided::StridedSliceMut;
use zero_core::device::{Element, Rotary, bf16};
use zero_core::device::{known_mut, narrow_pair, widen_pair};

/// `table` (positions, head_dim) := for each position, head_dim / 2 cosines, then as many sines. Angles are f32, as in
/// published models; beyond 2^24 positions they are correspondingly coarse.
pub fn rotary_table(rotary: &Rotary, positions: Range<usize>, head_dim: usize, table: &mut [f32]) {
    assert!(head_dim.is_multiple_of(2) && head_dim <= HEAD_DIM_MAX, "a head of {head_dim} features has no pairs");
    check_len("table", table.len(), positions.len() * head_dim);
    let mut frequencies = [0.0; HEAD_DIM_MAX / 2];
    let frequencies = &mut frequencies[..head_dim / 2];
    let factor = rotary.frequencies(frequencies);
    vectorised(
        #[inline(always)]
        || {
            for (position, row) in positions.zip(table.chunks_exact_mut(head_dim)) {
                let (cosines, sines) = row.split_at_mut(head_dim / 2);
                for ((frequency, cosine), sine) in frequencies.iter().zip(cosines).zip(sines) {
                    let [sin, cos] = sin_cos(position as f32 * frequency);
                    (*cosine, *sine) = (cos * factor, sin * factor);
                }
            }
        },
    );
}

/// Rotates each head of `x`, whose first row has number `first`: pair (i, i + head_dim / 2) by the angle of row t %
/// `length` of `table`, (length, head_dim), where t is the number of the row; in the other direction with `back`.
pub fn rotate<E: Element>(mut x: StridedSliceMut<E>, first: usize, table: &[f32], length: usize, back: bool) {
    let head_dim = divided("table", table.len(), length);
    divided("a row", x.width(), head_dim);
    let sign = if back { -1.0 } else { 1.0 };
    vectorised(
        #[inline(always)]
        || {
            for row in 0..x.rows() {
                let (cosines, sines) = table[(first + row) % length * head_dim..][..head_dim].split_at(head_dim / 2);
                for head in x.row(row).chunks_exact_mut(head_dim) {
                    let halves = head.split_at_mut(head_dim / 2);
                    rotate_halves(halves, cosines, sines, sign);
                }
            }
        },
    );
}

/// (x, y) := (x cos - y sin, y cos + x sin), each pair.
#[inline(always)]
fn rotate_halves<E: Element>((x, y): (&mut [E], &mut [E]), cosines: &[f32], sines: &[f32], sign: f32) {
    if E::WIDTH == Width::BF16 {
        let halves = (known_mut(x).expect("a bf16"), known_mut(y).expect("a bf16"));
        return rotate_pairs(halves, cosines, sines, sign);
    }
    for (((x, y), cos), sin) in x.iter_mut().zip(y).zip(cosines).zip(sines) {
        let [rotated_x, rotated_y] = rotated([x.widen(), y.widen()], *cos, sign * sin);
        (*x, *y) = (E::narrow(rotated_x), E::narrow(rotated_y));
    }
}

/// [`rotate_halves`], two pairs at a time.
#[inline(always)]
fn rotate_pairs((x, y): (&mut [bf16], &mut [bf16]), cosines: &[f32], sines: &[f32], sign: f32) {
    let ((x, x_last), (y, y_last)) = (x.as_chunks_mut::<2>(), y.as_chunks_mut::<2>());
    let ((cos, cos_last), (sin, sin_last)) = (cosines.as_chunks::<2>(), sines.as_chunks::<2>());
    for (((x, y), cos), sin) in x.iter_mut().zip(y).zip(cos).zip(sin) {
        let (wide_x, wide_y) = (widen_pair(*x), widen_pair(*y));
        let [low, high] = [0, 1].map(|i| rotated([wide_x[i], wide_y[i]], cos[i], sign * sin[i]));
        (*x, *y) = (narrow_pair([low[0], high[0]]), narrow_pair([low[1], high[1]]));
    }
    if let ([x], [y], [cos], [sin]) = (x_last, y_last, cos_last, sin_last) {
        let [rotated_x, rotated_y] = rotated([x.widen(), y.widen()], *cos, sign * sin);
        (*x, *y) = (bf16::narrow(rotated_x), bf16::narrow(rotated_y));
    }
}

#[inline(always)]
fn rotated([x, y]: [f32; 2], cos: f32, sin: f32) -> [f32; 2] {
    [x.mul_add(cos, -(y * sin)), y.mul_add(cos, x * sin)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_close, bits, stored, to_f64};
    use zero_core::device::Scaling;

    const YARN: Scaling = Scaling::Yarn {
        factor: 4.0,
        original_length: 512,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: None,
        truncate: true,
    };

    fn table(scaling: Scaling, positions: Range<usize>, head_dim: usize) -> Vec<f32> {
        let mut table = vec![f32::NAN; positions.len() * head_dim];
        rotary_table(&Rotary { base: 10_000.0, scaling }, positions, head_dim, &mut table);
        table
    }

    /// Compared with cosines and sines of the same angles in f64, at the start and the end of a long sequence.
    #[test]
    fn a_table_matches_f64() {
        for scaling in [Scaling::None, YARN] {
            for head_dim in [2, 6, 34, 128] {
                let mut frequencies = vec![0.0; head_dim / 2];
                let factor = Rotary { base: 10_000.0, scaling }.frequencies(&mut frequencies);
                for positions in [0..5, 131_060..131_072] {
                    let angle = |position: usize, pair: usize| f64::from(position as f32 * frequencies[pair]);
                    let row = |position: usize| {
                        let angles: Vec<f64> = (0..head_dim / 2).map(|pair| angle(position, pair)).collect();
                        let (cosines, sines) = (angles.iter().map(|x| x.cos()), angles.iter().map(|x| x.sin()));
                        cosines.chain(sines).map(|x| x * f64::from(factor)).collect::<Vec<_>>()
                    };
                    let expected: Vec<f64> = positions.clone().flat_map(row).collect();
                    assert_close("table", &table(scaling, positions, head_dim), &expected, 1e-7);
                }
            }
        }
    }

    /// Rows of three heads, two of which are rotated, with tables that have fewer rows than `x`.
    fn match_f64<E: Element>(head_dim: usize, rows: usize, length: usize) {
        let (stride, width, half) = (3 * head_dim + 1, 2 * head_dim, head_dim / 2);
        let (table, before) = (table(YARN, 0..length, head_dim), stored::<E>(rows * stride, 1));
        for back in [false, true] {
            let (mut x, first) = (before.clone(), 2);
            rotate(StridedSliceMut::new(&mut x, stride, width), first, &table, length, back);
            let (wide, angles) = (to_f64(&before), to_f64(&table));
            let mut expected = wide.clone();
            for row in 0..rows {
                let angles = &angles[(first + row) % length * head_dim..][..head_dim];
                for head in 0..2 {
                    for i in 0..half {
                        let at = row * stride + head * head_dim + i;
                        let sin = if back { -angles[half + i] } else { angles[half + i] };
                        expected[at] = wide[at] * angles[i] - wide[at + half] * sin;
                        expected[at + half] = wide[at + half] * angles[i] + wide[at] * sin;
                    }
                }
                let between = row * stride + width..(row + 1) * stride;
                assert_eq!(bits(&x[between.clone()]), bits(&before[between]), "features that are not rotated stay");
            }
            assert_close("rotated", &x, &expected, 1e-6);
        }
    }

    #[test]
    fn rotation_matches_f64() {
        for head_dim in [2, 6, 8, 34, 128] {
            for (rows, length) in [(1, 1), (7, 3), (4, 9)] {
                match_f64::<f32>(head_dim, rows, length);
                match_f64::<bf16>(head_dim, rows, length);
            }
        }
    }

    /// Neighbouring tokens are equally far apart early and late in a sequence, which is the purpose of rotary
    /// positions.
    #[test]
    fn products_depend_on_distances_alone() {
        let head_dim = 8;
        let table = table(Scaling::None, 0..20, head_dim);
        let (q, k) = (stored::<f32>(head_dim, 1), stored::<f32>(head_dim, 2));
        let product = |i: usize, j: usize| {
            let rotated = |x: &[f32], position| {
                let mut x = x.to_vec();
                rotate(StridedSliceMut::new(&mut x, head_dim, head_dim), position, &table, 20, false);
                to_f64(&x)
            };
            rotated(&q, i).iter().zip(rotated(&k, j)).map(|(q, k)| q * k).sum::<f64>()
        };
        assert!((product(7, 3) - product(19, 15)).abs() < 1e-5);
        assert!((product(7, 3) - product(3, 7)).abs() > 1e-2, "and on their order");
    }

    #[test]
    #[should_panic(expected = "a head of 3 features has no pairs")]
    fn an_odd_head_is_refused() {
        table(Scaling::None, 0..1, 3);
    }
}
