//! Budget: whether the memory of a rank, in its arena and outside it, fits the budget of the spec. If it does not, the
//! error names the op at which most is in use, and the parts that use it. Computed from the tables, in constants. A
//! program that may take longer than a compiler searches for layouts that would fit.

mod peak;

use crate::config::TierKind;
use crate::footprint::{outside_bytes, rank_bytes};
use crate::layout::{Kind, Memory, Tables};
use crate::message::Message;
use crate::origin::Origin;
use crate::schedule::Op;

pub use peak::Peak;
pub(crate) use peak::peak;

/// Parts of a peak that a message names.
const PARTS: usize = 3;

/// Stops the build if a rank needs more than the budgets of the spec. `steps` has the ops of each pipeline stage.
///
/// # Panics
/// Z0201 for memory, Z0230 for a tier.
#[track_caller]
pub const fn require_budget(tables: &Tables, memories: &[Memory], steps: &[&[Op]], origin: &Origin) {
    require_tier(tables, memories, TierKind::Host, origin);
    require_tier(tables, memories, TierKind::Disk, origin);
    require_memory(tables, memories, steps, origin);
}

#[track_caller]
const fn require_tier(tables: &Tables, memories: &[Memory], tier: TierKind, origin: &Origin) {
    let (Some(budget), Some(home)) = (tables.config.budget_bytes(tier), tier.home()) else { return };
    let (mut needed, mut pipeline) = (0, 0);
    while pipeline < memories.len() {
        let bytes = memories[pipeline].bytes_of(home);
        needed = if bytes > needed { bytes } else { needed };
        pipeline += 1;
    }
    if needed <= budget {
        return;
    }
    let (words, key) = (tier.words(), tier.budget_key());
    let message = Message::new().text("[Z0230] a rank keeps ").bytes(needed).text(" ").text(words).text(" at stage ");
    let message = message.number(tables.config.stage as usize).text(", but `").text(key).text("` is ").bytes(budget);
    let message = origin.tell(message.text(": ").bytes(needed - budget).text(" too much"), key, "none");
    let message = message.text("\n  fix: raise `").text(key).text("`, or let more ranks share the optimizer state:");
    panic!("{}", message.text(" a stage above 0, and more ranks along `zero`").as_str());
}

#[track_caller]
const fn require_memory(tables: &Tables, memories: &[Memory], steps: &[&[Op]], origin: &Origin) {
    let Some(budget) = tables.config.memory_bytes else { return };
    let pipeline = largest(memories);
    let needed = rank_bytes(tables, &memories[pipeline]);
    if needed <= budget {
        return;
    }
    let mut message = Message::new().text("[Z0201] a rank");
    if memories.len() > 1 {
        message = message.text(" of pipeline stage ").number(pipeline);
    }
    let message = message.text(" needs ").bytes(needed).text(" at stage ").number(tables.config.stage as usize);
    let message = message.text(", but `memory` is ").bytes(budget).text(": ").bytes(needed - budget).text(" too much");
    let peak = peak(tables, &memories[pipeline], steps[pipeline]);
    let message = tell_parts(peak.tell(message.text("\n  "), tables, "`"), &peak);
    let message = message.text("\n  outside the arena: ").bytes(outside_bytes(tables, 1)).text(" at most");
    let message = origin.tell(message, "memory", "none");
    let message = origin.tell_number(message, "batch.sequences", tables.config.sequences);
    let message = origin.tell_number(message, "batch.length", tables.config.length);
    let message = message.text(
        "\n  fix: raise `memory`, or change what is sharded, kept or worked on at once: `cargo zero build` finds",
    );
    panic!("{}", message.text(" what fits").as_str());
}

/// The pipeline stage whose ranks need the most memory.
const fn largest(memories: &[Memory]) -> usize {
    let (mut largest, mut pipeline) = (0, 1);
    while pipeline < memories.len() {
        if memories[pipeline].bytes_per_rank() > memories[largest].bytes_per_rank() {
            largest = pipeline;
        }
        pipeline += 1;
    }
    largest
}

const fn tell_parts(mut message: Message, peak: &Peak) -> Message {
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

#[cfg(test)]
mod tests;
