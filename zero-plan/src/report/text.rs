//! Schedule text: the whole layout and all ops of a plan, for comparing plans line by line. Different schedules always
//! have different texts.

use core::fmt;

use super::names::wrap;
use crate::config::Config;
use crate::layout::{Home, Memory};
use crate::pipeline::Pass;
use crate::plan::{PipelineStage, Plan};
use crate::schedule::{Class, Op, OpTraits, Parcel, Stream};
use crate::streams::Queued;

/// Columns that lines of ops are wrapped at.
const WIDTH: usize = 120;

/// Prints all tables of a plan, pipeline stage by pipeline stage: the regions, in bytes; the places of units and
/// buckets, flat buffers in elements and activations in bytes; and the ops of a step and of an evaluation, with a line
/// for each turn of a micro-batch. If ops have streams, each has its number, by which the ops that wait for it refer to
/// it.
pub struct ScheduleText<'a>(pub &'a Plan<'a>);

impl fmt::Display for ScheduleText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ScheduleText(plan) = self;
        let mut lines = Vec::new();
        for (number, pipeline_stage) in plan.pipeline_stages.iter().enumerate() {
            lines.push(format!("pipeline stage {number}"));
            lines.extend(memory(&plan.config, &pipeline_stage.memory));
            lines.extend(units(plan, number));
            lines.extend(buckets(plan, number));
            lines.extend(ops(plan, pipeline_stage));
        }
        f.write_str(&lines.join("\n"))
    }
}

fn memory(config: &Config, memory: &Memory) -> Vec<String> {
    let mut lines = vec![format!("  {:<24}{:<9}{:<6} {:>11} {:>11}", "region", "home", "width", "offset", "bytes")];
    for region in memory.regions.iter().filter(|region| region.bytes > 0) {
        lines.push(format!(
            "  {:<24}{:<9}{:<6} {:>11} {:>11}",
            region.kind.name(),
            format!("{:?}", region.home),
            region.kind.width(config).map_or_else(|| "-".to_owned(), |width| format!("{width:?}")),
            region.offset_bytes,
            region.bytes,
        ));
    }
    let is_there = |home: &Home| !home.is_tier() || memory.bytes_of(*home) > 0;
    let homes = Home::ALL.into_iter().filter(is_there);
    let homes: Vec<String> = homes.map(|home| format!("{} {} B", home.name(), memory.bytes_of(home))).collect();
    lines.push(format!("  homes: {}", homes.join(", ")));
    let Memory { gathered_slot, activation_slot_bytes, outgoing_slot_bytes, returning_slot_bytes, .. } = memory;
    lines.push(format!(
        "  slots: gathered {gathered_slot} elements, activations {activation_slot_bytes} B, outgoing \
         {outgoing_slot_bytes} B, returning {returning_slot_bytes} B"
    ));
    lines
}

fn units(plan: &Plan, pipeline: usize) -> Vec<String> {
    let columns = ["chunk", "start", "padded", "holds", "saved", "output", "bucket"].map(str::to_owned);
    let mut lines = vec![row("unit", &columns)];
    for (unit, place) in plan.units.iter().zip(plan.placements).filter(|(_, place)| place.pipeline_stage == pipeline) {
        let [chunk, start, padded, saved, output, bucket] =
            [place.chunk, place.start, place.padded, place.saved_bytes, place.output_bytes, place.bucket]
                .map(|figure| figure.to_string());
        lines.push(row(&unit.to_string(), &[chunk, start, padded, place.holds.to_string(), saved, output, bucket]));
    }
    lines
}

fn buckets(plan: &Plan, pipeline: usize) -> Vec<String> {
    let columns = ["start", "elements", "staging", "slot", "partial"].map(str::to_owned);
    let mut lines = vec![row("bucket", &columns)];
    for (number, bucket) in plan.buckets.iter().enumerate().filter(|(_, bucket)| bucket.pipeline_stage == pipeline) {
        let slot = bucket.slot.map_or("-".to_owned(), |slot| slot.to_string());
        let [start, elements, staging, partial] =
            [bucket.start, bucket.elements, bucket.staging, bucket.partial].map(|figure| figure.to_string());
        let (first, last) = (&plan.units[bucket.first], &plan.units[bucket.last]);
        lines.push(row(&format!("{number}: {first} to {last}"), &[start, elements, staging, slot, partial]));
    }
    lines
}

fn row(label: &str, figures: &[String]) -> String {
    figures.iter().fold(format!("  {label:<30}"), |line, figure| line + &format!(" {figure:>10}"))
}

fn ops(plan: &Plan, pipeline_stage: &PipelineStage) -> Vec<String> {
    let mut lines = Vec::new();
    let passes = [("step", Pass::Train), ("evaluation", Pass::Evaluate), ("publication", Pass::Publish)];
    let are_there = |&(_, pass): &(&str, Pass)| !pipeline_stage.ops(pass).is_empty();
    for (name, pass) in passes.into_iter().filter(are_there) {
        let (ops, queue, mut start) = (pipeline_stage.ops(pass), pipeline_stage.queue(pass), 0);
        lines.push(format!("  {name}, {} ops", ops.len()));
        for (turn, ops) in turns(plan, ops) {
            let head = turn.map_or("end".to_owned(), |turn| turn.name(plan));
            let queued = |at: usize| queue.get(at).map(|queued| (at, queued));
            let texts = (start..).zip(ops).map(|(at, &op)| with_queue(text(plan, op, turn), queued(at)));
            lines.push(wrap(&format!("    {head} | "), 8, &texts.collect::<Vec<_>>(), " | ", WIDTH));
            start += ops.len();
        }
    }
    lines
}

/// An op with its number, its stream unless that is the one of layers, and the op of another stream that it waits for.
fn with_queue(op: String, queued: Option<(usize, &Queued)>) -> String {
    let Some((at, queued)) = queued else { return op };
    let stream = (queued.stream != Stream::Compute).then(|| format!("stream {}", queued.stream.name()));
    let after = queued.waits_for().map(|before| format!("after {before}"));
    let told: Vec<String> = stream.into_iter().chain(after).collect();
    if told.is_empty() { format!("{at} {op}") } else { format!("{at} {op} ({})", told.join(" ")) }
}

/// The properties that the computations of a turn have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineTurn {
    /// Whether it goes backward, recomputation included.
    pub backward: bool,
    /// The chunk.
    pub chunk: usize,
    /// The micro-batch.
    pub micro_batch: usize,
    /// The slot for its activations.
    pub slot: usize,
}

impl LineTurn {
    /// The turn that an op computes in, if it computes.
    fn of(plan: &Plan, op: Op) -> Option<Self> {
        let OpTraits { class, unit, micro_batch, slot, .. } = op.traits();
        let backward = match class {
            Class::Forward => false,
            Class::Recompute | Class::Backward => true,
            _ => return None,
        };
        Some(Self { backward, chunk: plan.placements[unit?].chunk, micro_batch: micro_batch?, slot: slot? })
    }

    fn name(self, plan: &Plan) -> String {
        let Self { backward, chunk, micro_batch, slot } = self;
        let direction = if backward { "B" } else { "F" };
        match plan.config.chunks_per_rank() {
            1 => format!("{direction} mb {micro_batch} slot {slot}"),
            _ => format!("{direction} mb {micro_batch} chunk {chunk} slot {slot}"),
        }
    }
}

/// The ops of a table, cut into turns, with the ops that prepare each and follow from it; at the end, without a turn, the
/// ops after the last one.
pub fn turns<'a>(plan: &Plan, ops: &'a [Op]) -> Vec<(Option<LineTurn>, &'a [Op])> {
    let mut lines = Vec::new();
    let (mut current, mut start, mut computed) = (None, 0, 0);
    for (i, &op) in ops.iter().enumerate() {
        let Some(turn) = LineTurn::of(plan, op) else { continue };
        if current != Some(turn) {
            let end = computed + ops[computed..i].iter().take_while(|&&op| !prepares(op)).count();
            lines.push((current, &ops[start..end]));
            (current, start) = (Some(turn), end);
        }
        computed = i + 1;
    }
    let end = computed + ops[computed..].iter().take_while(|&&op| op != Op::Agree).count();
    lines.push((current, &ops[start..end]));
    lines.push((None, &ops[end..]));
    lines.retain(|(_, ops)| !ops.is_empty());
    lines
}

/// Whether an op prepares the computation after it.
fn prepares(op: Op) -> bool {
    matches!(
        op,
        Op::Gather { .. }
            | Op::Wait { .. }
            | Op::Convert { .. }
            | Op::Claim { .. }
            | Op::Clear { .. }
            | Op::Fetch { .. }
            | Op::Receive { parcel: Parcel::Activations | Parcel::Gradients, .. }
    )
}

/// An op by itself.
pub fn op_text(plan: &Plan, op: Op) -> String {
    match LineTurn::of(plan, op) {
        Some(turn) => format!("{} ({})", text(plan, op, None), turn.name(plan)),
        None => text(plan, op, None),
    }
}

/// An op, without the details that `turn` already has.
fn text(plan: &Plan, op: Op, turn: Option<LineTurn>) -> String {
    let OpTraits { name, class, unit, bucket, parcel, micro_batch, slot, piece, round, axis, .. } = op.traits();
    let unit = unit.map(|unit| plan.units[unit].to_string()).unwrap_or_default();
    let unit = piece.map_or(unit.clone(), |piece| format!("{unit} piece {piece}"));
    let subject = match (parcel, micro_batch, bucket, round, axis) {
        (Some(parcel), Some(micro_batch), ..) => {
            let of = if slot.is_some() { "for" } else { "of" };
            format!("{} {of} {unit}{}", parcel.name(), place(parcel, micro_batch, slot, turn))
        }
        (Some(parcel), ..) => parcel.name().to_owned(),
        (_, _, Some(bucket), Some(round), _) => format!("{bucket} round {round}"),
        (_, _, Some(bucket), _, Some(axis)) => format!("{bucket} along {}", axis.name()),
        (_, _, Some(bucket), ..) => bucket.to_string(),
        _ => match slot.filter(|_| class == Class::Gather || matches!(op, Op::Fetch { .. })) {
            Some(slot) => format!("{unit} -> {slot}"),
            None => unit,
        },
    };
    if subject.is_empty() { name.to_owned() } else { format!("{name} {subject}") }
}

/// Micro-batch and slot of a parcel, unless they are the expected ones: those of the turn, or 0 for parcels of ties.
fn place(parcel: Parcel, micro_batch: usize, slot: Option<usize>, turn: Option<LineTurn>) -> String {
    let expected = match parcel {
        Parcel::Activations | Parcel::Gradients => turn.map(|turn| (turn.micro_batch, turn.slot)),
        Parcel::TiedGradients | Parcel::TiedParameters => Some((0, 0)),
    };
    let is_expected = |expected: (usize, usize)| expected == (micro_batch, slot.unwrap_or(expected.1));
    match slot {
        _ if expected.is_some_and(is_expected) => String::new(),
        Some(slot) => format!(" mb {micro_batch} slot {slot}"),
        None => format!(" mb {micro_batch}"),
    }
}
