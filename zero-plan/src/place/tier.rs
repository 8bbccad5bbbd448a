//! Tier: where pieces of states are kept, and where they are worked on. Never says when they travel.

use super::{Place, Places, State, Stretch};
use crate::layout::Kind;
use crate::lines::{BLOCK_BYTES, round_up};
use crate::schedule::Piece;

impl State {
    /// Those that the key `offload.optimizer` moves to a tier.
    pub const OF_OPTIMIZER: [State; 3] = [State::Master, State::FirstMoment, State::SecondMoment];
}

/// A piece of one state: its elements, where it is kept, and where it is worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceOfState {
    /// The state.
    pub state: State,
    /// Its elements, in the flat buffer of the unit.
    pub stretch: Stretch,
    /// Its place in the tier.
    pub kept: Place,
    /// Its place in the window.
    pub window: Place,
}

impl PieceOfState {
    /// The places in the tier and in the window between which bytes travel: whole blocks, the last of which may end
    /// after the piece.
    pub const fn blocks(&self) -> (Place, Place) {
        let len_bytes = round_up(self.kept.len_bytes, BLOCK_BYTES);
        (Place { len_bytes, ..self.kept }, Place { len_bytes, ..self.window })
    }
}

impl Places<'_> {
    /// The elements of a piece, counted from the start of what this rank owns of a unit.
    pub const fn piece(&self, unit: usize, index: usize) -> Stretch {
        let (most, len) = (self.tables.config.piece_elements(), self.owned(unit).len);
        let start = index * most;
        assert!(start < len, "a piece beyond the end of its unit");
        Stretch { start, len: if len - start < most { len - start } else { most } }
    }

    /// The part of a place that a piece covers, if the place has what this rank owns of a unit.
    pub const fn of_piece(&self, place: Place, unit: usize, index: usize) -> Place {
        let Stretch { start, len } = self.piece(unit, index);
        let element = place.len_bytes / self.owned(unit).len;
        place.cut(start * element, len * element)
    }

    /// The place of a state in a slot of the window; none if it is not worked on there. Like the moments themselves,
    /// all first moments lie before all second ones.
    pub const fn window_slot(&self, state: State, slot: usize) -> Option<Place> {
        let window = match state {
            State::Parameters => return None,
            State::Master => Kind::MasterWindow,
            State::FirstMoment | State::SecondMoment => Kind::OptimizerWindow,
        };
        let bytes = self.memory.region(window).bytes;
        let place = self.place(window, slot * self.memory.window_slot, self.memory.window_slot);
        let before = if let State::SecondMoment = state { bytes / 2 } else { 0 };
        if bytes > 0 { Some(Place { offset_bytes: before + place.offset_bytes, ..place }) } else { None }
    }

    /// A piece of a state that is kept in a tier; none if this rank has no such state, or has it on the device.
    pub const fn piece_of(&self, state: State, unit: usize, piece: Piece) -> Option<PieceOfState> {
        let (Some((owned, place)), Some(slot)) = (self.state(state, unit), self.window_slot(state, piece.slot)) else {
            return None;
        };
        let part = self.piece(unit, piece.index);
        let stretch = Stretch { start: owned.start + part.start, len: part.len };
        let kept = self.of_piece(place, unit, piece.index);
        Some(PieceOfState { state, stretch, kept, window: slot.first(kept.len_bytes) })
    }

    /// All states of a piece.
    pub fn states_of(&self, unit: usize, piece: Piece) -> impl Iterator<Item = PieceOfState> {
        State::OF_OPTIMIZER.into_iter().filter_map(move |state| self.piece_of(state, unit, piece))
    }
}
