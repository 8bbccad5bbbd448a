//! The sum of many ranks' buffers along one fixed binary tree over their order, so that the bits depend neither on
//! timing nor on how the ranks are grouped into powers of two. Never reorders.

use std::ops::Range;

use super::convert::convert;
use super::simd::{check_len, vectorised};
use zero_core::device::known_mut;
use zero_core::device::{Element, Write};

/// Elements summed at a time: one buffer for each level of the tree stays in the first-level cache.
const BLOCK: usize = 512;

/// The most partial sums at once: one for each level, and the total.
const LEVELS: usize = 13;

/// The most sources that a tree of `LEVELS` holds.
const SOURCES_MAX: usize = 1 << (LEVELS - 1);

/// `out` := or += tree(0..`sources`), where tree(i..i+1) is `source(i)` and tree(lo..hi) is tree(lo..mid) +
/// tree(mid..hi), mid = lo + (hi - lo).next_power_of_two() / 2. Every source is as long as `out`.
///
/// Partial sums are f32, whatever the width of the elements, and the result is rounded once, when it is stored in
/// `out`.
pub fn tree_sum<'a, O: Element, S: Element>(
    out: &mut [O],
    source: impl Fn(usize) -> &'a [S],
    sources: usize,
    write: Write,
) {
    assert!((1..=SOURCES_MAX).contains(&sources), "a tree of {sources} sources, expected 1 to {SOURCES_MAX}");
    for i in 0..sources {
        check_len("source", source(i).len(), out.len());
    }
    match (sources, write) {
        (1, Write::Set) => convert(out, source(0)),
        (1, Write::Add) => add(out, source(0)),
        // Most sums are over two ranks: one pass, without partial sums.
        (2, _) => pair(out, source(0), source(1), write),
        _ => sum_in_blocks(out, source, sources, write),
    }
}

/// [`tree_sum`] if there are partial sums to keep.
fn sum_in_blocks<'a, O: Element, S: Element>(
    out: &mut [O],
    source: impl Fn(usize) -> &'a [S],
    sources: usize,
    write: Write,
) {
    let mut partial = [[0.0; BLOCK]; LEVELS];
    let (total, deeper) = partial.split_first_mut().expect("LEVELS > 0");
    for start in (0..out.len()).step_by(BLOCK) {
        let range = start..out.len().min(start + BLOCK);
        let out = &mut out[range.clone()];
        let leaf = |i: usize| &source(i)[range.clone()];
        let total = &mut total[..out.len()];
        match (write, known_mut::<_, f32>(out)) {
            (Write::Set, Some(out)) => tree(out, &leaf, 0..sources, deeper),
            (Write::Set, None) => {
                tree(total, &leaf, 0..sources, deeper);
                convert(out, total);
            }
            (Write::Add, _) => {
                tree(total, &leaf, 0..sources, deeper);
                add(out, total);
            }
        }
    }
}

/// `out` := the sum of the leaves of `span`, with a buffer for each level below.
fn tree<'a, S: Element>(
    out: &mut [f32],
    leaf: &impl Fn(usize) -> &'a [S],
    span: Range<usize>,
    partial: &mut [[f32; BLOCK]],
) {
    if span.len() == 1 {
        return convert(out, leaf(span.start));
    }
    let middle = span.start + span.len().next_power_of_two() / 2;
    if span.len() == 2 {
        return pair(out, leaf(span.start), leaf(middle), Write::Set);
    }
    tree(out, leaf, span.start..middle, partial);
    if span.end - middle == 1 {
        return add(out, leaf(middle));
    }
    let (right, deeper) = partial.split_first_mut().expect("one buffer a level");
    let right = &mut right[..out.len()];
    tree(right, leaf, middle..span.end, deeper);
    add(out, right);
}

/// `out` := or += `x` + `y`, rounded once.
fn pair<O: Element, S: Element>(out: &mut [O], x: &[S], y: &[S], write: Write) {
    let terms = x.iter().zip(y).map(
        #[inline(always)]
        |(x, y)| x.widen() + y.widen(),
    );
    match write {
        Write::Set => vectorised(
            #[inline(always)]
            || out.iter_mut().zip(terms).for_each(|(out, sum)| *out = O::narrow(sum)),
        ),
        Write::Add => vectorised(
            #[inline(always)]
            || out.iter_mut().zip(terms).for_each(|(out, sum)| *out = O::narrow(out.widen() + sum)),
        ),
    }
}

/// `out` += `x`, rounded once.
fn add<O: Element, S: Element>(out: &mut [O], x: &[S]) {
    vectorised(
        #[inline(always)]
        || {
            for (out, x) in out.iter_mut().zip(x) {
                *out = O::narrow(out.widen() + x.widen());
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::noise;
    use zero_core::device::bf16;

    /// The definition, one element at a time.
    fn naive(sources: &[f32]) -> f32 {
        match sources {
            [x] => *x,
            _ => {
                let (left, right) = sources.split_at(sources.len().next_power_of_two() / 2);
                naive(left) + naive(right)
            }
        }
    }

    fn matches_the_definition<O: Element, S: Element>() {
        for sources in [1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 31, 4096] {
            let len = if sources > 1000 { 3 } else { BLOCK + 17 };
            let stored = |seed: usize| noise(len, seed as u64).into_iter();
            let data: Vec<Vec<S>> = (0..sources).map(|i| stored(i).map(S::narrow).collect()).collect();
            let before: Vec<O> = stored(99_999).map(O::narrow).collect();
            let (mut set, mut add) = (vec![O::narrow(f32::NAN); len], before.clone());
            tree_sum(&mut set, |i| &data[i], sources, Write::Set);
            tree_sum(&mut add, |i| &data[i], sources, Write::Add);
            for i in 0..len {
                let column: Vec<f32> = data.iter().map(|source| source[i].widen()).collect();
                let (sum, before) = (naive(&column), before[i].widen());
                let found = [set[i], add[i]].map(|x| x.widen().to_bits());
                let expected = [sum, before + sum].map(|x| O::narrow(x).widen().to_bits());
                assert_eq!(found, expected, "{sources} sources, element {i}");
            }
        }
    }

    #[test]
    fn matches_the_definition_bit_for_bit() {
        matches_the_definition::<f32, f32>();
        matches_the_definition::<f32, bf16>();
        matches_the_definition::<bf16, f32>();
        matches_the_definition::<bf16, bf16>();
    }

    #[test]
    fn partial_sums_are_not_rounded() {
        // In bf16, 256 + 1 is a tie that falls back to 256; in f32 the four ones add up to 260.
        let data = [256.0, 1.0, 1.0, 1.0, 1.0].map(|x| [bf16::from_f32(x)]);
        let mut out = [bf16::ZERO];
        tree_sum(&mut out, |i| &data[i], 5, Write::Set);
        assert_eq!(out[0].to_f32(), 260.0);
        tree_sum(&mut out, |i| &data[1 + i], 1, Write::Add);
        assert_eq!(out[0].to_f32(), 260.0, "261 is a tie, and 260 is even");
    }

    #[test]
    fn two_levels_equal_the_flat_sum() {
        let data: Vec<Vec<f32>> = (0..8).map(|i| noise(33, i)).collect();
        let mut nodes = [[0.0; 33]; 2];
        for (node, sum) in nodes.iter_mut().enumerate() {
            tree_sum(sum, |i| &data[4 * node + i], 4, Write::Set);
        }
        let (mut flat, mut nested) = ([0.0; 33], [0.0; 33]);
        tree_sum(&mut flat, |i| &data[i], 8, Write::Set);
        tree_sum(&mut nested, |i| &nodes[i], 2, Write::Set);
        assert_eq!(flat.map(f32::to_bits), nested.map(f32::to_bits));
    }

    #[test]
    #[should_panic(expected = "a tree of 0 sources, expected 1 to 4096")]
    fn an_empty_sum_is_refused() {
        tree_sum::<f32, f32>(&mut [0.0], |_| &[], 0, Write::Set);
    }
}
