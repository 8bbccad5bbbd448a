//! Tier: the accesses of ops that move pieces of states between a tier and the window, and of the update of a piece.

use super::{Content, Gradients, OfOp, Value};
use crate::place::{Kept, PieceOfState, Place, Places, State};
use crate::schedule::{Op, Piece};

impl OfOp<'_, '_> {
    /// Writes what the stream of an op has of the relay, if bytes pass through it.
    pub(super) fn relay(&mut self, op: Op) {
        let (own, stream) = (self.own, op.traits().stream);
        if stream.is_of_tier() && own.trips(op).any(|(kept, _)| own.is_relayed(kept)) {
            let parts = (0..Places::RELAY_TURNS).map(|turn| own.relay(stream, turn));
            parts.for_each(|part| self.note(own.at, part, Content::Nothing, 0, true));
        }
    }

    /// Reads a piece of each state where it is kept, and writes it to the window, up to the end of its last block.
    pub(super) fn fetch(&mut self, unit: usize, piece: Piece) {
        for part in self.own.states_of(unit, piece).collect::<Vec<_>>() {
            self.note_piece(unit, &part, part.kept, false, false);
            self.note_piece(unit, &part, part.window, false, true);
            self.note(self.own.at, after(part.window, part.blocks().1), Content::Nothing, 0, true);
        }
    }

    /// Reads an updated piece of each state in the window, and writes it to where it is kept.
    pub(super) fn store(&mut self, unit: usize, piece: Piece) {
        for part in self.own.updated_states_of(unit, piece).collect::<Vec<_>>() {
            self.note_piece(unit, &part, part.window, true, false);
            self.note_piece(unit, &part, part.kept, true, true);
            self.note(self.own.at, after(part.kept, part.blocks().0), Content::Nothing, 0, true);
        }
    }

    /// Reads what the host needs of a piece, and writes it to the memory of the host.
    pub(super) fn hand_over(&mut self, unit: usize, piece: Piece) {
        for (of, there, here) in self.own.given_to_host(unit, piece).collect::<Vec<_>>() {
            self.note_part(unit, piece, of, here, false, false);
            self.note_part(unit, piece, of, there, false, true);
        }
    }

    /// Reads the parameters of a piece that the host has updated, and writes them to the device.
    pub(super) fn take_back(&mut self, unit: usize, piece: Piece) {
        let params = Kept::State(State::Parameters);
        let Some((there, here)) = self.own.handed_over(params, unit, piece) else { return };
        self.note_part(unit, piece, params, there, true, false);
        self.note_part(unit, piece, params, here, true, true);
    }

    /// Reads the sums of a piece, and reads and writes its parameters and states: in the window, or where they lie. The host also
    /// reads the settings and the report of a step, and makes its parameters anew of a master copy.
    pub(super) fn update_piece(&mut self, unit: usize, piece: Piece) {
        let (own, config) = (self.own, &self.plan.config);
        let is_anew = config.updates_on_host() && config.precision.has_master_copy();
        self.note(own.at, own.step_words(), Content::Nothing, 0, false);
        for of in Kept::ALL {
            let Some(place) = own.worked_on(of, unit, piece) else { continue };
            if !is_anew || of != Kept::State(State::Parameters) {
                self.note_part(unit, piece, of, place, false, false);
            }
            if of != Kept::Sums {
                self.note_part(unit, piece, of, place, true, true);
            }
        }
    }

    /// Reads or writes a piece of sums or of a state at a place.
    fn note_part(&mut self, unit: usize, piece: Piece, of: Kept, place: Place, is_updated: bool, writes: bool) {
        let start = self.own.owned(unit).start + self.own.piece(unit, piece.index).start;
        self.note_elements(unit, of, start, place, is_updated, writes);
    }

    /// Brings this rank's shard of a unit to a slot, up to the end of its last block.
    pub(super) fn fetch_shard(&mut self, unit: usize, slot: usize) {
        let own = self.own;
        let (kept, fetched) = (own.shard(unit), own.fetched_shard(unit, slot));
        let from_byte = own.at.zero * kept.len_bytes;
        let is_updated = self.plan.config.fetches_updated(self.pass);
        self.parameters(own.at, unit, kept, from_byte, is_updated);
        self.write_parameters(unit, fetched, from_byte, is_updated);
        self.note(own.at, after(fetched, own.shard_blocks(unit, slot).1), Content::Nothing, 0, true);
    }

    /// Takes the activations of a unit to their tier, or brings them back, up to the end of their last block.
    pub(super) fn move_activations(&mut self, unit: usize, micro_batch: usize, slot: usize, stores: bool) {
        let own = self.own;
        let Some((kept, here)) = own.activation_blocks(unit, slot) else { return };
        self.note(own.at, if stores { kept } else { here }, Content::Nothing, 0, true);
        let saved = Some((own.saved(unit, slot), Value::Saved)).filter(|(place, _)| place.region == here.region);
        for (place, value) in saved.into_iter().chain([(own.output(unit, slot, 0), Value::Output)]) {
            let stored = kept.cut(place.offset_bytes - here.offset_bytes, place.len_bytes);
            let (from, to) = if stores { (place, stored) } else { (stored, place) };
            self.activation(from, unit, micro_batch, value, false);
            self.activation(to, unit, micro_batch, value, true);
        }
    }

    /// Brings the sums of a bucket before reduction `round` to their slot.
    pub(super) fn fetch_sums(&mut self, bucket: usize, round: usize) {
        let Some(before) = round.checked_sub(1) else { return };
        self.note(self.own.at, self.own.sums_in_turn(bucket), Content::Nothing, 0, true);
        for unit in self.units_of(bucket) {
            if let Some((_, kept)) = self.own.kept(Kept::Sums, unit) {
                self.note_sum(unit, before, kept, false);
                self.note_sum(unit, before, self.own.reduced(unit), true);
            }
        }
    }

    /// Takes the sums of a bucket up to reduction `round` from their slot to where they are kept.
    pub(super) fn store_sums(&mut self, bucket: usize, round: usize) {
        self.note(self.own.at, self.own.kept_sums(bucket), Content::Nothing, 0, true);
        for unit in self.units_of(bucket) {
            if let Some((_, kept)) = self.own.kept(Kept::Sums, unit) {
                self.note_sum(unit, round, self.own.reduced(unit), false);
                self.note_sum(unit, round, kept, true);
            }
        }
    }

    /// Reads or writes the sum of a unit: the part that this rank sums, or the whole shard, if all replicas have
    /// exchanged their parts.
    fn note_sum(&mut self, unit: usize, round: usize, shard: Place, writes: bool) {
        let is_whole = round + 1 == self.plan.config.reductions();
        let replica = (!is_whole).then_some(self.own.at.replica);
        let start = self.gradient_bytes(self.own.at, shard, replica);
        let place = replica.map_or(shard, |replica| self.own.part(shard, replica));
        self.note(self.own.at, place, Content::Gradients { unit, round, of: Gradients::OfAll }, start, writes);
    }

    /// Reads or writes a piece of a state at one of its places.
    fn note_piece(&mut self, unit: usize, part: &PieceOfState, place: Place, is_updated: bool, writes: bool) {
        self.note_elements(unit, part.of, part.stretch.start, place, is_updated, writes);
    }

    /// The same from element `start` of the flat buffer on.
    fn note_elements(&mut self, unit: usize, of: Kept, start: usize, place: Place, is_updated: bool, writes: bool) {
        let content = match of {
            Kept::Sums => self.updates_by(unit),
            Kept::State(State::Parameters) => Content::Parameters { unit: self.owner(unit), is_updated },
            Kept::State(state) => Content::State { state, unit, is_updated },
        };
        self.note(self.own.at, place, content, self.bytes(place.region, start), writes);
    }
}

/// The bytes of `blocks` after a place with which they begin.
fn after(place: Place, blocks: Place) -> Place {
    blocks.cut(place.len_bytes, blocks.len_bytes - place.len_bytes)
}
