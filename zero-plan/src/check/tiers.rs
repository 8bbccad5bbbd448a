//! Rules of tiers: a piece of a state is fetched into a slot that is free, updated there once, and stored. Whether a
//! fetch really ends after the store that made its slot free is for the proof of streams.

use super::{BrokenRule, Checker};
use crate::config::Offload;
use crate::schedule::Piece;

/// The content of a slot of the window. A piece that is handed over to the host counts as fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowSlot {
    Free,
    Fetched { unit: usize, index: usize },
    Updated { unit: usize, index: usize },
}

/// The content of a slot for the sums of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SumsSlot {
    Free,
    Fetched { bucket: usize },
    Summed { bucket: usize },
}

impl Checker<'_, '_> {
    pub(super) const fn fetch(&mut self, unit: usize, piece: Piece) -> BrokenRule {
        let tables = &self.subject.tables;
        if tables.config.updates_on_host() {
            return self.take_back(unit, piece);
        }
        rules! {
            tables.config.updates_in_pieces() => "a fetch of states that are kept on the device",
            piece.slot < tables.window_slots(self.subject.pipeline) => "a fetch into a slot that does not exist",
            matches!(self.window[piece.slot], WindowSlot::Free) => "a fetch into a slot in use",
            piece.index < tables.pieces(unit) => "a fetch of a piece that does not exist",
            piece.index == self.units[unit].fetched => "a fetch of a piece out of turn",
            tables.config.updates_at_use() || self.has_stored_sums(self.at(unit).bucket) =>
                "a fetch of sums that are not stored",
        }
        self.units[unit].fetched += 1;
        self.window[piece.slot] = WindowSlot::Fetched { unit, index: piece.index };
        None
    }

    /// A store of what the host needs to update a piece.
    const fn hand_over(&mut self, unit: usize, piece: Piece) -> BrokenRule {
        let (tables, bucket) = (&self.subject.tables, self.at(unit).bucket);
        rules! {
            tables.config.hands_over_pieces() => "a store of a piece that the host has",
            piece.slot < tables.window_slots(self.subject.pipeline) => "a store into a slot that does not exist",
            matches!(self.window[piece.slot], WindowSlot::Free) => "a store into a slot in use",
            piece.index < tables.pieces(unit) => "a store of a piece that does not exist",
            piece.index == self.units[unit].fetched => "a store of a piece out of turn",
            self.is_summed(bucket) && self.is_spread(bucket) && self.units[unit].tied == self.is_in_tie(unit) =>
                "a store of a piece before its gradients are summed",
        }
        self.units[unit].fetched += 1;
        self.window[piece.slot] = WindowSlot::Fetched { unit, index: piece.index };
        None
    }

    /// A fetch of parameters that the host has updated.
    const fn take_back(&mut self, unit: usize, piece: Piece) -> BrokenRule {
        rules! { self.subject.tables.config.takes_back_pieces() => "a fetch of parameters that the host keeps", }
        rules! { self.has_updated(unit, piece) => "a fetch of a piece that is not updated", }
        self.window[piece.slot] = WindowSlot::Free;
        self.units[unit].taken_back += 1;
        if self.units[unit].taken_back == self.subject.tables.pieces(unit) { self.renew(unit) } else { None }
    }

    /// Whether an update has the states that it needs: on the device, or in the window.
    pub(super) const fn take_up(&mut self, unit: usize, piece: Option<Piece>) -> BrokenRule {
        let Some(Piece { index, slot }) = piece else {
            rules! { !self.subject.tables.config.updates_in_pieces() => "an update of states that are kept in a tier", }
            return None;
        };
        rules! {
            self.subject.tables.config.updates_in_pieces() => "an update of a piece of states that are kept on the device",
            slot < self.subject.tables.window_slots(self.subject.pipeline) && self.holds(slot, unit, index) =>
                "an update of a piece that is not fetched",
            index == self.units[unit].updated_pieces => "an update of a piece out of turn",
        }
        self.units[unit].updated_pieces += 1;
        // If nothing goes back, the slot is free again.
        let config = self.subject.tables.config;
        let goes_back = !config.updates_on_host() || config.takes_back_pieces();
        self.window[slot] = if goes_back { WindowSlot::Updated { unit, index } } else { WindowSlot::Free };
        None
    }

    /// Whether a slot has what the update of a piece needs. If the host has all of it, the slot only has to be free.
    const fn holds(&self, slot: usize, unit: usize, index: usize) -> bool {
        let config = self.subject.tables.config;
        match self.window[slot] {
            WindowSlot::Free => config.updates_on_host() && !config.hands_over_pieces(),
            WindowSlot::Fetched { unit: other, index: piece } => other == unit && piece == index,
            WindowSlot::Updated { .. } => false,
        }
    }

    /// Whether an update of a unit was the last: parameters are new once all their pieces are, and back from the host if that
    /// updates them.
    pub(super) const fn has_updated_pieces(&self, unit: usize) -> bool {
        let tables = &self.subject.tables;
        let is_done = self.units[unit].updated_pieces == tables.pieces(unit);
        !tables.config.updates_in_pieces() || is_done && !tables.config.takes_back_pieces()
    }

    const fn has_updated(&self, unit: usize, piece: Piece) -> bool {
        piece.slot < self.window.len()
            && matches!(self.window[piece.slot], WindowSlot::Updated { unit: other, index } if other == unit && index == piece.index)
    }

    pub(super) const fn store(&mut self, unit: usize, piece: Piece) -> BrokenRule {
        if self.subject.tables.config.updates_on_host() {
            return self.hand_over(unit, piece);
        }
        rules! { self.has_updated(unit, piece) => "a store of a piece that is not updated", }
        self.window[piece.slot] = WindowSlot::Free;
        None
    }

    /// Notes that the sum of a bucket over all ranks is made, if it is made in a slot.
    pub(super) const fn sum_in_slot(&mut self, bucket: usize, round: usize) -> BrokenRule {
        let Some(slot) = self.bucket(bucket).sums else { return None };
        rules! {
            round > 0 || matches!(self.sums[slot], SumsSlot::Free) => "a sum in a slot in use",
            round == 0 || matches!(self.sums[slot], SumsSlot::Fetched { bucket: other } if other == bucket) =>
                "a sum that is added to one that is not fetched",
        }
        self.sums[slot] = SumsSlot::Summed { bucket };
        None
    }

    pub(super) const fn fetch_sums(&mut self, bucket: usize, round: usize) -> BrokenRule {
        let Some(slot) = self.bucket(bucket).sums else { return Some("a fetch of sums that are kept on the device") };
        rules! {
            round < self.subject.tables.config.reductions() => "a fetch of sums to which nothing is added",
            round > 0 && self.buckets[bucket].stored == round => "a fetch of the sums of another round than the last",
            matches!(self.sums[slot], SumsSlot::Free) => "a fetch of sums into a slot in use",
        }
        self.sums[slot] = SumsSlot::Fetched { bucket };
        None
    }

    pub(super) const fn store_sums(&mut self, bucket: usize, round: usize) -> BrokenRule {
        let Some(slot) = self.bucket(bucket).sums else { return Some("a store of sums that are kept on the device") };
        let is_last = round + 1 == self.subject.tables.config.reductions();
        rules! {
            self.has_sums(bucket) => "a store of sums that are not made",
            self.buckets[bucket].stored == round => "a store of the sums of another round than the next",
            !is_last || self.is_spread(bucket) => "a store of sums of which replicas still have parts",
        }
        self.buckets[bucket].stored += 1;
        self.sums[slot] = SumsSlot::Free;
        None
    }

    /// Whether the sum of a bucket is in its slot, if it has one.
    pub(super) const fn has_sums(&self, bucket: usize) -> bool {
        match self.bucket(bucket).sums {
            Some(slot) => matches!(self.sums[slot], SumsSlot::Summed { bucket: other } if other == bucket),
            None => true,
        }
    }

    /// Whether the last sum of a bucket has been stored, if sums are kept in a tier.
    pub(super) const fn has_stored_sums(&self, bucket: usize) -> bool {
        self.bucket(bucket).sums.is_none() || self.buckets[bucket].stored == self.subject.tables.config.reductions()
    }

    pub(super) const fn fetch_shard(&mut self, unit: usize, slot: usize) -> BrokenRule {
        rules! {
            self.subject.tables.config.offloads_parameters() => "a fetch of a shard that is kept on the device",
            self.at(unit).holds => "a fetch of a shard of a unit without parameters of its own",
            !self.agreed => "a fetch of a shard after the agreement, when its parameters change",
            self.is_fresh(unit) => "a fetch of a shard before the update of its parameters",
        }
        if self.subject.tables.config.gathers_fetched() {
            rules! {
                slot < self.gathered_slots => "a fetch of a shard into a slot that does not exist",
                self.shards[0].is_none() && !self.units[slot].is_slot_taken => "a fetch of a shard into a slot in use",
            }
            (self.shards[0], self.given) = (Some(unit), slot);
            return None;
        }
        rules! {
            slot < self.shards.len() => "a fetch of a shard into a slot that does not exist",
            self.shards[slot].is_none() => "a fetch of a shard into a slot in use",
        }
        self.shards[slot] = Some(unit);
        None
    }

    /// Notes that a unit is gathered or offered: if shards are kept in a tier, from the next of their slots, or from the one that goes with
    /// the slot for gathered parameters.
    pub(super) const fn give_shard(&mut self, unit: usize, slot: usize) -> BrokenRule {
        if self.subject.tables.config.gathers_fetched() {
            rules! {
                matches!(self.shards[0], Some(fetched) if fetched == unit) && self.given == slot =>
                    "a gather of a shard that is not fetched",
            }
            self.shards[0] = None;
        } else if self.subject.tables.config.offloads_parameters() {
            let shard = &mut self.shards[self.given % Offload::SHARD_SLOTS];
            rules! { matches!(shard, Some(fetched) if *fetched == unit) => "a gather of a shard that is not fetched", }
            *shard = None;
            self.given += 1;
        }
        None
    }

    /// Whether every shard that was fetched has been gathered.
    pub(super) const fn are_shards_given(&self) -> bool {
        let mut slot = 0;
        while slot < self.shards.len() {
            if self.shards[slot].is_some() {
                return false;
            }
            slot += 1;
        }
        true
    }

    pub(super) const fn store_activations(&mut self, unit: usize, micro_batch: usize, slot: usize) -> BrokenRule {
        rules! {
            self.at(unit).stored_bytes.is_some() => "a store of activations that stay on the device",
            self.units[unit].forwards == micro_batch + 1 => "a store of activations that are not made",
            self.units[unit].stored == micro_batch => "a second store of activations",
            self.is_in_slot(unit, micro_batch, slot) => "a store of activations in a slot of others",
        }
        self.units[unit].stored += 1;
        None
    }

    pub(super) const fn fetch_activations(&mut self, unit: usize, micro_batch: usize, slot: usize) -> BrokenRule {
        let tables = &self.subject.tables;
        rules! { self.at(unit).stored_bytes.is_some() => "a fetch of activations that stay on the device", }
        let reader = tables.last_reader(unit + tables.activation_turns());
        rules! {
            self.units[unit].stored == micro_batch + 1 => "a fetch of activations that are not stored",
            self.units[unit].brought_back == micro_batch => "a second fetch of activations",
            self.units[reader].backwards == micro_batch + 1 => "a fetch of activations to a place in use",
            self.is_in_slot(unit, micro_batch, slot) => "a fetch of activations to a slot of others",
        }
        self.units[unit].brought_back += 1;
        None
    }

    /// Whether a unit may write its activations: those of the unit before it in the same place are stored.
    pub(super) const fn is_turn_free(&self, unit: usize, micro_batch: usize) -> bool {
        match self.subject.tables.takes_turns_after(unit) {
            Some(before) if self.trains() => self.units[before].stored == micro_batch + 1,
            _ => true,
        }
    }

    /// Whether the output of the unit before is in its place, after it was in a tier or has stayed there.
    pub(super) const fn has_input_back(&self, unit: usize, micro_batch: usize) -> bool {
        let is_stored = unit > 0 && self.at(unit - 1).stored_bytes.is_some();
        !is_stored || self.units[unit - 1].brought_back == micro_batch + 1
    }

    /// Whether every piece that was fetched has been stored.
    pub(super) const fn is_window_free(&self) -> bool {
        let mut slot = 0;
        while slot < self.window.len() {
            if !matches!(self.window[slot], WindowSlot::Free) {
                return false;
            }
            slot += 1;
        }
        true
    }
}
