//! Check of pieces: they are whole blocks, which lie apart in their tier and in the window. Shares no code with the builder
//! of layouts.

use super::BrokenRule;
use crate::config::Offload;
use crate::layout::{Bucket, Kind};
use crate::lines::BLOCK_BYTES;
use crate::place::{Kept, Place, Places, State};
use crate::schedule::{Piece, Stream};

/// Pieces of states in a tier begin on blocks and end within the room of their unit, and slots of the window lie apart.
pub(super) const fn check_pieces(own: &Places) -> BrokenRule {
    if let Some(rule) = check_sums(own) {
        return Some(rule);
    }
    if let Some(rule) = check_shards(own) {
        return Some(rule);
    }
    let (tables, mut kept) = (&own.tables, 0);
    rules! {
        own.step_words().end_bytes() <= own.region_bytes(Kind::StepWords) => "step words beyond their room",
        !tables.config.relays() || check_relay(own) => "parts of the relay that overlap, or lie beyond its room",
    }
    while kept < Kept::ALL.len() {
        if let Some(rule) = check_host(own, Kept::ALL[kept]) {
            return Some(rule);
        }
        let (mut end, mut unit) = (0, 0);
        while unit < tables.units.len() {
            let pieces =
                if tables.placements[unit].pipeline_stage == own.at.pipeline { tables.pieces(unit) } else { 0 };
            let mut index = 0;
            while tables.config.updates_in_pieces() && index < pieces {
                let piece = Piece { index, slot: 0 };
                let Some(part) = own.piece_of(Kept::ALL[kept], unit, piece) else { break };
                let (blocks, _) = part.blocks();
                rules! {
                    blocks.offset_bytes.is_multiple_of(BLOCK_BYTES) => "a piece that does not start on a block of its tier",
                    end <= blocks.offset_bytes => "pieces of a tier that overlap",
                    blocks.end_bytes() <= own.region_bytes(blocks.region) => "a piece beyond the end of its tier",
                }
                if let Some(rule) = check_window(own, Kept::ALL[kept], unit, index) {
                    return Some(rule);
                }
                end = blocks.end_bytes();
                index += 1;
            }
            unit += 1;
        }
        kept += 1;
    }
    None
}

/// The counts and the parts of the relay lie apart, in whole blocks.
const fn check_relay(own: &Places) -> bool {
    let (mut end, mut at) = (own.relay_counts().end_bytes(), 0);
    while at < 2 * Places::RELAY_TURNS {
        let stream = if at < Places::RELAY_TURNS { Stream::Fetch } else { Stream::Store };
        let part = own.relay(stream, at % Places::RELAY_TURNS);
        if part.offset_bytes < end || !part.offset_bytes.is_multiple_of(BLOCK_BYTES) {
            return false;
        }
        (end, at) = (part.end_bytes(), at + 1);
    }
    end <= own.region_bytes(Kind::Relay)
}

/// Sums that are kept in a tier begin on blocks there and in the slots that buckets take in turn, and lie apart. Buckets
/// are numbered in the order of backward, so later ones lie before.
const fn check_sums(own: &Places) -> BrokenRule {
    let (tables, mut before, mut bucket) = (&own.tables, own.region_bytes(Kind::Sums), 0);
    while bucket < tables.buckets.len() {
        let Bucket { pipeline_stage, elements, sums, .. } = tables.buckets[bucket];
        if pipeline_stage == own.at.pipeline && elements > 0 {
            rules! {
                sums.is_some() == tables.config.offloads_gradients() => "a slot for sums that are kept on the device, or none",
            }
        }
        if pipeline_stage == own.at.pipeline
            && let Some(slot) = sums
        {
            let (kept, made) = (own.kept_sums(bucket), own.sums_in_turn(bucket));
            let slot_bytes = made.region.bytes(tables.config, own.memory.sum_slot);
            rules! {
                slot < Offload::SUM_SLOTS_MAX && made.end_bytes() <= own.region_bytes(made.region) =>
                    "sums beyond the end of their slots",
                made.offset_bytes == slot * slot_bytes && made.len_bytes <= slot_bytes => "slots for sums that overlap",
                kept.offset_bytes.is_multiple_of(BLOCK_BYTES) && slot_bytes.is_multiple_of(BLOCK_BYTES) =>
                    "sums that do not start on a block",
                kept.end_bytes() <= before => "sums of a tier that overlap",
            }
            before = kept.offset_bytes;
        }
        bucket += 1;
    }
    None
}

/// Shards that are kept in a tier have room in each slot for fetched ones, and slots lie apart, on blocks.
const fn check_shards(own: &Places) -> BrokenRule {
    let (tables, mut unit) = (&own.tables, 0);
    while tables.config.offloads_parameters() && unit < tables.units.len() {
        let at = &tables.placements[unit];
        if at.pipeline_stage == own.at.pipeline && at.holds {
            let (mut end, mut slot) = (0, 0);
            rules! { own.shard_slots() > 0 => "no slot for shards", }
            while slot < own.shard_slots() {
                let (_, fetched) = own.shard_blocks(unit, slot);
                rules! {
                    fetched.offset_bytes.is_multiple_of(BLOCK_BYTES) => "a slot for shards that does not start on a block",
                    end <= fetched.offset_bytes => "slots for shards that overlap",
                    fetched.end_bytes() <= own.region_bytes(fetched.region) => "a shard beyond the end of its slots",
                }
                end = fetched.end_bytes();
                slot += 1;
            }
        }
        unit += 1;
    }
    None
}

/// Activations that are kept in a tier lie apart there, on blocks. On the device, the units between a unit and the next
/// one with its place have other places, which lie apart from one another and from all that does not travel, up to `end`.
pub(super) const fn check_activations(own: &Places, end: usize) -> BrokenRule {
    let (tables, turns) = (&own.tables, own.tables.activation_turns());
    rules! {
        turns == 0 || tables.activation_slots(own.at.pipeline) == 1 && tables.config.mesh.pipeline == 1 =>
            "activations of several micro-batches that take turns",
    }
    let (mut stored, mut unit) = (0, 0);
    while turns > 0 && unit + 1 < tables.units.len() {
        let here = turn(own, unit);
        rules! {
            here.offset_bytes >= end => "activations overlap",
            here.end_bytes() <= own.slot(0).end_bytes() => "activations that do not fit their slot",
        }
        let mut other = unit + 1;
        while other < unit + turns && other + 1 < tables.units.len() {
            rules! { here.is_apart_from(turn(own, other)) => "activations of two units in one place", }
            other += 1;
        }
        if let Some((kept, here)) = own.activation_blocks(unit, 0) {
            rules! {
                kept.offset_bytes.is_multiple_of(BLOCK_BYTES) && here.offset_bytes.is_multiple_of(BLOCK_BYTES) =>
                    "activations that do not start on a block",
                kept.offset_bytes >= stored => "activations of a tier that overlap",
                kept.end_bytes() <= own.region_bytes(kept.region) => "activations beyond the end of their tier",
            }
            stored = kept.end_bytes();
        }
        unit += 1;
    }
    None
}

/// All that a unit keeps in its place for activations: whole blocks if it travels.
const fn turn(own: &Places, unit: usize) -> Place {
    if let Some((_, here)) = own.activation_blocks(unit, 0) {
        return here;
    }
    let output = own.output(unit, 0, 0);
    if own.tables.config.recomputes(own.tables.units, unit) {
        return output;
    }
    let saved = own.saved(unit, 0);
    Place { len_bytes: output.end_bytes() - saved.offset_bytes, ..saved }
}

/// If the host updates parameters, what it keeps of units lies apart, and so do the pieces that it gets.
const fn check_host(own: &Places, kept: Kept) -> BrokenRule {
    let (tables, mut end, mut unit) = (&own.tables, 0, 0);
    while tables.config.updates_on_host() && unit < tables.units.len() {
        let is_here = tables.placements[unit].pipeline_stage == own.at.pipeline;
        if let Some((_, place)) = own.kept(kept, unit)
            && own.memory.region(place.region).home.is_tier()
        {
            rules! {
                end <= place.offset_bytes => "states of two units in one place of the host",
                place.end_bytes() <= own.region_bytes(place.region) => "states beyond the end of the host's memory",
            }
            end = place.end_bytes();
        }
        let (pieces, mut index) = (if is_here { tables.pieces(unit) } else { 0 }, 0);
        while index < pieces {
            if let Some(rule) = check_handed_over(own, kept, unit, index) {
                return Some(rule);
            }
            index += 1;
        }
        unit += 1;
    }
    None
}

/// The places of a piece in all slots of the window that the host has.
const fn check_handed_over(own: &Places, kept: Kept, unit: usize, index: usize) -> BrokenRule {
    let (slots, mut slot, mut end) = (own.tables.window_slots(own.at.pipeline), 0, 0);
    while slot < slots {
        let Some((there, here)) = own.handed_over(kept, unit, Piece { index, slot }) else { return None };
        rules! {
            end <= there.offset_bytes => "slots of the host's window that overlap",
            there.end_bytes() <= own.region_bytes(there.region) => "a piece beyond the end of the host's window",
            here.len_bytes == there.len_bytes && here.end_bytes() <= own.region_bytes(here.region) =>
                "a piece for the host beyond the end of its region",
        }
        end = there.end_bytes();
        slot += 1;
    }
    None
}

/// The places of a piece in all slots of the window.
const fn check_window(own: &Places, kept: Kept, unit: usize, index: usize) -> BrokenRule {
    let (slots, mut slot, mut end) = (own.tables.window_slots(own.at.pipeline), 0, 0);
    while slot < slots {
        let Some(part) = own.piece_of(kept, unit, Piece { index, slot }) else { return None };
        let (_, window) = part.blocks();
        let states = if matches!(kept, Kept::State(State::FirstMoment | State::SecondMoment)) { 2 } else { 1 };
        let half = own.region_bytes(window.region) / states;
        let limit = if matches!(kept, Kept::State(State::SecondMoment)) { 2 * half } else { half };
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
