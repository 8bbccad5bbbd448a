//! Reduce: a sum of stretches, one of which may be the destination. Never sums in an order other than that of
//! [`tree_sum`].

use super::Cpu;
use super::simd::check_len;
use super::tree_sum::tree_sum;
use zero_core::device::{Element, Stored, StoredMut, Write};

/// Elements that a sum in place works on at a time, apart from the sources: half of a first-level cache.
const BLOCK: usize = 4096;

/// The most summands of a sum that threads share: a thread needs all summands in advance, because only the calling
/// thread may call `source`.
const SHARED_MAX: usize = 256;

/// `to` := or += tree(0..`count`), as in [`tree_sum`], of the summands that `source` returns; summand number `own` is
/// the content of `to`. All summands are stored in one width, which is that of `to` if `to` is a summand. The work is
/// shared by elements.
pub fn reduce<'a>(
    cpu: Cpu,
    to: StoredMut<Cpu>,
    count: usize,
    own: Option<usize>,
    source: &dyn Fn(usize) -> Stored<'a, Cpu>,
    write: Write,
) {
    let wide = |i| match source(i) {
        Stored::F32(summand) => summand.as_slice(),
        Stored::BF16(_) => panic!("summand {i} is stored as bf16, but others as f32"),
    };
    let narrow = |i| match source(i) {
        Stored::BF16(summand) => summand.as_slice(),
        Stored::F32(_) => panic!("summand {i} is stored as f32, but others as bf16"),
    };
    // Any summand other than `own` shows the width of all summands.
    let first = (0..count).find(|&i| own != Some(i)).map(source);
    match (to, first) {
        (StoredMut::F32(to), Some(Stored::BF16(_))) => apart(cpu, to.into_slice(), count, own, narrow, write),
        (StoredMut::BF16(to), Some(Stored::F32(_))) => apart(cpu, to.into_slice(), count, own, wide, write),
        (StoredMut::F32(to), _) => share(cpu, to.into_slice(), count, own, wide, write),
        (StoredMut::BF16(to), _) => share(cpu, to.into_slice(), count, own, narrow, write),
    }
}

/// [`share`] for summands whose width differs from that of the sum, which is not one of them.
fn apart<'a, O: Element, S: Element>(
    cpu: Cpu,
    to: &mut [O],
    count: usize,
    own: Option<usize>,
    source: impl Fn(usize) -> &'a [S],
    write: Write,
) {
    assert_eq!(own, None, "a sum in place of summands of another width");
    with_summands(cpu, to, count, None, source, |to, source| tree_sum(to, source, count, write));
}

fn share<'a, E: Element>(
    cpu: Cpu,
    to: &mut [E],
    count: usize,
    own: Option<usize>,
    source: impl Fn(usize) -> &'a [E],
    write: Write,
) {
    with_summands(cpu, to, count, own, source, |to, source| reduce_as(to, count, own, source, write));
}

/// Calls `sum` for parts of `to`, and of the summands, on all threads.
fn with_summands<'a, O: Element, S: Element>(
    cpu: Cpu,
    to: &mut [O],
    count: usize,
    own: Option<usize>,
    source: impl Fn(usize) -> &'a [S],
    sum: impl Fn(&mut [O], &dyn Fn(usize) -> &'a [S]) + Sync,
) {
    if count > SHARED_MAX {
        return sum(to, &source);
    }
    let mut summands: [&[S]; SHARED_MAX] = [&[]; SHARED_MAX];
    for i in (0..count).filter(|&i| own != Some(i)) {
        summands[i] = source(i);
        check_len("source", summands[i].len(), to.len());
    }
    cpu.by_elements(to.len(), (0..to.len(), to), |(part, to)| {
        sum(to, &|i| &summands[i][part.clone()]);
    });
}

fn reduce_as<'a, E: Element>(
    to: &mut [E],
    count: usize,
    own: Option<usize>,
    source: impl Fn(usize) -> &'a [E],
    write: Write,
) {
    match own {
        None => tree_sum(to, source, count, write),
        // With two summands, the other one is added to `to`: their order does not matter.
        Some(own) if count == 2 && write == Write::Set => tree_sum(to, |_| source(1 - own), 1, Write::Add),
        Some(own) => {
            let mut scratch = [0.0; BLOCK];
            for (i, block) in to.chunks_mut(BLOCK).enumerate() {
                let sum = &mut scratch[..block.len()];
                let (held, range) = (&*block, i * BLOCK..i * BLOCK + block.len());
                tree_sum(sum, |i| if i == own { held } else { &source(i)[range.clone()] }, count, Write::Set);
                tree_sum(block, |_| &*sum, 1, write);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use zero_plan::{Subtree, Subtrees};

    use super::*;
    use crate::testing::{bits, stored};
    use zero_core::device::bf16;
    use zero_core::view::{View, ViewMut};

    /// In place or not, to the bit.
    fn in_place_is_as_apart<E: Element>(len: usize, count: usize)
    where
        for<'a> Stored<'a, Cpu>: From<View<'a, Cpu, E>>,
        for<'a> StoredMut<'a, Cpu>: From<ViewMut<'a, Cpu, E>>,
    {
        let data: Vec<Vec<E>> = (0..count as u64).map(|seed| stored(len, seed)).collect();
        for own in 0..count {
            for write in [Write::Set, Write::Add] {
                let (mut found, mut expected) = (data[own].clone(), data[own].clone());
                tree_sum(&mut expected, |i| &data[i], count, write);
                let source = |i: usize| {
                    assert_ne!(i, own, "asked for the summand at the destination");
                    Stored::from(View::from(data[i].as_slice()))
                };
                let to = ViewMut::from(found.as_mut_slice()).into();
                reduce(Cpu::ONE_THREAD, to, count, Some(own), &source, write);
                assert_eq!(bits(&found), bits(&expected), "{count} of {len}, own {own}, {write:?}");
            }
        }
    }

    /// Lengths below, at and beyond a block; as many summands as threads share, and more.
    #[test]
    fn a_sum_in_place_is_as_one_apart() {
        let lengths = [1, BLOCK, BLOCK + 17];
        let sizes = lengths.into_iter().flat_map(|len| (1..=6).map(move |count| (len, count)));
        for (len, count) in sizes.chain([(2, SHARED_MAX), (2, SHARED_MAX + 1)]) {
            in_place_is_as_apart::<f32>(len, count);
            in_place_is_as_apart::<bf16>(len, count);
        }
    }

    /// Subtotals are f32, so their sum has the bits of a single sum.
    #[test]
    fn a_sum_of_sums_of_complete_subtrees_is_the_sum_of_all() {
        let data: Vec<Vec<bf16>> = (0..8).map(|seed| stored(700, seed)).collect();
        for (hosts, per_host) in [(2, 4), (4, 2), (3, 2)] {
            for write in [Write::Set, Write::Add] {
                let mut subtotals = vec![vec![0.0f32; 700]; hosts];
                for (host, subtotal) in subtotals.iter_mut().enumerate() {
                    let source = |peer: usize| Stored::from(View::from(data[host * per_host + peer].as_slice()));
                    let to = ViewMut::from(subtotal.as_mut_slice()).into();
                    reduce(Cpu::ONE_THREAD, to, per_host, None, &source, Write::Set);
                }
                let (mut found, mut expected) = (data[7].clone(), data[7].clone());
                tree_sum(&mut expected, |i| &data[i], hosts * per_host, write);
                let source = |host: usize| Stored::from(View::from(subtotals[host].as_slice()));
                reduce(Cpu::ONE_THREAD, ViewMut::from(found.as_mut_slice()).into(), hosts, None, &source, write);
                assert_eq!(bits(&found), bits(&expected), "{hosts} x {per_host}, {write:?}");
            }
        }
    }

    /// As on hosts whose ranks form several subtrees.
    fn is_summed_over_hosts<E: Element>(ranks: usize, per_host: usize, write: Write)
    where
        for<'a> Stored<'a, Cpu>: From<View<'a, Cpu, E>>,
        for<'a> StoredMut<'a, Cpu>: From<ViewMut<'a, Cpu, E>>,
    {
        let data: Vec<Vec<E>> = (0..ranks as u64).map(|seed| stored(70, seed)).collect();
        let subtrees = Subtrees { ranks, per_host };
        let mut sums = vec![Vec::new(); ranks];
        for Subtree { first, end } in (0..ranks / per_host).flat_map(|host| subtrees.of_host(host)) {
            let mut sum = vec![0.0f32; 70];
            let source = |rank: usize| Stored::from(View::from(data[first + rank].as_slice()));
            let to = StoredMut::F32(ViewMut::from(sum.as_mut_slice()));
            reduce(Cpu::ONE_THREAD, to, end - first, None, &source, Write::Set);
            sums[first] = sum;
        }
        for [left, right] in subtrees.joins() {
            let (before, after) = sums.split_at_mut(right.first);
            let source = |_| Stored::F32(View::from(after[0].as_slice()));
            let to = StoredMut::F32(ViewMut::from(before[left.first].as_mut_slice()));
            reduce(Cpu::ONE_THREAD, to, 1, None, &source, Write::Add);
        }
        let (mut found, mut expected) = (data[0].clone(), data[0].clone());
        let (number, block) = subtrees.blocks();
        let source = |number| Stored::F32(View::from(sums[block(number).first].as_slice()));
        reduce(Cpu::ONE_THREAD, ViewMut::from(found.as_mut_slice()).into(), number, None, &source, write);
        tree_sum(&mut expected, |rank| &data[rank], ranks, write);
        assert_eq!(bits(&found), bits(&expected), "{ranks} ranks, {per_host} a host, {write:?}");
    }

    #[test]
    fn sums_of_subtrees_of_all_hosts_have_the_bits_of_a_sum_in_one_go() {
        for ranks in 2..=36 {
            for per_host in (1..ranks).filter(|per_host| ranks % per_host == 0) {
                for write in [Write::Set, Write::Add] {
                    is_summed_over_hosts::<f32>(ranks, per_host, write);
                    is_summed_over_hosts::<bf16>(ranks, per_host, write);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "summand 1 is stored as f32, but others as bf16")]
    fn widths_of_summands_must_agree() {
        let source = |i| if i == 0 { View::from(&[bf16::ONE][..]).into() } else { View::from(&[1.0f32][..]).into() };
        reduce(Cpu::ONE_THREAD, ViewMut::from(&mut [0.0][..]).into(), 2, None, &source, Write::Set);
    }

    #[test]
    #[should_panic(expected = "a sum in place of summands of another width")]
    fn a_summand_has_the_width_of_the_others() {
        let source = |_| View::from(&[bf16::ONE][..]).into();
        reduce(Cpu::ONE_THREAD, ViewMut::from(&mut [0.0][..]).into(), 2, Some(0), &source, Write::Set);
    }
}
