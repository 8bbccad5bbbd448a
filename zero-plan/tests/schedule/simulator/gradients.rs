//! Gradients: the terms of sums, and their order. Never waits.

use zero_plan::{Axis, Parcel};

use super::trees::{Leaf, Tree};
use super::{Done, World, require};

impl World<'_> {
    fn replicas(&self) -> usize {
        self.plan.config.mesh.replica
    }

    /// The units in a bucket that have gradients.
    fn members(&self, bucket: usize) -> Vec<usize> {
        let bucket = &self.plan.buckets[bucket];
        (bucket.first..=bucket.last).filter(|&unit| self.plan.placements[unit].padded > 0).collect()
    }

    fn part_len(&self, unit: usize) -> usize {
        self.plan.placements[unit].part(&self.plan.config)
    }

    /// The place of a part of a unit's own gradients.
    fn local(&self, unit: usize, part: usize) -> usize {
        let at = &self.plan.placements[unit];
        let bucket = &self.plan.buckets[at.bucket];
        bucket.staging + at.start - bucket.start + part * self.part_len(unit)
    }

    /// The place of a part of a rank's own shard, summed over one replica; `replica` counts the parts.
    fn partial(&self, unit: usize, replica: usize) -> usize {
        let at = &self.plan.placements[unit];
        let bucket = &self.plan.buckets[at.bucket];
        bucket.partial + (at.start - bucket.start) / self.plan.config.mesh.zero + replica * self.part_len(unit)
    }

    fn read_sum(&self, rank: usize, unit: usize, replica: usize) -> Result<Tree, String> {
        let (own, len) = (&self.ranks[rank], self.part_len(unit));
        if self.plan.config.reduces_in_place() {
            own.gradients.read(self.local(unit, own.at.zero * self.replicas() + replica), len).copied()
        } else {
            own.reduced.read(self.reduced_start(unit, replica), len).copied()
        }
    }

    fn write_sum(&mut self, rank: usize, unit: usize, replica: usize, sum: Tree) -> Done {
        let (zero, len) = (self.ranks[rank].at.zero, self.part_len(unit));
        if self.plan.config.reduces_in_place() {
            let start = self.local(unit, zero * self.replicas() + replica);
            self.ranks[rank].gradients.write(start, len, sum)
        } else {
            let start = self.reduced_start(unit, replica);
            self.ranks[rank].reduced.write(start, len, sum)
        }
    }

    fn reduced_start(&self, unit: usize, replica: usize) -> usize {
        self.plan.placements[unit].start / self.plan.config.mesh.zero + replica * self.part_len(unit)
    }

    /// Sets a part of a sum in the first round, and adds to it in later ones.
    fn add_round(&mut self, rank: usize, unit: usize, replica: usize, (round, term): (usize, Tree)) -> Done {
        let sum = match round {
            0 => term,
            _ => {
                let sum = self.read_sum(rank, unit, replica)?;
                self.trees.sum(sum, term)
            }
        };
        self.write_sum(rank, unit, replica, sum)
    }

    /// Writes the gradients of a unit. If they are held for a step, later micro-batches add to them.
    pub(super) fn add_gradients(&mut self, rank: usize, unit: usize, micro_batch: usize) -> Done {
        let (len, data_rank, pass) = (self.part_len(unit), self.ranks[rank].data_rank, self.pass);
        if len == 0 {
            return Ok(());
        }
        for part in 0..self.plan.config.mesh.data_ranks() {
            let leaf = self.trees.leaf(Leaf { pass, unit, micro_batch, data_rank, part });
            let start = self.local(unit, part);
            let gradients = &mut self.ranks[rank].gradients;
            let sum = if self.plan.config.holds_gradients() && micro_batch > 0 {
                self.trees.sum(*gradients.read(start, len)?, leaf)
            } else {
                leaf
            };
            gradients.write(start, len, sum)?;
        }
        Ok(())
    }

    pub(super) fn settle(&mut self, rank: usize, bucket: usize, round: usize) -> Done {
        let zero = self.ranks[rank].at.zero;
        for unit in self.members(bucket) {
            for replica in 0..self.replicas() {
                let (start, len) = (self.local(unit, zero * self.replicas() + replica), self.part_len(unit));
                let peers = self.zero_peers(rank).into_iter();
                let terms: Vec<Tree> =
                    peers.map(|peer| self.ranks[peer].gradients.read(start, len).copied()).collect::<Result<_, _>>()?;
                let sum = self.trees.balanced(&terms);
                if self.replicas() == 1 {
                    self.add_round(rank, unit, replica, (round, sum))?;
                } else if self.plan.config.reduces_in_place() {
                    self.write_sum(rank, unit, replica, sum)?;
                } else {
                    let start = self.partial(unit, replica);
                    self.ranks[rank].partial.write(start, len, sum)?;
                }
            }
        }
        self.count_settle(rank, bucket);
        Ok(())
    }

    pub(super) fn combine(&mut self, rank: usize, bucket: usize, round: usize) -> Done {
        let replica = self.ranks[rank].at.replica;
        for unit in self.members(bucket) {
            let mut terms = Vec::new();
            for peer in self.replica_peers(rank) {
                terms.push(if self.plan.config.reduces_in_place() {
                    self.read_sum(peer, unit, replica)?
                } else {
                    *self.ranks[peer].partial.read(self.partial(unit, replica), self.part_len(unit))?
                });
            }
            let sum = self.trees.balanced(&terms);
            self.add_round(rank, unit, replica, (round, sum))?;
        }
        self.count_combine(rank);
        Ok(())
    }

    /// Adds the sum of a tied unit's gradients on rank `from` to its owner's.
    fn join(&mut self, rank: usize, from: usize, tied: usize) -> Done {
        let (owner, replica) = (self.plan.units[tied].source, self.ranks[rank].at.replica);
        let term = self.read_sum(from, tied, replica)?;
        self.add_round(rank, owner, replica, (1, term))
    }

    pub(super) fn fold(&mut self, rank: usize, unit: usize) -> Done {
        self.join(rank, rank, unit)
    }

    pub(super) fn receive_tied_gradients(&mut self, rank: usize, _owner: usize) -> Done {
        let tied = self.plan.units.len() - 1;
        let sender = self.other_end(rank, Parcel::TiedGradients, tied, false);
        self.join(rank, sender, tied)?;
        self.take(rank, Parcel::TiedGradients);
        Ok(())
    }

    pub(super) fn spread(&mut self, rank: usize, bucket: usize, axis: Axis) -> Done {
        let spreads_directions = axis == Axis::Zero && self.plan.config.stage > 0;
        for unit in self.members(bucket) {
            if spreads_directions && !self.plan.tables().is_orthogonalized(unit) {
                continue;
            }
            if axis == Axis::Replica {
                for (replica, peer) in self.replica_peers(rank).into_iter().enumerate() {
                    let sum = self.read_sum(peer, unit, replica)?;
                    self.write_sum(rank, unit, replica, sum)?;
                }
                continue;
            }
            for (zero, peer) in self.zero_peers(rank).into_iter().enumerate() {
                for replica in 0..self.replicas() {
                    let sum = self.read_sum(peer, unit, replica)?;
                    let start = self.local(unit, zero * self.replicas() + replica);
                    let len = self.part_len(unit);
                    self.ranks[rank].gradients.write(start, len, sum)?;
                }
            }
        }
        Ok(())
    }

    /// The sum that the plan promises for a part of an owner's gradients: in each round a tree over replicas of trees
    /// over `zero`, rounds one after another, and the gradients of the tied unit at the end.
    fn expected(&mut self, owner: usize, part: usize) -> Tree {
        let own = self.expected_of(owner, part);
        let tied = self.plan.units.len() - 1;
        if tied != owner && self.plan.units[tied].source == owner {
            let tied = self.expected_of(tied, part);
            return self.trees.sum(own, tied);
        }
        own
    }

    fn expected_of(&mut self, unit: usize, part: usize) -> Tree {
        let config = &self.plan.config;
        let all: Vec<usize> = (0..config.micro_batches).collect();
        let of_round: Vec<&[usize]> = all.chunks(all.len() / config.reductions()).collect();
        let mut rounds = Vec::new();
        for micro_batches in of_round {
            let mut replicas = Vec::new();
            for replica in 0..config.mesh.replica {
                let mut ranks = Vec::new();
                for zero in 0..config.mesh.zero {
                    let data_rank = replica * config.mesh.zero + zero;
                    let leaf = |&micro_batch| Leaf { pass: self.pass, unit, micro_batch, data_rank, part };
                    let terms: Vec<Tree> = micro_batches.iter().map(leaf).map(|leaf| self.trees.leaf(leaf)).collect();
                    ranks.push(self.trees.in_order(&terms));
                }
                replicas.push(self.trees.balanced(&ranks));
            }
            rounds.push(self.trees.balanced(&replicas));
        }
        self.trees.in_order(&rounds)
    }

    /// The numbers by which a rank updates a part of a unit; before the agreement, its sum of that part.
    fn updates_by(&self, rank: usize, unit: usize, part: usize) -> Option<Result<Tree, String>> {
        let (zero, replica) = (part / self.replicas(), part % self.replicas());
        if !self.plan.config.shards_optimizer() && self.ranks[rank].agreed == Some(self.pass) {
            return Some(self.read_local(rank, unit, part));
        }
        (zero == self.ranks[rank].at.zero).then(|| self.read_sum(rank, unit, replica))
    }

    fn read_local(&self, rank: usize, unit: usize, part: usize) -> Result<Tree, String> {
        self.ranks[rank].gradients.read(self.local(unit, part), self.part_len(unit)).copied()
    }

    fn require_tree(&self, unit: usize, part: usize, found: Tree, expected: Tree) -> Done {
        let show = |tree| self.trees.show(tree);
        require(found == expected, || format!("{unit}[{part}] is {}, not {}", show(found), show(expected)))
    }

    /// Requires that a rank has the sums by which it updates a unit.
    pub(super) fn require_sums(&mut self, rank: usize, unit: usize) -> Done {
        for part in 0..self.plan.config.mesh.data_ranks() {
            let Some(sum) = self.updates_by(rank, unit, part) else { continue };
            let expected = self.expected(unit, part);
            self.require_tree(unit, part, sum?, expected)?;
        }
        Ok(())
    }

    /// Puts directions in the place of the sums from which they are made.
    pub(super) fn momentum(&mut self, rank: usize, unit: usize) -> Done {
        require(self.ranks[rank].agreed == Some(self.pass), || "the norm is not agreed on".to_owned())?;
        self.require_sums(rank, unit)?;
        for part in 0..self.plan.config.mesh.data_ranks() {
            let Some(sum) = self.updates_by(rank, unit, part) else { continue };
            let direction = self.trees.direction(sum?);
            if self.plan.config.shards_optimizer() {
                self.write_sum(rank, unit, part % self.replicas(), direction)?;
            } else {
                let (start, len) = (self.local(unit, part), self.part_len(unit));
                self.ranks[rank].gradients.write(start, len, direction)?;
            }
        }
        Ok(())
    }

    /// Requires that a rank has the directions of a unit: its own where it makes them, all where it reads them whole.
    pub(super) fn require_directions(&mut self, rank: usize, unit: usize) -> Done {
        for part in 0..self.plan.config.mesh.data_ranks() {
            let sum = self.expected(unit, part);
            let expected = self.trees.direction(sum);
            let own = self.updates_by(rank, unit, part);
            for found in own.into_iter().chain([self.read_local(rank, unit, part)]) {
                self.require_tree(unit, part, found?, expected)?;
            }
        }
        Ok(())
    }

    /// Reads the losses and the sum of squares of the gradients.
    pub(super) fn agree(&mut self, rank: usize) -> Done {
        let pipeline = self.ranks[rank].at.pipeline;
        let owns =
            |&unit: &usize| self.plan.units[unit].params > 0 && self.plan.placements[unit].pipeline_stage == pipeline;
        let owned: Vec<usize> = (0..self.plan.units.len()).filter(owns).collect();
        for unit in owned {
            self.require_sums(rank, unit)?;
        }
        let own = &mut self.ranks[rank];
        own.agreed = Some(self.pass);
        let losses = own.losses.iter().filter(|loss| loss.pass == self.pass).count();
        let has_head = self.plan.placements[self.plan.units.len() - 1].pipeline_stage == pipeline;
        let expected = if has_head { self.plan.config.micro_batches } else { 0 };
        require(losses == expected, || format!("{losses} losses, not {expected}"))
    }
}
