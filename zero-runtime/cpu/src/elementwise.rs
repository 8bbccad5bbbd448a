//! Elementwise: loops in which each result depends only on the elements at one index. Never keeps the order of
//! elements: two bf16 that share a word are separated and joined again, which costs less than spreading them out.

use zero_plan::Width;

use zero_core::device::{Element, bf16};
use zero_core::device::{known, known_mut, narrow_pair, widen_pair};

/// `y` := `f` of its old value and of the elements of `inputs`, which are as long, at the same index. For use within a
/// vectorised loop.
#[inline(always)]
pub fn each<const N: usize, E: Element>(y: &mut [E], inputs: [&[E]; N], f: impl Fn(f32, [f32; N]) -> f32) {
    let len = y.len();
    let inputs = inputs.map(|x| &x[..len]);
    if E::WIDTH == Width::BF16 {
        let y = known_mut(y).expect("a bf16");
        return each_pair(y, inputs.map(|x| known(x).expect("a bf16")), f);
    }
    for i in 0..len {
        y[i] = E::narrow(f(y[i].widen(), inputs.map(|x| x[i].widen())));
    }
}

/// [`each`], two at a time.
#[inline(always)]
fn each_pair<const N: usize>(y: &mut [bf16], inputs: [&[bf16]; N], f: impl Fn(f32, [f32; N]) -> f32) {
    let (pairs, last) = y.as_chunks_mut::<2>();
    let (len, input_last) = (pairs.len(), inputs.map(|x| x.as_chunks::<2>().1));
    let inputs = inputs.map(|x| &x.as_chunks::<2>().0[..len]);
    for i in 0..len {
        let (held, wide) = (widen_pair(pairs[i]), inputs.map(|x| widen_pair(x[i])));
        pairs[i] = narrow_pair([f(held[0], wide.map(|x| x[0])), f(held[1], wide.map(|x| x[1]))]);
    }
    if let [last] = last {
        *last = bf16::narrow(f(last.widen(), input_last.map(|x| x[0].widen())));
    }
}

/// `y` and `z`, which are equally long, := the two results of `f` of the elements of `inputs` at the same index. For
/// use within a vectorised loop.
#[inline(always)]
pub fn each_both<const N: usize, E: Element>(
    y: &mut [E],
    z: &mut [E],
    inputs: [&[E]; N],
    f: impl Fn([f32; N]) -> [f32; 2],
) {
    let len = y.len();
    let (z, inputs) = (&mut z[..len], inputs.map(|x| &x[..len]));
    if E::WIDTH == Width::BF16 {
        let [y, z] = [y, z].map(|y| known_mut(y).expect("a bf16"));
        return each_both_pair(y, z, inputs.map(|x| known(x).expect("a bf16")), f);
    }
    for i in 0..len {
        let [first, second] = f(inputs.map(|x| x[i].widen()));
        (y[i], z[i]) = (E::narrow(first), E::narrow(second));
    }
}

/// [`each_both`], two at a time.
#[inline(always)]
fn each_both_pair<const N: usize>(
    y: &mut [bf16],
    z: &mut [bf16],
    inputs: [&[bf16]; N],
    f: impl Fn([f32; N]) -> [f32; 2],
) {
    let ((y, y_last), (z, z_last)) = (y.as_chunks_mut::<2>(), z.as_chunks_mut::<2>());
    let (len, input_last) = (y.len(), inputs.map(|x| x.as_chunks::<2>().1));
    let (z, inputs) = (&mut z[..len], inputs.map(|x| &x.as_chunks::<2>().0[..len]));
    for i in 0..len {
        let wide = inputs.map(|x| widen_pair(x[i]));
        let (low, high) = (f(wide.map(|x| x[0])), f(wide.map(|x| x[1])));
        (y[i], z[i]) = (narrow_pair([low[0], high[0]]), narrow_pair([low[1], high[1]]));
    }
    if let ([y], [z]) = (y_last, z_last) {
        let [first, second] = f(input_last.map(|x| x[0].widen()));
        (*y, *z) = (bf16::narrow(first), bf16::narrow(second));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::vectorised;
    use crate::testing::{LENGTHS, bits, stored};

    /// To the bit, from even and odd places, in words that are aligned and not.
    fn match_their_definition<E: Element>() {
        let f = |y: f32, [a, b]: [f32; 2]| (y - a).mul_add(b, 0.3);
        for len in LENGTHS.into_iter().flat_map(|len| [len, len + 1]) {
            for start in [0, 1] {
                let (mut y, a, b) = (stored::<E>(start + len, 1), stored::<E>(len, 2), stored::<E>(start + len, 3));
                let expected: Vec<E> = (0..len)
                    .map(|i| E::narrow(f(y[start + i].widen(), [a[i].widen(), b[start + i].widen()])))
                    .collect();
                vectorised(|| each(&mut y[start..], [&a, &b[start..]], f));
                assert_eq!(bits(&y[start..]), bits(&expected), "{len} from {start}");
                let (mut y, mut z) = (vec![E::narrow(f32::NAN); len], stored::<E>(start + len, 4));
                let two = |[a, b]: [f32; 2]| [f(0.0, [a, b]), a - b];
                let expected: [Vec<E>; 2] = [0, 1].map(|which| {
                    let of = |i: usize| E::narrow(two([a[i].widen(), b[start + i].widen()])[which]);
                    (0..len).map(of).collect()
                });
                vectorised(|| each_both(&mut y, &mut z[start..], [&a, &b[start..]], two));
                assert_eq!([bits(&y), bits(&z[start..])], expected.map(|expected| bits(&expected)), "both of {len}");
            }
        }
    }

    #[test]
    fn elements_match_their_definition() {
        match_their_definition::<f32>();
        match_their_definition::<bf16>();
        each::<0, bf16>(&mut [], [], |y, []| y);
    }
}
