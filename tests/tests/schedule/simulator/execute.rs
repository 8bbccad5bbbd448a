//! Execute: what each op does to the memory of its rank. Never waits.

use zero_plan::{Gather, Op};

use super::{Done, Gathering, Mark, Term, World, require};

impl World<'_> {
    pub(super) fn execute(&mut self, rank: usize, op: Op) -> Done {
        match op {
            Op::Gather { unit, slot } => self.gather(rank, unit, slot),
            Op::Wait { unit } => self.wait(rank, unit)?,
            Op::Release { unit } => {
                self.ranks[rank].gathers[unit] = Gathering::Idle;
                self.clear_slot(rank, unit);
            }
            Op::Forward { unit, micro_batch } => self.forward(rank, unit, micro_batch)?,
            Op::Backward { unit, micro_batch } => self.backward(rank, unit, micro_batch)?,
            Op::Claim { .. } => {}
            Op::Reduce { bucket, .. } => {
                self.ranks[rank].offered += 1;
                self.ranks[rank].offers[bucket] = self.ranks[rank].offered;
            }
            Op::Settle { bucket, micro_batch } => self.settle(rank, bucket, micro_batch)?,
            Op::Spread { bucket } => self.spread(rank, bucket)?,
            Op::Agree if !self.ranks[rank].entered_now => {
                self.ranks[rank].entered_now = true;
                self.ranks[rank].entered += 1;
                return Ok(());
            }
            Op::Agree => self.agree(rank)?,
            Op::Update { unit } => self.update(rank, unit)?,
        }
        self.ranks[rank].next += 1;
        Ok(())
    }

    fn copies_into_slots(&self) -> bool {
        self.plan.config.shards_parameters() && self.plan.config.transport.gather() == Gather::Copied
    }

    pub(super) fn shard(&self, unit: usize) -> usize {
        self.plan.placements[unit].padded / self.plan.config.ranks
    }

    /// A gather may write to its slot from its start on.
    fn gather(&mut self, rank: usize, unit: usize, slot: usize) {
        self.ranks[rank].gathers[unit] = Gathering::Started;
        self.ranks[rank].slots[unit] = slot;
        self.clear_slot(rank, unit);
    }

    fn clear_slot(&mut self, rank: usize, unit: usize) {
        let start = self.ranks[rank].slots[unit] * self.plan.memory.slot;
        self.ranks[rank].gathered.clear(start, self.plan.placements[unit].padded);
    }

    fn wait(&mut self, rank: usize, unit: usize) -> Done {
        let len = self.shard(unit);
        let gather = core::mem::replace(&mut self.ranks[rank].gathers[unit], Gathering::Whole);
        require(gather == Gathering::Started, || format!("there is no gather to wait for, but {gather:?}"))?;
        for owner in 0..self.ranks.len() {
            let version = self.ranks[owner].parameters[unit][owner];
            let own = &mut self.ranks[rank];
            if self.plan.config.shards_parameters() {
                if self.plan.config.transport.gather() == Gather::Copied {
                    let start = own.slots[unit] * self.plan.memory.slot + owner * len;
                    own.gathered.write(start, len, (unit, version))?;
                }
            } else {
                own.parameters[unit][owner] = version;
            }
        }
        Ok(())
    }

    /// That `rank` sees the newest version of a unit's parameters, all of them.
    fn require_parameters(&self, rank: usize, unit: usize) -> Done {
        let (own, len) = (&self.ranks[rank], self.shard(unit));
        if len == 0 {
            return Ok(());
        }
        let whole = own.gathers[unit] == Gathering::Whole || !self.plan.config.shards_parameters();
        require(whole, || format!("{unit} is not gathered, but {:?}", own.gathers[unit]))?;
        for owner in 0..self.ranks.len() {
            let version = if self.copies_into_slots() {
                *own.gathered.read(own.slots[unit] * self.plan.memory.slot + owner * len, len)?
            } else if self.plan.config.shards_parameters() {
                (unit, self.ranks[owner].parameters[unit][owner])
            } else {
                (unit, own.parameters[unit][owner])
            };
            require(version == (unit, self.updates), || format!("shard {owner} of {unit} is {version:?}"))?;
        }
        Ok(())
    }

    fn require_input(&self, rank: usize, mark: Mark) -> Done {
        let input = match mark.unit {
            0 => self.ranks[rank].batch,
            unit => {
                let (at, len) = (self.plan.placements[unit - 1].output, self.plan.units[unit - 1].output);
                Some(*self.ranks[rank].activations.read(at, len)?)
            }
        };
        let expected = Mark { unit: mark.unit.saturating_sub(1), ..mark };
        require(input == Some(expected), || format!("the input is {input:?}"))
    }

    fn forward(&mut self, rank: usize, unit: usize, micro_batch: usize) -> Done {
        let mark = Mark { pass: self.pass, micro_batch, unit };
        let (sizes, at) = (&self.plan.units[unit], &self.plan.placements[unit]);
        if unit == 0 {
            self.ranks[rank].batch = Some(mark);
        }
        self.require_parameters(rank, sizes.source)?;
        self.require_input(rank, mark)?;
        let own = &mut self.ranks[rank];
        own.activations.write(at.saved, sizes.saved, mark)?;
        own.activations.write(at.output, sizes.output, mark)?;
        if unit + 1 == self.plan.units.len() {
            own.losses.push(mark);
        }
        Ok(())
    }

    fn backward(&mut self, rank: usize, unit: usize, micro_batch: usize) -> Done {
        let mark = Mark { pass: self.pass, micro_batch, unit };
        let (sizes, at) = (&self.plan.units[unit], &self.plan.placements[unit]);
        self.require_parameters(rank, sizes.source)?;
        self.require_input(rank, mark)?;
        let own = &mut self.ranks[rank];
        if sizes.saved > 0 {
            let saved = own.activations.read(at.saved, sizes.saved)?;
            require(*saved == mark, || format!("saved by {saved:?}"))?;
        }
        if unit + 1 < self.plan.units.len() {
            let dy = own.activation_gradients[unit % 2];
            require(dy == Some(Mark { unit: unit + 1, ..mark }), || format!("the gradient of its output is {dy:?}"))?;
        }
        own.activation_gradients[(unit + 1) % 2] = Some(mark);
        self.add_gradients(rank, mark)
    }

    /// Of the units that share parameters, the first in backward sets the gradients and the others add to them.
    fn add_gradients(&mut self, rank: usize, mark: Mark) -> Done {
        let source = self.plan.units[mark.unit].source;
        let first = self.plan.units.iter().rposition(|unit| unit.source == source);
        for shard in 0..self.ranks.len() {
            let (at, len) = self.local_gradients(source, shard);
            let gradients = &mut self.ranks[rank].gradients;
            if len > 0 {
                let mut sum = if first == Some(mark.unit) { Vec::new() } else { gradients.read(at, len)?.clone() };
                sum.push((rank, mark));
                gradients.write(at, len, sum)?;
            }
        }
        Ok(())
    }

    /// Where the gradients of a shard of a unit lie before they are reduced, and how many there are.
    fn local_gradients(&self, unit: usize, shard: usize) -> (usize, usize) {
        let (at, len) = (&self.plan.placements[unit], self.shard(unit));
        let bucket = &self.plan.buckets[at.bucket];
        (bucket.staging + at.start - bucket.start + shard * len, len)
    }

    /// What `rank` has of the reduced gradients of a unit: its own shard.
    fn reduced(&self, rank: usize, unit: usize) -> Result<&Vec<Term>, String> {
        if self.plan.config.reduces_in_place() {
            let (at, len) = self.local_gradients(unit, rank);
            self.ranks[rank].gradients.read(at, len)
        } else {
            self.ranks[rank].reduced.read(self.plan.placements[unit].start / self.ranks.len(), self.shard(unit))
        }
    }

    /// The owners of parameters whose gradients are in a bucket.
    fn owners(&self, bucket: usize) -> Vec<usize> {
        let bucket = &self.plan.buckets[bucket];
        (bucket.first..=bucket.last).filter(|&unit| self.shard(unit) > 0).collect()
    }

    fn settle(&mut self, rank: usize, bucket: usize, micro_batch: usize) -> Done {
        for unit in self.owners(bucket) {
            let (at, len) = self.local_gradients(unit, rank);
            let mut sum = if micro_batch == 0 { Vec::new() } else { self.reduced(rank, unit)?.clone() };
            for peer in &self.ranks {
                sum.extend(peer.gradients.read(at, len)?);
            }
            let own = &mut self.ranks[rank];
            if self.plan.config.reduces_in_place() {
                own.gradients.write(at, len, sum)?;
            } else {
                own.reduced.write(self.plan.placements[unit].start / self.plan.config.ranks, len, sum)?;
            }
        }
        self.ranks[rank].settled += 1;
        Ok(())
    }

    fn spread(&mut self, rank: usize, bucket: usize) -> Done {
        for unit in self.owners(bucket) {
            for owner in 0..self.ranks.len() {
                let sum = self.reduced(owner, unit)?.clone();
                let (at, len) = self.local_gradients(unit, owner);
                self.ranks[rank].gradients.write(at, len, sum)?;
            }
        }
        Ok(())
    }

    /// That `sum` has the gradient of every unit that uses the parameters of `owner`, once for each rank and micro-batch.
    fn require_sum(&self, owner: usize, sum: &[Term]) -> Done {
        let micro_batches = self.plan.config.micro_batches;
        let mut expected = Vec::new();
        for unit in (0..self.plan.units.len()).filter(|&unit| self.plan.units[unit].source == owner) {
            for micro_batch in 0..micro_batches {
                expected.extend((0..self.ranks.len()).map(|rank| (rank, Mark { pass: self.pass, micro_batch, unit })));
            }
        }
        let mut sum = sum.to_vec();
        sum.sort();
        expected.sort();
        require(sum == expected, || format!("the gradients of {owner} are summed from {sum:?}"))
    }

    /// Reads the losses and the sum of squares of the gradients.
    fn agree(&mut self, rank: usize) -> Done {
        for unit in (0..self.plan.units.len()).filter(|&unit| self.shard(unit) > 0) {
            self.require_sum(unit, self.reduced(rank, unit)?)?;
        }
        let own = &mut self.ranks[rank];
        own.entered_now = false;
        own.agreed = Some(self.pass);
        let losses = own.losses.iter().filter(|loss| loss.pass == self.pass).count();
        require(losses == self.plan.config.micro_batches, || format!("{losses} losses"))
    }

    fn update(&mut self, rank: usize, unit: usize) -> Done {
        require(self.ranks[rank].agreed == Some(self.pass), || "the norm is not agreed on".to_owned())?;
        let own_shard = self.plan.config.shards_optimizer();
        for shard in (0..self.ranks.len()).filter(|&shard| !own_shard || shard == rank) {
            if own_shard {
                self.require_sum(unit, self.reduced(rank, unit)?)?;
            } else {
                let (at, len) = self.local_gradients(unit, shard);
                self.require_sum(unit, self.ranks[rank].gradients.read(at, len)?)?;
            }
            self.ranks[rank].parameters[unit][shard] += 1;
        }
        let own = &mut self.ranks[rank];
        if own_shard {
            own.published += 1;
            own.versions[unit] = own.published;
        }
        Ok(())
    }
}
