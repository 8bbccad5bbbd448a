//! Peak: at which op of a step most of an arena is in use, and by what. An arena is one allocation that holds all of
//! its regions all the time; the bytes in use explain why regions are as large as they are.
//!
//! Rustc evaluates it, for the message about a budget, so it counts in constants how long bytes are in use. Accesses of
//! ops say only when bytes are touched.

use crate::layout::{Kind, Memory, Tables, spare_batch_bytes};
use crate::mesh::Axis;
use crate::message::Message;
use crate::plan::Plan;
use crate::schedule::{Op, Parcel};
use crate::unit::max;

/// The op at which most is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The op.
    pub op: Op,
    /// The bytes in use, by [`Kind::ALL`].
    pub bytes: [usize; Kind::ALL.len()],
}

impl Peak {
    /// All bytes in use.
    pub const fn total_bytes(&self) -> usize {
        let (mut sum, mut i) = (0, 0);
        while i < self.bytes.len() {
            sum += self.bytes[i];
            i += 1;
        }
        sum
    }

    /// Appends at which op most is in use, with `quote` on both sides of the unit.
    pub(crate) const fn tell(&self, message: Message, tables: &Tables, quote: &str) -> Message {
        self.name(message.text("most is in use in "), tables, quote)
    }

    /// Appends the op, such as `the forward of embed in micro-batch 0`, with `quote` on both sides of the unit.
    pub const fn name(&self, message: Message, tables: &Tables, quote: &str) -> Message {
        let (what, unit, micro_batch) = match self.op {
            Op::Forward { unit, micro_batch, .. } => ("the forward of ", unit, micro_batch),
            Op::Backward { unit, micro_batch, .. } => ("the backward of ", unit, micro_batch),
            Op::Recompute { unit, micro_batch, .. } => ("the recompute of ", unit, micro_batch),
            Op::Update { unit, .. } if tables.is_orthogonalized(unit) => {
                return tables.units[unit].name(message.text("the update of ").text(quote)).text(quote);
            }
            _ => return message.text("an op between computations"),
        };
        let message = tables.units[unit].name(message.text(what).text(quote)).text(quote);
        match tables.config.micro_batches {
            1 => message,
            _ => message.text(" in micro-batch ").number(micro_batch),
        }
    }
}

/// The op of a pipeline stage's step during which most is in use.
pub const fn peak(tables: &Tables, memory: &Memory, ops: &[Op]) -> Peak {
    let mut in_use = InUse::new(memory);
    let mut most = Peak { op: Op::Agree, bytes: [0; Kind::ALL.len()] };
    let mut i = 0;
    while i < ops.len() {
        let now = Peak { op: ops[i], bytes: in_use.during(tables, memory, ops[i]) };
        if now.total_bytes() > most.total_bytes() {
            most = now;
        }
        i += 1;
    }
    most
}

impl Plan<'_> {
    /// The op of a training step during which a rank of pipeline stage `pipeline` has most in use, and those bytes.
    pub const fn peak(&self, pipeline: usize) -> Peak {
        peak(&self.tables(), &self.pipeline_stages[pipeline].memory, self.pipeline_stages[pipeline].step)
    }

    /// The bytes that a rank of pipeline stage `pipeline` has in use during each op of a training step, by
    /// [`Kind::ALL`]. [`Plan::peak`] is the first op at which their sum is largest.
    pub fn in_use(&self, pipeline: usize) -> Vec<[usize; Kind::ALL.len()]> {
        let (tables, memory) = (self.tables(), &self.pipeline_stages[pipeline].memory);
        let mut in_use = InUse::new(memory);
        self.pipeline_stages[pipeline].step.iter().map(|&op| in_use.during(&tables, memory, op)).collect()
    }
}

/// A walk over ops that counts what is taken and freed within a step: slots for activations, slots for gathered
/// parameters, and elements of staging.
struct InUse {
    slots: usize,
    gathered: usize,
    staged: usize,
    /// Bytes that the last op used. Regions that are always in use keep their initial bytes.
    bytes: [usize; Kind::ALL.len()],
}

impl InUse {
    const fn new(memory: &Memory) -> Self {
        let mut bytes = [0; Kind::ALL.len()];
        let mut i = 0;
        while i < Kind::ALL.len() {
            bytes[i] = if memory.regions[i].home.is_tier() { 0 } else { memory.regions[i].bytes };
            i += 1;
        }
        Self { slots: 0, gathered: 0, staged: 0, bytes }
    }

    /// The bytes that the next op uses, by [`Kind::ALL`].
    const fn during(&mut self, tables: &Tables, memory: &Memory, op: Op) -> [usize; Kind::ALL.len()] {
        self.before(tables, op);
        self.fill(tables, memory, op);
        self.after(tables, op);
        self.bytes
    }

    const fn before(&mut self, tables: &Tables, op: Op) {
        match op {
            Op::Forward { unit: 0, .. } | Op::Receive { parcel: Parcel::Activations, .. } => self.slots += 1,
            Op::Gather { .. } if tables.config.shards_parameters() => self.gathered += 1,
            Op::Convert { .. } => self.gathered += 1,
            Op::Claim { bucket } => self.staged += tables.buckets[bucket].elements,
            Op::Spread { bucket, axis } if tables.config.spreads_directions(axis) => {
                self.staged += tables.buckets[bucket].elements;
            }
            _ => {}
        }
    }

    const fn after(&mut self, tables: &Tables, op: Op) {
        match op {
            Op::Backward { unit, .. } if tables.chunks[tables.placements[unit].chunk].first == unit => self.slots -= 1,
            Op::Release { .. } => self.gathered -= 1,
            Op::Subtotal { bucket, axis: Axis::Zero, .. } => self.staged -= tables.buckets[bucket].elements,
            Op::Settle { bucket, .. } if !tables.config.sums_on_hosts(Axis::Zero) => {
                self.staged -= tables.buckets[bucket].elements;
            }
            Op::Update { unit, .. } if tables.config.shards_optimizer() && is_last_of_directions(tables, unit) => {
                self.staged -= tables.buckets[tables.placements[unit].bucket].elements;
            }
            _ => {}
        }
    }

    const fn fill(&mut self, tables: &Tables, memory: &Memory, op: Op) {
        let bytes = &mut self.bytes;
        bytes[Kind::Activations as usize] = self.slots * memory.activation_slot_bytes;
        if tables.config.uses_slots() && !tables.config.holds_parameters() {
            let elements = self.gathered * memory.gathered_slot / tables.config.sharers();
            bytes[Kind::Gathered as usize] = Kind::Gathered.bytes(tables.config, elements);
        }
        if tables.config.shards_gradients() {
            bytes[Kind::Gradients as usize] = Kind::Gradients.bytes(tables.config, self.staged);
        }
        let (mut workspace, mut boundary, mut recomputed, mut gradients) = (0, 0, 0, 0);
        match op {
            Op::Forward { unit, .. } => {
                workspace = max(tables.units[unit].workspace_bytes, batch_bytes(tables, unit));
                recomputed = recomputed_bytes(tables, unit);
            }
            Op::Update { unit, .. } if tables.is_orthogonalized(unit) => {
                workspace = tables.units[unit].matrices.room_bytes;
            }
            Op::Recompute { unit, .. } => {
                workspace = tables.units[unit].workspace_bytes;
                recomputed = recomputed_bytes(tables, unit) + tables.units[unit].output_bytes;
            }
            Op::Receive { parcel: Parcel::Gradients, unit, .. } => boundary = tables.units[unit].output_bytes,
            Op::Backward { unit, .. } => {
                workspace = tables.units[unit].workspace_bytes;
                boundary = tables.units[unit].input_bytes + tables.units[unit].output_bytes;
                recomputed = recomputed_bytes(tables, unit);
                gradients = if tables.config.precision.reduce.is_narrow() { tables.placements[unit].padded } else { 0 };
            }
            _ => {}
        }
        bytes[Kind::Workspace as usize] = workspace + tables.config.device.product_bytes();
        bytes[Kind::ActivationGradients as usize] = boundary;
        bytes[Kind::Recomputed as usize] = recomputed;
        bytes[Kind::UnitGradients as usize] = Kind::UnitGradients.bytes(tables.config, gradients);
    }
}

/// The part of a micro-batch that is in the workspace when `unit` runs forward.
const fn batch_bytes(tables: &Tables, unit: usize) -> usize {
    let takes_batch = unit == 0 || tables.takes_targets(unit);
    if takes_batch { spare_batch_bytes(tables, tables.placements[unit].pipeline_stage) } else { 0 }
}

/// The values that a unit saves outside its activation slot, because a recompute writes them again.
const fn recomputed_bytes(tables: &Tables, unit: usize) -> usize {
    if tables.config.recomputes(tables.units, unit) { tables.units[unit].saved_bytes } else { 0 }
}

/// Whether the update of a unit is the last that needs the directions of its bucket. Updates of a bucket come in the
/// order of units.
const fn is_last_of_directions(tables: &Tables, unit: usize) -> bool {
    let mut later = tables.buckets[tables.placements[unit].bucket].last;
    while later > unit {
        if tables.is_orthogonalized(later) {
            return false;
        }
        later -= 1;
    }
    tables.is_orthogonalized(unit)
}
