//! Subtotals: where sums over subtrees of ranks lie that hosts make for one another along `zero`, before they leave and where they
//! come together.

use super::{Place, Places};
use crate::layout::Kind;
use crate::mesh::{Axis, Coordinates};
use crate::subtrees::Subtree;

impl Places<'_> {
    /// What the subtree of ranks of this host that begins at `first` has of the shard of this rank's counterpart on host `host`
    /// along `zero`, summed by this rank. Buckets take turns, as with [`Kind::Partial`].
    pub const fn subtotal(&self, unit: usize, host: usize, first: usize) -> Place {
        let (config, placement) = (self.tables.config, self.placement(unit));
        let (zero, bucket) = (config.mesh.zero, &self.tables.buckets[placement.bucket]);
        let each = config.subtrees().count_of(self.at.zero / config.mates(Axis::Zero));
        // Of every shard, as many as there are hosts, this host has that many sums.
        let sums = config.hosts_along_zero() * each;
        let turn = (bucket.partial > 0) as usize * (self.memory.bucket_slot / zero * sums);
        let start = turn + (placement.start - bucket.start) / zero * sums;
        let of_hosts = self.place(Kind::Subtotals, start, placement.padded / zero * sums);
        of_hosts.share(host * each + config.subtrees().index(first), sums)
    }

    /// Where the sum lies here of this rank's shard that begins with the rank at `first` along `zero`: of the subtree of a host,
    /// and then of what is added to it.
    pub const fn joined(&self, unit: usize, first: usize) -> Place {
        let config = self.tables.config;
        let (own, host, subtrees) =
            (self.at.zero / config.mates(Axis::Zero), first / config.mates(Axis::Zero), config.subtrees());
        if host == own {
            return self.subtotal(unit, own, first);
        }
        self.arrived_terms(unit).share(subtrees.before(host) + subtrees.index(first), subtrees.count())
    }

    /// Which rank along `zero` has the sum of this rank's shard over a subtree of ranks, and where: this rank's counterpart on
    /// their host, or this rank itself where they are on several hosts.
    pub const fn summed_over(&self, unit: usize, subtree: Subtree) -> (usize, Place) {
        let (config, Subtree { first, end }) = (self.tables.config, subtree);
        if config.subtrees().end(first) < end {
            return (self.at.zero, self.joined(unit, first));
        }
        let (mates, own) = (config.mates(Axis::Zero), self.at.zero);
        let zero = first / mates * mates + own % mates;
        let counterpart = Places { at: Coordinates { zero, ..self.at }, ..*self };
        (zero, counterpart.subtotal(unit, own / mates, first))
    }
}
