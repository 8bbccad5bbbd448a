//! Subtotals: the places of the terms of a sum along an axis, of the sum itself, and of the sums over subtrees of ranks
//! that hosts make for one another: the places that these leave from, and the places where they are added up.

use super::{Place, Places};
use crate::layout::Kind;
use crate::mesh::Axis;
use crate::subtrees::Subtree;

impl Places<'_> {
    /// This rank's term in the sum of the rank at `index` along an axis: its gradients, or the sum over its replica.
    pub const fn term(&self, axis: Axis, unit: usize, index: usize) -> Place {
        match axis {
            Axis::Zero => self.local_share(unit, index),
            Axis::Replica | Axis::Pipeline => self.part(self.partial(unit), index),
        }
    }

    /// The place of the sum of this rank's part along an axis: over its replica, or over all ranks.
    pub const fn sum(&self, axis: Axis, unit: usize) -> Place {
        match axis {
            Axis::Zero => self.partial(unit),
            Axis::Replica | Axis::Pipeline => self.part(self.reduced(unit), self.at.replica),
        }
    }

    /// This rank's sum over the subtree of this host's ranks that begins at `first`, for the part that its counterpart
    /// on host `host` along an axis sums. Buckets take turns with this place, as with [`Kind::Partial`].
    pub const fn subtotal(&self, axis: Axis, unit: usize, host: usize, first: usize) -> Place {
        let (config, placement) = (self.tables.config, self.placement(unit));
        let (parts, bucket) = (config.mesh.summed_parts(axis), &self.tables.buckets[placement.bucket]);
        let each = config.subtrees(axis).count_of(self.at.along(axis) / config.ranks_per_host(axis));
        // The sums that this host makes of one part: for each host, one for each of its subtrees.
        let sums = config.hosts_along(axis) * each;
        let turn = bucket.partial_slot() * (self.memory.bucket_slot / parts * sums);
        let start = turn + (placement.start - bucket.start) / parts * sums;
        let of_hosts = self.place(Kind::Subtotals, start, placement.padded / parts * sums);
        of_hosts.share(host * each + config.subtrees(axis).index(first), sums)
    }

    /// The place on this rank of the sum of its part that begins with the rank at `first` along an axis. At first the
    /// sum is only over the subtree of a host; others are added to it in the same place.
    pub const fn joined(&self, axis: Axis, unit: usize, first: usize) -> Place {
        let (config, per_host) = (self.tables.config, self.tables.config.ranks_per_host(axis));
        let (own, host, subtrees) = (self.at.along(axis) / per_host, first / per_host, config.subtrees(axis));
        if host == own {
            return self.subtotal(axis, unit, own, first);
        }
        self.arrived_terms(axis, unit).share(subtrees.before(host) + subtrees.index(first), subtrees.count())
    }

    /// The rank along an axis that has the sum of this rank's part over a subtree of ranks, and the place of the sum
    /// there. It is this rank's counterpart on their host, or this rank itself if they are on several hosts.
    pub const fn summed_over(&self, axis: Axis, unit: usize, subtree: Subtree) -> (usize, Place) {
        let (config, Subtree { first, end }) = (self.tables.config, subtree);
        let (per_host, own) = (config.ranks_per_host(axis), self.at.along(axis));
        if config.subtrees(axis).end(first) < end {
            return (own, self.joined(axis, unit, first));
        }
        let index = first / per_host * per_host + own % per_host;
        let counterpart = Places { at: self.at.with(axis, index), ..*self };
        (index, counterpart.subtotal(axis, unit, own / per_host, first))
    }
}
