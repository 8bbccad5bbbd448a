//! Check of pieces: they are whole blocks, which lie apart in their tier and in the window. Shares no code with the builder
//! of layouts.

use super::BrokenRule;
use crate::lines::BLOCK_BYTES;
use crate::place::{Places, State};
use crate::schedule::Piece;

/// Pieces of states in a tier begin on blocks and end within the room of their unit, and slots of the window lie apart.
pub(super) const fn check_pieces(own: &Places) -> BrokenRule {
    let (tables, mut state) = (&own.tables, 0);
    while state < State::OF_OPTIMIZER.len() {
        let (mut end, mut unit) = (0, 0);
        while unit < tables.units.len() {
            let pieces =
                if tables.placements[unit].pipeline_stage == own.at.pipeline { tables.pieces(unit) } else { 0 };
            let mut index = 0;
            while tables.config.offloads_optimizer() && index < pieces {
                let piece = Piece { index, slot: 0 };
                let Some(part) = own.piece_of(State::OF_OPTIMIZER[state], unit, piece) else { break };
                let (kept, _) = part.blocks();
                rules! {
                    kept.offset_bytes.is_multiple_of(BLOCK_BYTES) => "a piece that does not start on a block of its tier",
                    end <= kept.offset_bytes => "pieces of a tier that overlap",
                    kept.end_bytes() <= own.region_bytes(kept.region) => "a piece beyond the end of its tier",
                }
                if let Some(rule) = check_window(own, State::OF_OPTIMIZER[state], unit, index) {
                    return Some(rule);
                }
                end = kept.end_bytes();
                index += 1;
            }
            unit += 1;
        }
        state += 1;
    }
    None
}

/// The places of a piece in all slots of the window.
const fn check_window(own: &Places, state: State, unit: usize, index: usize) -> BrokenRule {
    let (slots, mut slot, mut end) = (own.tables.window_slots(own.at.pipeline), 0, 0);
    while slot < slots {
        let Some(part) = own.piece_of(state, unit, Piece { index, slot }) else { return None };
        let (_, window) = part.blocks();
        let half = own.region_bytes(window.region) / if matches!(state, State::Master) { 1 } else { 2 };
        let limit = if matches!(state, State::SecondMoment) { 2 * half } else { half };
        rules! {
            window.offset_bytes.is_multiple_of(BLOCK_BYTES) => "a piece that does not start on a block of the window",
            end <= window.offset_bytes && limit - half <= window.offset_bytes => "slots of the window that overlap",
            window.end_bytes() <= limit => "a piece beyond the end of the window",
        }
        end = window.end_bytes();
        slot += 1;
    }
    None
}
