//! Parameters: they are gathered, converted, released, updated and mirrored. Never waits.

use zero_plan::{Kind, Op, Parcel};

use super::{Done, Gathering, Shard, World, require, room};

impl World<'_> {
    /// The place of a unit among gathered parameters: in its slot, or in its own place if all are held for a step.
    fn slot_start(&self, rank: usize, unit: usize) -> usize {
        if self.plan.config.holds_parameters() {
            self.plan.placements[unit].start
        } else {
            self.ranks[rank].slots[unit] * self.plan.of_rank(rank).memory.gathered_slot
        }
    }

    fn shard(&self, unit: usize) -> usize {
        self.plan.placements[unit].shard(&self.plan.config)
    }

    /// From its start on, a gather may write to its slot.
    pub(super) fn gather(&mut self, rank: usize, unit: usize, slot: usize) -> Done {
        self.ranks[rank].gathers[unit] = Gathering::Started;
        self.ranks[rank].slots[unit] = slot;
        if self.plan.config.shards_parameters() { self.clear_slot(rank, unit) } else { Ok(()) }
    }

    fn clear_slot(&mut self, rank: usize, unit: usize) -> Done {
        if self.plan.config.uses_slots() {
            let start = self.slot_start(rank, unit);
            let elements = room(self.plan, rank, Kind::Gathered);
            let end = start + self.plan.placements[unit].padded;
            require(end <= elements, || format!("a slot that ends at {end} of {elements}"))?;
            self.ranks[rank].gathered.clear(start, end - start);
        }
        Ok(())
    }

    pub(super) fn wait(&mut self, rank: usize, unit: usize) -> Done {
        let gather = core::mem::replace(&mut self.ranks[rank].gathers[unit], Gathering::Whole);
        require(gather == Gathering::Started, || format!("there is no gather to wait for, but {gather:?}"))?;
        for (zero, owner) in self.zero_peers(rank).into_iter().enumerate() {
            let updates = self.ranks[owner].parameters[unit][zero];
            if !self.plan.config.shards_parameters() {
                self.ranks[rank].parameters[unit][zero] = updates;
            } else if self.plan.config.uses_slots() {
                self.fill_slot(rank, Shard { unit, zero, updates })?;
            }
        }
        Ok(())
    }

    pub(super) fn convert(&mut self, rank: usize, unit: usize, slot: usize) -> Done {
        self.ranks[rank].gathers[unit] = Gathering::Whole;
        self.ranks[rank].slots[unit] = slot;
        self.clear_slot(rank, unit)?;
        for zero in 0..self.plan.config.mesh.zero {
            let updates = self.ranks[rank].parameters[unit][zero];
            self.fill_slot(rank, Shard { unit, zero, updates })?;
        }
        Ok(())
    }

    fn fill_slot(&mut self, rank: usize, shard: Shard) -> Done {
        let len = self.shard(shard.unit);
        let start = self.slot_start(rank, shard.unit) + shard.zero * len;
        self.ranks[rank].gathered.write(start, len, shard)
    }

    pub(super) fn release(&mut self, rank: usize, unit: usize) -> Done {
        self.ranks[rank].gathers[unit] = Gathering::Idle;
        self.clear_slot(rank, unit)
    }

    /// Requires that `rank` sees the newest version of all parameters that a unit takes.
    pub(super) fn require_parameters(&self, rank: usize, unit: usize) -> Done {
        let config = &self.plan.config;
        let holder = if self.plan.placements[unit].holds { unit } else { self.plan.units[unit].source };
        let (own, len) = (&self.ranks[rank], self.shard(holder));
        if len == 0 {
            return Ok(());
        }
        let is_whole = own.gathers[holder] == Gathering::Whole || !(config.shards_parameters() || config.uses_slots());
        require(is_whole, || format!("{holder} is not there to compute on, but {:?}", own.gathers[holder]))?;
        for (zero, owner) in self.zero_peers(rank).into_iter().enumerate() {
            let version =
                |rank: usize| Shard { unit: holder, zero, updates: self.ranks[rank].parameters[holder][zero] };
            let seen = if config.uses_slots() {
                *own.gathered.read(self.slot_start(rank, holder) + zero * len, len)?
            } else {
                version(if config.shards_parameters() { owner } else { rank })
            };
            let wanted = Shard { unit: holder, zero, updates: self.updates };
            require(seen == wanted, || format!("{seen:?} in place of {wanted:?}"))?;
        }
        Ok(())
    }

    pub(super) fn update(&mut self, rank: usize, unit: usize) -> Done {
        require(self.ranks[rank].agreed == Some(self.pass), || "the norm is not agreed on".to_owned())?;
        if self.plan.tables().is_orthogonalized(unit) {
            self.require_directions(rank, unit)?;
        } else {
            self.require_sums(rank, unit)?;
        }
        let own = &mut self.ranks[rank];
        for (zero, updates) in own.parameters[unit].iter_mut().enumerate() {
            let is_own = !self.plan.config.shards_optimizer() || zero == own.at.zero;
            *updates += usize::from(is_own);
        }
        Ok(())
    }

    /// Takes the updated parameters of the owner of a tie, in place of this rank's own.
    pub(super) fn receive_tied_parameters(&mut self, rank: usize, unit: usize) -> Done {
        let owner = self.other_end(rank, Parcel::TiedParameters, unit, false);
        let source = self.plan.units[unit].source;
        for zero in 0..self.plan.config.mesh.zero {
            if !self.plan.config.shards_optimizer() || zero == self.ranks[rank].at.zero {
                self.ranks[rank].parameters[unit][zero] = self.ranks[owner].parameters[source][zero];
            }
        }
        self.take(rank, Parcel::TiedParameters);
        Ok(())
    }

    pub(super) fn take(&mut self, rank: usize, parcel: Parcel) {
        self.ranks[rank].counts.taken[parcel as usize] += 1;
    }

    /// Makes a parcel known to its receiver; the bytes stay in their place.
    pub(super) fn send(&mut self, rank: usize, parcel: Parcel, unit: usize, micro_batch: usize) -> Done {
        let sent = &mut self.ranks[rank].counts.sent[parcel as usize];
        *sent += 1;
        let nth = *sent - 1;
        match parcel {
            Parcel::Activations | Parcel::Gradients => self.read_outgoing(rank, parcel, nth, unit).and_then(|mark| {
                let is_it = mark.micro_batch == micro_batch;
                require(is_it, || format!("{mark:?} lies where {:?} leaves", Op::Send { parcel, unit, micro_batch }))
            }),
            Parcel::TiedGradients | Parcel::TiedParameters => Ok(()),
        }
    }
}
