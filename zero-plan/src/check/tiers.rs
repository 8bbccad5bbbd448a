//! Rules of tiers: a piece of a state is fetched into a slot that is free, updated there once, and stored. Whether a
//! fetch really ends after the store that made its slot free is for the proof of streams.

use super::{BrokenRule, Checker};
use crate::schedule::Piece;

/// The content of a slot of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowSlot {
    Free,
    Fetched { unit: usize, index: usize },
    Updated { unit: usize, index: usize },
}

impl Checker<'_, '_> {
    pub(super) const fn fetch(&mut self, unit: usize, piece: Piece) -> BrokenRule {
        let tables = &self.subject.tables;
        rules! {
            tables.config.offloads_optimizer() => "a fetch of states that are kept on the device",
            piece.slot < tables.window_slots(self.subject.pipeline) => "a fetch into a slot that does not exist",
            matches!(self.window[piece.slot], WindowSlot::Free) => "a fetch into a slot in use",
            piece.index < tables.pieces(unit) => "a fetch of a piece that does not exist",
            piece.index == self.units[unit].fetched => "a fetch of a piece out of turn",
        }
        self.units[unit].fetched += 1;
        self.window[piece.slot] = WindowSlot::Fetched { unit, index: piece.index };
        None
    }

    /// Whether an update has the states that it needs: on the device, or in the window.
    pub(super) const fn take_up(&mut self, unit: usize, piece: Option<Piece>) -> BrokenRule {
        let Some(Piece { index, slot }) = piece else {
            rules! { !self.subject.tables.config.offloads_optimizer() => "an update of states that are kept in a tier", }
            return None;
        };
        rules! {
            self.subject.tables.config.offloads_optimizer() => "an update of a piece of states that are kept on the device",
            slot < self.window.len() && self.holds(slot, unit, index) => "an update of a piece that is not fetched",
        }
        self.units[unit].updated_pieces += 1;
        self.window[slot] = WindowSlot::Updated { unit, index };
        None
    }

    const fn holds(&self, slot: usize, unit: usize, index: usize) -> bool {
        matches!(self.window[slot], WindowSlot::Fetched { unit: other, index: piece } if other == unit && piece == index)
    }

    /// Whether an update of a unit was the last: parameters are new once all their pieces are.
    pub(super) const fn has_updated_pieces(&self, unit: usize) -> bool {
        let tables = &self.subject.tables;
        !tables.config.offloads_optimizer() || self.units[unit].updated_pieces == tables.pieces(unit)
    }

    pub(super) const fn store(&mut self, unit: usize, piece: Piece) -> BrokenRule {
        let is_updated = piece.slot < self.window.len()
            && matches!(self.window[piece.slot], WindowSlot::Updated { unit: other, index } if other == unit && index == piece.index);
        rules! { is_updated => "a store of a piece that is not updated", }
        self.window[piece.slot] = WindowSlot::Free;
        None
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
