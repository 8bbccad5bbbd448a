//! Budget: whether what a rank takes, in its arena and outside of it, fits what the spec allows. Where it does not, the
//! error says at which op most is in use and by what, and which changes would fit, with what they cost. Computed from
//! the tables, in constants.

mod change;
mod peak;

use crate::footprint::{outside_bytes, rank_bytes};
use crate::layout::{Kind, Memory, Tables};
use crate::message::Message;
use crate::origin::Origin;
use crate::schedule::Op;
use crate::unit::Unit;

use change::{CHANGES, Change};
pub use peak::Peak;
pub(crate) use peak::peak;

/// Parts of a peak that a message names.
const PARTS: usize = 3;
/// Changes that a message offers.
const OFFERS: usize = 4;

/// Stops the build where a rank takes more than the budget of the spec. `steps` has the ops of each pipeline stage, and
/// `scratch` has room for the units.
///
/// # Panics
/// Z0201.
#[track_caller]
pub const fn require_budget(
    tables: &Tables,
    memories: &[Memory],
    steps: &[&[Op]],
    scratch: &mut [Unit],
    origin: &Origin,
) {
    let Some(budget) = tables.config.memory_bytes else { return };
    let stage = largest(memories);
    let needed = rank_bytes(tables, &memories[stage]);
    if needed <= budget {
        return;
    }
    let mut message = Message::new().text("[Z0201] a rank");
    if memories.len() > 1 {
        message = message.text(" of pipeline stage ").number(stage);
    }
    let message = message.text(" needs ").bytes(needed).text(" at stage ").number(tables.config.stage as usize);
    let message = message.text(", but `memory` is ").bytes(budget).text(": ").bytes(needed - budget).text(" too much");
    let message = tell_peak(message, tables, &peak(tables, &memories[stage], steps[stage]));
    let message = message.text("\n  outside the arena: ").bytes(outside_bytes(tables, 1)).text(" at most");
    let message = origin.tell(message, "memory", "none");
    let message = origin.tell_number(message, "batch.sequences", tables.config.sequences);
    let message = origin.tell_number(message, "batch.length", tables.config.length);
    panic!("{}", tell_changes(message, tables, budget, scratch, origin).as_str());
}

/// The pipeline stage whose ranks need most.
const fn largest(memories: &[Memory]) -> usize {
    let (mut largest, mut stage) = (0, 1);
    while stage < memories.len() {
        if memories[stage].bytes_per_rank() > memories[largest].bytes_per_rank() {
            largest = stage;
        }
        stage += 1;
    }
    largest
}

const fn tell_peak(message: Message, tables: &Tables, peak: &Peak) -> Message {
    let mut message = peak.name(message.text("\n  most is in use in "), tables, "`");
    let mut told = [false; Kind::ALL.len()];
    let mut part = 0;
    while part < PARTS {
        let (mut most, mut i) = (0, 0);
        while i < told.len() {
            if told[most] || !told[i] && peak.bytes[i] > peak.bytes[most] {
                most = i;
            }
            i += 1;
        }
        told[most] = true;
        message = message.text(if part == 0 { ": " } else { ", " }).text(Kind::ALL[most].name()).text(" ");
        message = message.bytes(peak.bytes[most]);
        part += 1;
    }
    message
}

/// Tells the cheapest changes that fit. Where no single one does, it tells several to be made together.
const fn tell_changes(
    mut message: Message,
    tables: &Tables,
    budget: usize,
    scratch: &mut [Unit],
    origin: &Origin,
) -> Message {
    let changes = change::all(tables, scratch);
    let mut told = [false; CHANGES];
    let mut offers = 0;
    while offers < OFFERS {
        let Some(best) = cheapest(&changes, &told, budget) else { break };
        message = message.text(if offers == 0 { "\n  fits, the cheapest change first:" } else { "" });
        message = tell_change(message, tables, &changes[best], origin);
        told[best] = true;
        offers += 1;
    }
    if offers == 0 {
        return tell_changes_together(message, tables, budget, scratch, origin);
    }
    message.text("\n  fix: make one of these changes, or raise `memory`")
}

/// Adds change after change, each time the one that leaves least to be needed, until all of them together fit.
const fn tell_changes_together(
    message: Message,
    tables: &Tables,
    budget: usize,
    scratch: &mut [Unit],
    origin: &Origin,
) -> Message {
    let mut message = message.text("\n  no single change fits; one after another:");
    let (mut config, mut needed) = (*tables.config, usize::MAX);
    while needed > budget {
        let tables = Tables { config: &config, ..*tables };
        let changes = change::all(&tables, scratch);
        let Some(best) = change::smallest(&changes, &config, needed) else {
            return message
                .text("\n  fix: raise `memory`, or lower what it pays for: sequences, length, widths of the model");
        };
        message = tell_change(message, &tables, &changes[best], origin);
        needed = changes[best].bytes;
        config = changes[best].config;
    }
    message.text(", which fits\n  fix: make all of these changes, or raise `memory`")
}

const fn cheapest(changes: &[Change], told: &[bool], budget: usize) -> Option<usize> {
    let (mut best, mut i): (Option<usize>, usize) = (None, 0);
    while i < changes.len() {
        if changes[i].applies && !told[i] && changes[i].bytes <= budget {
            best = match best {
                Some(other) if changes[other].cost() <= changes[i].cost() => Some(other),
                _ => Some(i),
            };
        }
        i += 1;
    }
    best
}

const fn tell_change(message: Message, tables: &Tables, change: &Change, origin: &Origin) -> Message {
    let message = change.name(message.text("\n    "), tables.config, origin).bytes(change.bytes);
    let message = if change.more_sent_bytes > 0 {
        message.text(", about ").bytes(change.more_sent_bytes).text(" more sent a step")
    } else {
        message
    };
    if change.more_operations == 0 {
        return message;
    }
    let whole = change::operations(tables);
    message
        .text(", ")
        .number((100 * change.more_operations as u128).div_ceil(whole as u128) as usize)
        .text(" % more operations")
}

#[cfg(test)]
mod tests;
