//! SIMD: the basis of every kernel: loops compiled for the widest vectors of the machine, sums in a fixed order, and
//! length checks. Results never depend on the machine: wider vectors do the same arithmetic faster.

use std::sync::LazyLock;

use zero_core::device::known;
use zero_core::device::{Element, Write};

/// Accumulators of a reduction: one AVX-512 register of `f32`. Fixed, so that every machine sums in the same order.
pub const LANES: usize = 16;

static ARCH: LazyLock<pulp::Arch> = LazyLock::new(pulp::Arch::new);

/// Runs `kernel` compiled for AVX-512, for AVX2 with FMA, or for the baseline, whichever is the best on this machine.
///
/// `kernel` and all functions that it calls must be `#[inline(always)]`: code that is not inlined here stays baseline code.
#[inline(always)]
pub fn vectorised<R>(kernel: impl FnOnce() -> R) -> R {
    ARCH.dispatch(kernel)
}

/// [`vectorised`] for kernels that name their vectors.
#[inline(always)]
pub fn dispatch<K: pulp::WithSimd>(kernel: K) -> K::Output {
    ARCH.dispatch(kernel)
}

/// As many numbers as a vector holds, or fewer followed by zeros, widened.
#[inline(always)]
pub fn vector<S: pulp::Simd, E: Element>(simd: S, stored: &[E]) -> S::f32s {
    match (known::<E, f32>(stored), stored.len() == S::F32_LANES) {
        (Some(stored), true) => S::as_simd_f32s(stored).0[0],
        (Some(stored), false) => simd.partial_load_f32s(stored),
        (None, _) => {
            // A loop of constant length becomes one instruction or two.
            let mut vector = simd.splat_f32s(0.0);
            let lanes: &mut [f32] = bytemuck::cast_slice_mut(core::slice::from_mut(&mut vector));
            for (lane, stored) in lanes.iter_mut().zip(stored) {
                *lane = stored.widen();
            }
            vector
        }
    }
}

/// Sum over i of `term` of the i-th elements of `inputs`, which are equally long.
#[inline(always)]
pub fn sum<const N: usize, E: Element>(inputs: [&[E]; N], term: impl Fn([f32; N]) -> f32) -> f32 {
    let len = inputs[0].len();
    assert!(inputs.iter().all(|x| x.len() == len), "summands differ in length");
    let blocks = inputs.map(|x| &x.as_chunks::<LANES>().0[..len / LANES]);
    let tails = inputs.map(|x| x.as_chunks::<LANES>().1);
    let mut lanes = [0.0; LANES];
    for block in 0..len / LANES {
        add_terms(&mut lanes, |lane| term(blocks.map(|x| x[block][lane].widen())));
    }
    for (lane, total) in lanes.iter_mut().enumerate().take(len % LANES) {
        *total += term(tails.map(|x| x[lane].widen()));
    }
    fold(lanes, |a, b| a + b)
}

/// [`sum`] of two inputs that need not be stored alike.
#[inline(always)]
pub fn sum_pairs<X: Element, Y: Element>(x: &[X], y: &[Y], term: impl Fn(f32, f32) -> f32) -> f32 {
    assert!(x.len() == y.len(), "summands differ in length");
    let ((x_blocks, x_tail), (y_blocks, y_tail)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    let mut lanes = [0.0; LANES];
    for (x, y) in x_blocks.iter().zip(y_blocks) {
        add_terms(&mut lanes, |lane| term(x[lane].widen(), y[lane].widen()));
    }
    for ((total, x), y) in lanes.iter_mut().zip(x_tail).zip(y_tail) {
        *total += term(x.widen(), y.widen());
    }
    fold(lanes, |a, b| a + b)
}

/// Adds the term of each lane to its total.
#[inline(always)]
fn add_terms(lanes: &mut [f32; LANES], term: impl Fn(usize) -> f32) {
    // All terms before any addition: in one loop they would be computed one at a time, which is four times slower.
    let mut terms = [0.0; LANES];
    for (lane, value) in terms.iter_mut().enumerate() {
        *value = term(lane);
    }
    for (total, term) in lanes.iter_mut().zip(terms) {
        *total += term;
    }
}

/// The largest element, NaN ignored; negative infinity if there is none.
#[inline(always)]
pub fn max<E: Element>(x: &[E]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (blocks, tail) = x.as_chunks::<LANES>();
    for block in blocks {
        raise(&mut lanes, block);
    }
    raise(&mut lanes, tail);
    fold(lanes, f32::max)
}

/// `lanes` := the larger of each lane and its element of `x`, as far as there are elements.
#[inline(always)]
fn raise<E: Element>(lanes: &mut [f32; LANES], x: &[E]) {
    for (largest, x) in lanes.iter_mut().zip(x) {
        let x = x.widen();
        *largest = if x > *largest { x } else { *largest };
    }
}

/// Combines the lanes pairwise: halves, quarters, and so on.
#[inline(always)]
pub fn fold<T: Copy, const N: usize>(mut lanes: [T; N], combine: impl Fn(T, T) -> T) -> T {
    const { assert!(N.is_power_of_two()) };
    let mut half = N / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = combine(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Clears `out` if it is to be overwritten, so that sums can be added to it.
pub fn begin(out: &mut [f32], write: Write) {
    match write {
        Write::Set => out.fill(0.0),
        Write::Add => {}
    }
}

/// Panics unless the slice called `name` has the length that its shape requires.
#[track_caller]
pub fn check_len(name: &str, found: usize, expected: usize) {
    assert!(found == expected, "`{name}` has {found} elements, expected {expected}");
}

/// `len / by` for the slice called `name`: its rows from their width, or the other way round. Panics on a remainder.
#[track_caller]
pub fn divided(name: &str, len: usize, by: usize) -> usize {
    assert!(by > 0 && len.is_multiple_of(by), "`{name}` has {len} elements, expected a multiple of {by}");
    len / by
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LENGTHS, assert_close, stored, to_f64};
    use zero_core::device::bf16;

    fn match_f64<E: Element>() {
        for len in LENGTHS {
            let (x, y) = (stored::<E>(len, 1), stored::<E>(len, 2));
            let naive: f64 = to_f64(&x).iter().zip(to_f64(&y)).map(|(x, y)| x * y).sum();
            let found = vectorised(|| sum([&x, &y], |[x, y]| x * y));
            assert_close("sum", &[found], &[naive], 1e-5);
            let wide: Vec<f32> = y.iter().map(|y| y.widen()).collect();
            let pairs = vectorised(|| sum_pairs(&x, &wide, |x, y| x * y));
            assert_eq!(pairs, found, "in the same order, however stored");
        }
    }

    #[test]
    fn sums_match_f64_at_every_tail_length() {
        match_f64::<f32>();
        match_f64::<bf16>();
    }

    #[test]
    fn max_finds_each_position() {
        for position in 0..35 {
            let mut x = vec![-3.0; 35];
            x[position] = -2.0;
            assert_eq!(max(&x), -2.0);
            assert_eq!(max(&x.iter().map(|&x| bf16::narrow(x)).collect::<Vec<_>>()), -2.0);
        }
        assert_eq!(max::<f32>(&[]), f32::NEG_INFINITY);
    }
}
