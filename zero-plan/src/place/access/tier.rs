//! Tier: the accesses of ops that move pieces of states between a tier and the window, and of the update of a piece.

use super::{Content, OfOp};
use crate::layout::Kind;
use crate::place::{PieceOfState, Place};
use crate::schedule::Piece;

impl OfOp<'_, '_> {
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
        for part in self.own.states_of(unit, piece).collect::<Vec<_>>() {
            self.note_piece(unit, &part, part.window, true, false);
            self.note_piece(unit, &part, part.kept, true, true);
            self.note(self.own.at, after(part.kept, part.blocks().0), Content::Nothing, 0, true);
        }
    }

    /// Reads the sums of a piece, and reads and writes its parameters where they lie and its states in the window.
    pub(super) fn update_piece(&mut self, unit: usize, piece: Piece) {
        let own = self.own;
        let start = own.owned(unit).start + own.piece(unit, piece.index).start;
        let (sums, params) = (own.sums(unit), own.updated(unit));
        let of_piece = |place| own.of_piece(place, unit, piece.index);
        self.note(own.at, of_piece(sums), self.updates_by(unit), self.bytes(sums.region, start), false);
        for part in own.states_of(unit, piece).collect::<Vec<_>>() {
            self.note_piece(unit, &part, part.window, false, false);
            self.note_piece(unit, &part, part.window, true, true);
        }
        let from_byte = self.bytes(Kind::Parameters, start);
        self.parameters(own.at, unit, of_piece(params), from_byte, false);
        self.write_parameters(unit, of_piece(params), from_byte, true);
    }

    /// Reads or writes a piece of a state at one of its places.
    fn note_piece(&mut self, unit: usize, part: &PieceOfState, place: Place, is_updated: bool, writes: bool) {
        let PieceOfState { state, stretch, .. } = *part;
        let content = Content::State { state, unit, is_updated };
        self.note(self.own.at, place, content, self.bytes(place.region, stretch.start), writes);
    }
}

/// The bytes of `blocks` after a place with which they begin.
fn after(place: Place, blocks: Place) -> Place {
    blocks.cut(place.len_bytes, blocks.len_bytes - place.len_bytes)
}
