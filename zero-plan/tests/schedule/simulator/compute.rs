//! Compute: the reads and writes of units, and the parcels between pipeline stages. Never waits.

use zero_plan::lines::{LINE_BYTES, round_up};
use zero_plan::{OUTGOING_SLOTS, Parcel};

use super::{Done, Mark, What, World, require};

impl World<'_> {
    fn mark(&self, rank: usize, what: What, unit: usize, micro_batch: usize) -> Mark {
        Mark { what, pass: self.pass, data_rank: self.ranks[rank].data_rank, micro_batch, unit }
    }

    fn is_chunk_first(&self, unit: usize) -> bool {
        self.plan.chunks.iter().any(|chunk| chunk.first == unit)
    }

    fn is_last(&self, unit: usize) -> bool {
        unit + 1 == self.plan.units.len()
    }

    fn recomputes(&self, unit: usize) -> bool {
        self.plan.config.recomputes(self.plan.units, unit)
    }

    /// Start of a slot for activations.
    fn slot(&self, rank: usize, slot: usize) -> usize {
        slot * self.plan.of_rank(rank).memory.activation_slot_bytes
    }

    /// Start of the input of a unit.
    fn input(&self, rank: usize, unit: usize, slot: usize) -> usize {
        let within = if self.is_chunk_first(unit) { 0 } else { self.plan.placements[unit - 1].output_bytes };
        self.slot(rank, slot) + within
    }

    /// Start of the targets, after the input of the last chunk.
    fn targets(&self, rank: usize, slot: usize) -> usize {
        let chunk = self.plan.chunks[self.plan.chunks.len() - 1];
        self.slot(rank, slot) + round_up(self.plan.units[chunk.first].input_bytes, LINE_BYTES)
    }

    fn target_bytes(&self) -> usize {
        self.plan.units[self.plan.units.len() - 1].targets_bytes
    }

    /// The place of a parcel until it is taken, and its length.
    fn outgoing(&self, rank: usize, parcel: Parcel, nth: usize, unit: usize) -> (usize, usize) {
        let memory = &self.plan.of_rank(rank).memory;
        let slot = nth % OUTGOING_SLOTS;
        match parcel {
            Parcel::Activations => (slot * memory.outgoing_slot_bytes, self.plan.units[unit].output_bytes),
            _ => {
                let start = OUTGOING_SLOTS * memory.outgoing_slot_bytes + slot * memory.returning_slot_bytes;
                (start, self.plan.units[unit].input_bytes)
            }
        }
    }

    pub(super) fn read_outgoing(&self, rank: usize, parcel: Parcel, nth: usize, unit: usize) -> Result<Mark, String> {
        let (start, len) = self.outgoing(rank, parcel, nth, unit);
        self.ranks[rank].outgoing.read(start, len).copied()
    }

    fn write_outgoing(&mut self, rank: usize, parcel: Parcel, unit: usize, mark: Mark) -> Done {
        let nth = self.ranks[rank].counts.sent[parcel as usize];
        let (start, len) = self.outgoing(rank, parcel, nth, unit);
        self.ranks[rank].outgoing.write(start, len, mark)
    }

    /// Takes the next parcel, which `unit` has made.
    fn receive(&mut self, rank: usize, parcel: Parcel, unit: usize, sender: usize) -> Result<Mark, String> {
        let nth = self.ranks[rank].counts.taken[parcel as usize];
        let mark = self.read_outgoing(sender, parcel, nth, unit)?;
        self.take(rank, parcel);
        Ok(mark)
    }

    pub(super) fn receive_activations(&mut self, rank: usize, unit: usize, micro_batch: usize, slot: usize) -> Done {
        let sender = self.other_end(rank, Parcel::Activations, unit, false);
        let mark = self.receive(rank, Parcel::Activations, unit - 1, sender)?;
        let expected = self.mark(rank, What::Output, unit - 1, micro_batch);
        require(mark == expected, || format!("{mark:?} arrives in place of {expected:?}"))?;
        let start = self.slot(rank, slot);
        self.ranks[rank].activations.write(start, self.plan.units[unit].input_bytes, mark)
    }

    pub(super) fn receive_gradient(&mut self, rank: usize, unit: usize, micro_batch: usize) -> Done {
        let sender = self.other_end(rank, Parcel::Gradients, unit, false);
        let mark = self.receive(rank, Parcel::Gradients, unit + 1, sender)?;
        let expected = self.mark(rank, What::Gradient, unit, micro_batch);
        require(mark == expected, || format!("{mark:?} arrives in place of {expected:?}"))?;
        self.ranks[rank].activation_gradients[unit % 2] = Some(mark);
        Ok(())
    }

    /// Requires that a unit reads its own input, and the targets if it ends the model.
    fn require_input(&self, rank: usize, unit: usize, micro_batch: usize, slot: usize) -> Done {
        let expected = match unit {
            0 => self.mark(rank, What::Tokens, 0, micro_batch),
            _ => self.mark(rank, What::Output, unit - 1, micro_batch),
        };
        let activations = &self.ranks[rank].activations;
        let input = activations.read(self.input(rank, unit, slot), self.plan.units[unit].input_bytes)?;
        require(*input == expected, || format!("the input is {input:?}"))?;
        if self.is_last(unit) {
            let targets = activations.read(self.targets(rank, slot), self.target_bytes())?;
            let expected = self.mark(rank, What::Targets, unit, micro_batch);
            require(*targets == expected, || format!("the targets are {targets:?}"))?;
        }
        Ok(())
    }

    /// Loads the inputs or targets of the model at the beginning of a chunk that needs them.
    fn load(&mut self, rank: usize, unit: usize, micro_batch: usize, slot: usize) -> Done {
        if unit == 0 {
            let (start, tokens) = (self.slot(rank, slot), self.mark(rank, What::Tokens, 0, micro_batch));
            self.ranks[rank].activations.write(start, self.plan.units[0].input_bytes, tokens)?;
        }
        let last_chunk = self.plan.chunks[self.plan.chunks.len() - 1];
        if unit == last_chunk.first {
            let targets = self.mark(rank, What::Targets, last_chunk.end - 1, micro_batch);
            let (start, bytes) = (self.targets(rank, slot), self.target_bytes());
            self.ranks[rank].activations.write(start, bytes, targets)?;
        }
        Ok(())
    }

    pub(super) fn forward(&mut self, rank: usize, unit: usize, micro_batch: usize, slot: usize) -> Done {
        self.load(rank, unit, micro_batch, slot)?;
        self.require_parameters(rank, unit)?;
        self.require_input(rank, unit, micro_batch, slot)?;
        // The values that a second forward is to save are saved by the first forward in a shared place.
        let saved = if self.recomputes(unit) { What::Scratch } else { What::Saved };
        self.save(rank, self.mark(rank, saved, unit, micro_batch), slot)?;
        let (sizes, at) = (&self.plan.units[unit], &self.plan.placements[unit]);
        let output = self.mark(rank, What::Output, unit, micro_batch);
        if self.plan.tables().leaves(unit) {
            self.write_outgoing(rank, Parcel::Activations, unit, output)?;
        } else {
            let start = self.slot(rank, slot) + at.output_bytes;
            self.ranks[rank].activations.write(start, sizes.output_bytes, output)?;
        }
        if self.is_last(unit) {
            self.ranks[rank].losses.push(output);
        }
        Ok(())
    }

    /// Writes the values that backward needs.
    fn save(&mut self, rank: usize, saved: Mark, slot: usize) -> Done {
        let (sizes, at) = (&self.plan.units[saved.unit], &self.plan.placements[saved.unit]);
        if self.recomputes(saved.unit) {
            self.ranks[rank].recomputed.write(at.saved_bytes, sizes.saved_bytes, saved)
        } else {
            let start = self.slot(rank, slot) + at.saved_bytes;
            self.ranks[rank].activations.write(start, sizes.saved_bytes, saved)
        }
    }

    /// Saves once more. The output is written after the saved values, and never read.
    pub(super) fn recompute(&mut self, rank: usize, unit: usize, micro_batch: usize, slot: usize) -> Done {
        self.require_parameters(rank, unit)?;
        self.require_input(rank, unit, micro_batch, slot)?;
        self.save(rank, self.mark(rank, What::Saved, unit, micro_batch), slot)?;
        let (sizes, at) = (&self.plan.units[unit], &self.plan.placements[unit]);
        let output = self.mark(rank, What::Output, unit, micro_batch);
        self.ranks[rank].recomputed.write(
            at.saved_bytes + round_up(sizes.saved_bytes, LINE_BYTES),
            sizes.output_bytes,
            output,
        )
    }

    pub(super) fn backward(&mut self, rank: usize, unit: usize, micro_batch: usize, slot: usize) -> Done {
        self.require_parameters(rank, unit)?;
        self.require_input(rank, unit, micro_batch, slot)?;
        let (sizes, at) = (&self.plan.units[unit], &self.plan.placements[unit]);
        let own = &self.ranks[rank];
        if sizes.saved_bytes > 0 {
            let saved = if self.recomputes(unit) {
                own.recomputed.read(at.saved_bytes, sizes.saved_bytes)?
            } else {
                own.activations.read(self.slot(rank, slot) + at.saved_bytes, sizes.saved_bytes)?
            };
            let expected = self.mark(rank, What::Saved, unit, micro_batch);
            require(*saved == expected, || format!("saved is {saved:?}"))?;
        }
        if !self.is_last(unit) {
            let gradient = own.activation_gradients[unit % 2];
            let expected = self.mark(rank, What::Gradient, unit, micro_batch);
            require(gradient == Some(expected), || format!("the gradient of its output is {gradient:?}"))?;
        }
        if unit > 0 {
            let gradient = self.mark(rank, What::Gradient, unit - 1, micro_batch);
            if self.is_chunk_first(unit) {
                self.write_outgoing(rank, Parcel::Gradients, unit, gradient)?;
            } else {
                self.ranks[rank].activation_gradients[(unit - 1) % 2] = Some(gradient);
            }
        }
        self.add_gradients(rank, unit, micro_batch)
    }
}
