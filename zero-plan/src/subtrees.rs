//! Subtrees: the parts of the tree of a sum along an axis that lie on one host, and the order in which the sums of
//! these parts are added, so that the bits are those of a single sum over all ranks. Knows no memory.

/// Ranks along an axis whose terms are a subtree of the sum of all: `first..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subtree {
    /// The first of them.
    pub first: usize,
    /// The one after the last.
    pub end: usize,
}

impl Subtree {
    /// The number of these ranks.
    pub const fn ranks(self) -> usize {
        self.end - self.first
    }
}

/// The sums that hosts make of the terms of all ranks along an axis, and the remaining additions.
///
/// The tree splits ranks at the largest power of two. So its subtrees are blocks of 1, 2, 4, ... ranks that begin at a
/// multiple of their length; the last block may be cut short by the end of all ranks. Each host sums the largest such
/// blocks that lie within its ranks. If a block lies on two hosts, the sums of its parts are added pair by pair, until
/// only blocks of one length are left, the longest that a host has. These are added at once, because their tree is the
/// upper part of the tree of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subtrees {
    /// Ranks along the axis.
    pub ranks: usize,
    /// Ranks along the axis on each host, which are consecutive.
    pub per_host: usize,
}

impl Subtrees {
    /// The end of the subtree of a host that begins with the rank at `first`.
    pub const fn end(self, first: usize) -> usize {
        let host_end = (first / self.per_host + 1) * self.per_host;
        let room = host_end - first;
        // Rank 0 begins blocks of every length.
        let block = if first == 0 { usize::MAX } else { 1 << first.trailing_zeros() };
        if host_end == self.ranks && room <= block {
            return host_end;
        }
        let fits = 1 << room.ilog2();
        first + if block < fits { block } else { fits }
    }

    /// The subtrees of a host, in the order of ranks.
    pub fn of_host(self, host: usize) -> impl Iterator<Item = Subtree> {
        let subtree =
            move |first| (first < (host + 1) * self.per_host).then(|| Subtree { first, end: self.end(first) });
        core::iter::successors(subtree(host * self.per_host), move |before| subtree(before.end))
    }

    /// The number of subtrees of its host that begin before the rank at `first`.
    pub const fn index(self, first: usize) -> usize {
        let (mut before, mut index) = (first / self.per_host * self.per_host, 0);
        while before < first {
            before = self.end(before);
            index += 1;
        }
        index
    }

    /// The number of subtrees of a host.
    pub const fn count_of(self, host: usize) -> usize {
        let last = (host + 1) * self.per_host - 1;
        // The last rank of a host is in its last subtree.
        self.index(last) + self.begins(last) as usize
    }

    /// The number of subtrees of all hosts before this one.
    pub const fn before(self, host: usize) -> usize {
        if self.per_host.is_power_of_two() {
            // Each host has one. Plans of many hosts ask for this often, so it is not counted host by host.
            return host;
        }
        let (mut before, mut other) = (0, 0);
        while other < host {
            before += self.count_of(other);
            other += 1;
        }
        before
    }

    /// The number of subtrees of all hosts.
    pub const fn count(self) -> usize {
        self.before(self.ranks / self.per_host)
    }

    /// The largest number of subtrees that a host has.
    pub const fn most(self) -> usize {
        let (mut most, mut host) = (0, 0);
        while host < self.ranks / self.per_host {
            let count = self.count_of(host);
            most = if count > most { count } else { most };
            host += 1;
        }
        most
    }

    /// Whether a subtree of a host begins with the rank at `first`.
    const fn begins(self, first: usize) -> bool {
        let mut before = first / self.per_host * self.per_host;
        while before < first {
            before = self.end(before);
        }
        before == first
    }

    /// The length of the longest block that a host has, as if it were not cut short.
    const fn longest(self) -> usize {
        if self.per_host.is_power_of_two() {
            return self.per_host;
        }
        let (mut longest, mut first) = (1, 0);
        while first < self.ranks {
            let end = self.end(first);
            let block = (end - first).next_power_of_two();
            longest = if block > longest { block } else { longest };
            first = end;
        }
        longest
    }

    /// The block of `length` ranks that begins at `first`.
    const fn block(self, first: usize, length: usize) -> Subtree {
        let end = first + length;
        Subtree { first, end: if end < self.ranks { end } else { self.ranks } }
    }

    /// Pairs in the order in which the second is added to the first.
    pub fn joins(self) -> impl Iterator<Item = [Subtree; 2]> {
        let longest = self.longest();
        let lengths = core::iter::successors(Some(1), |length| Some(2 * length));
        lengths.take_while(move |&length| length < longest).flat_map(move |length| {
            // A block whose middle lies within a subtree of a host is summed there.
            let middles = (length..self.ranks).step_by(2 * length).filter(move |&middle| self.begins(middle));
            middles.map(move |middle| [self.block(middle - length, length), self.block(middle, length)])
        })
    }

    /// The blocks that are added at once after these joins: their number, and each block by its number, in the order of ranks.
    pub fn blocks(self) -> (usize, impl Fn(usize) -> Subtree + Copy) {
        let longest = self.longest();
        (self.ranks.div_ceil(longest), move |number| self.block(number * longest, longest))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// A sum of terms along the tree that halves them at powers of two, in brackets.
    fn tree(terms: &[String]) -> String {
        match terms {
            [term] => term.clone(),
            _ => {
                let (left, right) = terms.split_at(terms.len().next_power_of_two() / 2);
                format!("({}+{})", tree(left), tree(right))
            }
        }
    }

    #[test]
    fn sums_of_hosts_are_added_to_the_sum_of_all_ranks() {
        for ranks in 1..=32 {
            for per_host in (1..=ranks).filter(|per_host| ranks % per_host == 0) {
                let subtrees = Subtrees { ranks, per_host };
                let terms: Vec<String> = (0..ranks).map(|rank| rank.to_string()).collect();
                let mut sums: HashMap<Subtree, String> = (0..ranks / per_host)
                    .flat_map(|host| subtrees.of_host(host))
                    .map(|subtree| (subtree, tree(&terms[subtree.first..subtree.end])))
                    .collect();
                for [left, right] in subtrees.joins() {
                    let [one, other] = [left, right].map(|part| sums.remove(&part).expect("a sum that is there"));
                    sums.insert(Subtree { first: left.first, end: right.end }, format!("({one}+{other})"));
                }
                let (number, block) = subtrees.blocks();
                let rest = (0..number).map(|number| sums.remove(&block(number)).expect("a sum that is there"));
                let rest: Vec<String> = rest.collect();
                assert_eq!(tree(&rest), tree(&terms), "{subtrees:?}");
                assert!(sums.is_empty(), "{subtrees:?}: {sums:?} are left over");
            }
        }
    }

    /// The nodes of the tree by its definition, each before those below it.
    fn nodes(first: usize, end: usize, visit: &mut dyn FnMut(Subtree)) {
        visit(Subtree { first, end });
        if end - first > 1 {
            let middle = first + (end - first).next_power_of_two() / 2;
            nodes(first, middle, visit);
            nodes(middle, end, visit);
        }
    }

    #[test]
    fn a_host_sums_the_largest_subtrees_that_it_has() {
        for ranks in 2..=32 {
            for per_host in (1..ranks).filter(|per_host| ranks % per_host == 0) {
                let subtrees = Subtrees { ranks, per_host };
                let mut largest: Vec<Subtree> = Vec::new();
                // Larger nodes come first.
                nodes(0, ranks, &mut |node| {
                    let is_new = largest.iter().all(|other| node.first >= other.end || node.end <= other.first);
                    if node.first / per_host == (node.end - 1) / per_host && is_new {
                        largest.push(node);
                    }
                });
                largest.sort_by_key(|node| node.first);
                let found: Vec<Subtree> = (0..ranks / per_host).flat_map(|host| subtrees.of_host(host)).collect();
                assert_eq!(found, largest, "{subtrees:?}");
                assert_eq!(subtrees.count(), largest.len());
                let of = |host| largest.iter().filter(|node| node.first / per_host == host).count();
                assert_eq!(subtrees.most(), (0..ranks / per_host).map(of).max().expect("hosts"));
                for (number, node) in largest.iter().enumerate() {
                    let host = node.first / per_host;
                    assert_eq!(subtrees.before(host) + subtrees.index(node.first), number);
                    assert_eq!(subtrees.count_of(host), of(host));
                }
            }
        }
    }

    #[test]
    fn ranks_that_are_a_power_of_two_are_one_subtree() {
        for (hosts, per_host) in [(2, 1), (3, 2), (2, 4), (5, 8)] {
            let subtrees = Subtrees { ranks: hosts * per_host, per_host };
            assert_eq!((subtrees.count(), subtrees.most(), subtrees.joins().count()), (hosts, 1, 0));
            let (number, block) = subtrees.blocks();
            assert!((0..number).map(block).eq((0..hosts).flat_map(|host| subtrees.of_host(host))));
        }
    }
}
