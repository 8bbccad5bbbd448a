//! The sum of many ranks' buffers along one fixed binary tree over their order, so that the bits depend neither on
//! timing nor on how the ranks are grouped into powers of two. Never reorders.

use std::ops::Range;

use super::rows::accumulate;
use super::simd::{check_len, vectorised};
use crate::device::Write;

/// Elements summed at a time: one buffer for each level of the tree stays in the first-level cache.
const BLOCK: usize = 512;

/// Partial sums alive at once: one a level, and the total.
const LEVELS: usize = 13;

/// The most sources a tree of `LEVELS` holds.
const SOURCES_MAX: usize = 1 << (LEVELS - 1);

/// `out` := or += tree(0..`sources`), where tree(i..i+1) is `source(i)` and tree(lo..hi) is tree(lo..mid) +
/// tree(mid..hi), mid = lo + (hi - lo).next_power_of_two() / 2. Every source is as long as `out`.
pub fn tree_sum<'a>(out: &mut [f32], source: impl Fn(usize) -> &'a [f32], sources: usize, write: Write) {
    assert!((1..=SOURCES_MAX).contains(&sources), "a tree of {sources} sources, expected 1 to {SOURCES_MAX}");
    for i in 0..sources {
        check_len("source", source(i).len(), out.len());
    }
    let mut partial = [[0.0; BLOCK]; LEVELS];
    for start in (0..out.len()).step_by(BLOCK) {
        let range = start..out.len().min(start + BLOCK);
        let leaf = |i: usize| &source(i)[range.clone()];
        let out = &mut out[range.clone()];
        match write {
            Write::Set => tree(out, &leaf, 0..sources, &mut partial),
            Write::Add => {
                let (total, deeper) = partial.split_first_mut().expect("LEVELS > 0");
                let total = &mut total[..out.len()];
                tree(total, &leaf, 0..sources, deeper);
                add(out, total);
            }
        }
    }
}

/// `out` := the sum of the leaves of `span`, with a buffer for each level below.
fn tree<'a>(out: &mut [f32], leaf: &impl Fn(usize) -> &'a [f32], span: Range<usize>, partial: &mut [[f32; BLOCK]]) {
    if span.len() == 1 {
        return out.copy_from_slice(leaf(span.start));
    }
    let middle = span.start + span.len().next_power_of_two() / 2;
    tree(out, leaf, span.start..middle, partial);
    if span.end - middle == 1 {
        return add(out, leaf(middle));
    }
    let (right, deeper) = partial.split_first_mut().expect("one buffer a level");
    let right = &mut right[..out.len()];
    tree(right, leaf, middle..span.end, deeper);
    add(out, right);
}

fn add(out: &mut [f32], x: &[f32]) {
    vectorised(
        #[inline(always)]
        || accumulate(out, x),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cpu::testing::noise;

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

    #[test]
    fn matches_the_definition_bit_for_bit() {
        for sources in [1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 31, 4096] {
            let len = if sources > 1000 { 3 } else { BLOCK + 17 };
            let data: Vec<Vec<f32>> = (0..sources).map(|i| noise(len, i as u64)).collect();
            let before = noise(len, 99);
            let (mut set, mut add) = (vec![f32::NAN; len], before.clone());
            tree_sum(&mut set, |i| &data[i], sources, Write::Set);
            tree_sum(&mut add, |i| &data[i], sources, Write::Add);
            for i in 0..len {
                let column: Vec<f32> = data.iter().map(|source| source[i]).collect();
                assert_eq!(set[i].to_bits(), naive(&column).to_bits(), "{sources} sources, element {i}");
                assert_eq!(add[i].to_bits(), (before[i] + naive(&column)).to_bits());
            }
        }
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
        tree_sum(&mut [0.0], |_| &[], 0, Write::Set);
    }
}
