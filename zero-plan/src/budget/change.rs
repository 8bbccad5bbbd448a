//! Change: how a spec could be changed to need less memory, how much it would need then, and what the change costs.

use crate::bounds::is_compilable;
use crate::config::{Config, Often, Recompute};
use crate::footprint::rank_bytes;
use crate::layout::{Memory, Tables};
use crate::message::Message;
use crate::origin::Origin;
use crate::states::Volume;
use crate::unit::{Unit, gathered, smaller_than_shards};

/// Changes that are looked at, at most: three higher stages, less prefetch, two that hold less from one micro-batch to
/// the next, smaller micro-batches, and recomputation.
pub(super) const CHANGES: usize = 3 + 1 + 2 + HALVINGS + 1;
/// How often a micro-batch is halved, at most.
const HALVINGS: usize = 4;
/// What a byte on the wire is taken to cost in operations, so that the two can be compared: 100 GFLOP/s against 2 GB/s.
const OPERATIONS_PER_BYTE: usize = 50;

/// One change to a spec.
#[derive(Clone, Copy)]
pub(super) struct Change {
    /// Whether it changes anything in this spec.
    pub applies: bool,
    /// The configuration after it.
    pub config: Config,
    /// What a rank needs then, at most.
    pub bytes: usize,
    /// Bytes that are sent more in a step, padding and each rank's own share counted.
    pub more_sent_bytes: usize,
    /// Operations that are added to a step.
    pub more_operations: usize,
}

impl Change {
    pub const fn cost(&self) -> usize {
        self.more_operations.saturating_add(self.more_sent_bytes.saturating_mul(OPERATIONS_PER_BYTE))
    }

    /// Appends what to write in the spec, and a colon for what is needed then.
    pub const fn name(&self, message: Message, before: &Config, origin: &Origin) -> Message {
        let after = &self.config;
        if after.micro_batches != before.micro_batches {
            let message = origin.key(origin.section(message, "batch"), "sequences").number(after.sequences);
            let message = origin.key(message.text(", "), "micro_batches").number(after.micro_batches);
            // What layers work in need not be proportional to the sequences.
            return origin.end(message).text(": at most ");
        }
        if matches!(after.recompute, Recompute::Every(1)) && !matches!(before.recompute, Recompute::Every(1)) {
            return origin.key(message.text("`"), "recompute").text("Every(1)`: ");
        }
        let message = origin.section(message, "zero");
        let message = if after.stage != before.stage {
            let message = origin.key(message, "stage").number(after.stage as usize);
            if after.stage == 3 && after.prefetch == 0 {
                origin.key(message.text(", "), "prefetch").text("0")
            } else {
                message
            }
        } else if after.prefetch != before.prefetch {
            origin.key(message, "prefetch").number(after.prefetch)
        } else if after.gather as u8 != before.gather as u8 {
            origin.key(message, "gather").text("PerMicroBatch")
        } else {
            origin.key(message, "reduce").text("PerMicroBatch")
        };
        origin.end(message).text(": ")
    }
}

/// All changes, whether they apply or not. `scratch` has room for the units.
pub(super) const fn all(tables: &Tables, scratch: &mut [Unit]) -> [Change; CHANGES] {
    let config = *tables.config;
    let none = Change { applies: false, config, bytes: usize::MAX, more_sent_bytes: 0, more_operations: 0 };
    let mut out = [none; CHANGES];
    let mut next = 0;
    let mut stage = config.stage + 1;
    while stage <= 3 {
        // At stage 3 a spec without `prefetch` gathers one unit ahead, where there is one.
        let ahead = if stage == 3 && gathered(tables.units) > 1 { 1 } else { 0 };
        out[next] = change(tables, Config { stage, prefetch: ahead, ..config });
        next += 1;
        stage += 1;
    }
    if config.uses_slots() && config.shards_parameters() && config.prefetch > 0 {
        out[next] = change(tables, Config { prefetch: 0, ..config });
        next += 1;
    }
    if config.holds_parameters() {
        out[next] = change(tables, Config { gather: Often::PerMicroBatch, ..config });
        next += 1;
    }
    if config.holds_gradients() && config.stage >= 2 {
        out[next] = change(tables, Config { reduce: Often::PerMicroBatch, ..config });
        next += 1;
    }
    if !matches!(config.recompute, Recompute::Every(1)) {
        out[next] = change(tables, Config { recompute: Recompute::Every(1), ..config });
        next += 1;
    }
    let mut halving = 1;
    while halving <= HALVINGS {
        let parts = 1 << halving;
        if config.sequences.is_multiple_of(parts) {
            out[next] = smaller(tables, parts, scratch);
            next += 1;
        }
        halving += 1;
    }
    out
}

/// The change after which least is needed, if that is less than `needed`. A change of the micro-batches is left out: it
/// makes units of other sizes, and further changes would have to be computed on those.
pub(super) const fn smallest(changes: &[Change], before: &Config, needed: usize) -> Option<usize> {
    let (mut best, mut least, mut i) = (None, needed, 0);
    while i < changes.len() {
        let keeps_units = changes[i].config.micro_batches == before.micro_batches;
        if changes[i].applies && keeps_units && changes[i].bytes < least {
            least = changes[i].bytes;
            best = Some(i);
        }
        i += 1;
    }
    best
}

const fn change(tables: &Tables, config: Config) -> Change {
    let after = Tables { config: &config, ..*tables };
    let (sent, operations) = (sent_bytes(&after), operations(&after));
    Change {
        applies: smaller_than_shards(&config, tables.units).is_none() && is_compilable(&after),
        config,
        bytes: bytes_max(&after),
        more_sent_bytes: sent.saturating_sub(sent_bytes(tables)),
        more_operations: operations.saturating_sub(self::operations(tables)),
    }
}

/// `parts` times as many micro-batches, each of a `parts`th of the sequences. What a layer takes, gives and saves is
/// proportional to its sequences. Its workspace need not be, so it is counted as it is now.
const fn smaller(tables: &Tables, parts: usize, scratch: &mut [Unit]) -> Change {
    let mut i = 0;
    while i < tables.units.len() {
        let unit = tables.units[i];
        scratch[i] = Unit {
            saved_bytes: unit.saved_bytes.div_ceil(parts),
            input_bytes: unit.input_bytes / parts,
            output_bytes: unit.output_bytes / parts,
            given_bytes: unit.given_bytes / parts,
            targets_bytes: unit.targets_bytes / parts,
            ..unit
        };
        i += 1;
    }
    let before = tables.config;
    let config = Config { sequences: before.sequences / parts, micro_batches: before.micro_batches * parts, ..*before };
    let after = Tables { config: &config, units: scratch, ..*tables };
    Change {
        applies: is_compilable(&after),
        config,
        bytes: bytes_max(&after),
        more_sent_bytes: sent_bytes(&after).saturating_sub(sent_bytes(tables)),
        more_operations: 0,
    }
}

/// What a rank of any pipeline stage needs, at most.
const fn bytes_max(tables: &Tables) -> usize {
    let (mut most, mut stage) = (0, 0);
    while stage < tables.config.mesh.pipeline {
        let bytes = rank_bytes(tables, &Memory::of(tables, stage));
        most = if bytes > most { bytes } else { most };
        stage += 1;
    }
    most
}

/// Bytes of parameters and gradients that all pipeline stages move in a step along `zero` (ZeRO paper, section 7).
const fn sent_bytes(tables: &Tables) -> usize {
    let config = tables.config;
    if config.mesh.zero == 1 {
        return 0;
    }
    let (mut params, mut i) = (0, 0);
    while i < tables.units.len() {
        params += tables.padded(i);
        i += 1;
    }
    let volume = Volume::of(config);
    let gathered = if config.shards_optimizer() { config.precision.params } else { config.precision.reduce };
    params * (volume.all_gathers * gathered.bytes() + volume.reduce_scatters * config.precision.reduce.bytes())
}

/// Operations of a step on one rank of each pipeline stage.
pub(super) const fn operations(tables: &Tables) -> usize {
    let (mut sum, mut i) = (0, 0);
    while i < tables.units.len() {
        let passes = 3 + tables.config.recomputes(tables.units, i) as usize;
        sum += passes * tables.units[i].operations * tables.config.micro_batches;
        i += 1;
    }
    if sum == 0 { 1 } else { sum }
}
