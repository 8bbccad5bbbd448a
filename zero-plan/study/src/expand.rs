//! Expand: a plan as Rust that a person reads in a review: each buffer as a constant, and a function with a line for each op.
//! Never runs it, and never computes a plan.

mod bytes;
mod lines;
mod names;
pub mod step;

use core::fmt;

use lines::Lines;
use names::Names;
use zero_plan::place::{Kept, Place, Places, Position, State};
use zero_plan::{Class, Config, Home, Kind, LineTurn, Op, OpTraits, Pass, Plan, turns};

/// Writes a plan as Rust: `Display` gives the whole file, as rustfmt would format it, for `include!` or for reading. It calls
/// [`step::StepOps`]. Offsets and lengths are in bytes. Plans whose ops or places differ give different texts.
pub struct Expanded<'a> {
    /// The plan.
    pub plan: &'a Plan<'a>,
    /// The spec that it was made from, as the first line names it.
    pub spec: &'a str,
}

impl fmt::Display for Expanded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = Lines::default();
        head(&mut lines, self.plan, self.spec);
        match self.plan.pipeline_stages.len() {
            1 => pipeline_stage(&mut lines, self.plan, 0),
            several => (0..several).for_each(|pipeline| {
                lines.line("");
                let name = format!("pub mod pipeline_stage_{pipeline}");
                lines.block(&name, |lines| pipeline_stage(lines, self.plan, pipeline));
            }),
        }
        f.write_str(&lines.finish())
    }
}

fn head(lines: &mut Lines, plan: &Plan, spec: &str) {
    let Config { stage, mesh, prefetch, .. } = &plan.config;
    lines.line(&format!("// `{}` under {spec}, as `cargo zero expand` writes it.", plan.model));
    let ahead = if plan.config.shards_parameters() { format!(", prefetch {prefetch}") } else { String::new() };
    lines.line(&format!(
        "// ZeRO stage {stage}{ahead}. Mesh: zero {}, replica {}, pipeline {}.",
        mesh.zero, mesh.replica, mesh.pipeline
    ));
    lines.line("// Offsets and lengths are in bytes: those of buffers within their regions.");
    if plan.pipeline_stages.len() == 1 {
        lines.line("");
    }
}

fn pipeline_stage(lines: &mut Lines, plan: &Plan, pipeline: usize) {
    let names = Names::of(plan, pipeline);
    let own = plan.places(plan.config.mesh.coordinates(plan.first_rank(pipeline)));
    lines.line("#[allow(unused_imports)]");
    lines.line("use zero_plan::{Axis, Home, Kind, Parcel};");
    lines.line("use zero_study::expand::step::*;");
    lines.line("");
    regions(lines, own);
    for unit in names.units() {
        lines.line("");
        unit_buffers(lines, plan, &names, own, unit);
    }
    lines.line("");
    buckets(lines, plan, &names, own, pipeline);
    slots(lines, plan, own, pipeline);
    window(lines, plan, own, pipeline);
    let passes = [
        ("step", "A training step.", Pass::Train),
        ("evaluation", "A forward without a backward.", Pass::Evaluate),
        ("publication", "A copy of all parameters for readers.", Pass::Publish),
    ];
    for (name, says, pass) in passes.into_iter().filter(|&(.., pass)| pass != Pass::Publish || plan.config.publishes())
    {
        lines.line("");
        lines.line(&format!("/// {says}"));
        let head = format!("pub fn {name}(rank: &mut impl StepOps)");
        lines.block(&head, |lines| ops(lines, plan, &names, pipeline, pass));
    }
}

fn regions(lines: &mut Lines, own: Places) {
    for home in Home::ALL.into_iter().filter(|&home| own.memory.bytes_of(home) > 0) {
        let bytes = number(own.memory.bytes_of(home));
        lines.line(&format!("pub const {}: usize = {bytes};", names::of_home(home)));
    }
    for region in own.memory.regions.iter().filter(|region| region.bytes > 0) {
        let arguments = [
            format!("Kind::{:?}", region.kind),
            format!("Home::{:?}", region.home),
            number(region.offset_bytes),
            number(own.region_bytes(region.kind)),
        ];
        let before = format!("pub const {}: ArenaRegion = ", names::of_region(region.kind));
        lines.call(&before, "ArenaRegion::new", &arguments);
    }
}

/// A place as an expression.
fn at(place: Place) -> String {
    format!("{}.at({}, {})", names::of_region(place.region), number(place.offset_bytes), number(place.len_bytes))
}

fn unit_buffers(lines: &mut Lines, plan: &Plan, names: &Names, own: Places, unit: usize) {
    let (config, shown) = (&plan.config, &plan.units[unit]);
    match shown.is_tied(unit) {
        true => {
            lines.line(&format!("/// `{shown}`, which computes on the parameters of `{}`.", plan.units[shown.source]))
        }
        false => lines.line(&format!("/// `{shown}`: {} parameters.", number(shown.params))),
    }
    let head = format!("pub const {}: UnitBuffers = UnitBuffers", names.unit(unit));
    let is_common = own.memory.region(Kind::Parameters).home.is_common();
    let holds = plan.placements[unit].holds;
    let stored = if config.shards_parameters() && !is_common { own.shard(unit) } else { own.flat(unit) };
    let has_converted = holds && config.uses_slots() && config.holds_parameters();
    let leaves = plan.tables().leaves(unit);
    let fields = [
        ("parameters", holds.then_some(stored)),
        ("converted", has_converted.then(|| own.computed_on(unit, 0))),
        ("gradients", Some(own.local_gradients(unit))),
        ("partial", config.has_partials().then(|| own.partial(unit))),
        ("reduced", (!config.reduces_in_place()).then(|| own.reduced(unit))),
        ("master", own.state(State::Master, unit).map(|(_, place)| place)),
        ("first_moment", own.state(State::FirstMoment, unit).map(|(_, place)| place)),
        ("second_moment", own.state(State::SecondMoment, unit).map(|(_, place)| place)),
        ("sums", own.kept(Kept::Sums, unit).map(|(_, place)| place)),
        ("saved", Some(own.saved(unit, 0))),
        ("output", (!leaves).then(|| own.output(unit, 0, 0))),
        ("stored", own.activation_blocks(unit, 0).map(|(kept, _)| kept)),
    ];
    lines.constant(&head, |lines| {
        lines.line(&format!("number: {unit},"));
        for (field, place) in fields {
            if let Some(place) = place.filter(|place| place.len_bytes > 0) {
                lines.line(&format!("{field}: {},", at(place)));
            }
        }
        lines.line("..UnitBuffers::NONE");
    });
}

fn buckets(lines: &mut Lines, plan: &Plan, names: &Names, own: Places, pipeline: usize) {
    for (number, bucket) in plan.buckets.iter().enumerate().filter(|(_, bucket)| bucket.pipeline_stage == pipeline) {
        lines.line(&format!("/// {} to {}.", names.unit(bucket.first), names.unit(bucket.last)));
        let arguments = [number.to_string(), at(own.bucket_gradients(number))];
        lines.call(&format!("pub const BUCKET_{number}: BucketBuffer = "), "BucketBuffer::new", &arguments);
    }
}

fn slots(lines: &mut Lines, plan: &Plan, own: Places, pipeline: usize) {
    let stage = &plan.pipeline_stages[pipeline];
    let most = |slot: fn(Op) -> Option<usize>| {
        let used = Pass::ALL.into_iter().flat_map(|pass| stage.ops(pass)).filter_map(|&op| slot(op));
        used.max().map_or(0, |last| last + 1)
    };
    let gathered = most(|op| op.traits().slot.filter(|_| op.traits().class == Class::Gather));
    let config = &plan.config;
    for slot in 0..gathered {
        let before = format!("pub const SLOT_{slot}: SlotBuffer = ");
        if config.uses_slots() && !config.holds_parameters() {
            lines.call(&before, "SlotBuffer::new", &[slot.to_string(), at(own.gathered_slot(slot))]);
        } else {
            lines.call(&before, "SlotBuffer::in_place", &[slot.to_string()]);
        }
    }
    for slot in 0..most(|op| op.traits().slot.filter(|_| matches!(op, Op::FetchShard { .. }))) {
        let place = at(own.shard_slot(slot));
        lines.call(&format!("pub const SHARD_{slot}: SlotBuffer = "), "SlotBuffer::new", &[slot.to_string(), place]);
    }
    for slot in 0..most(|op| {
        op.traits().slot.filter(|_| !matches!(op.class(), Class::Gather | Class::Tier) && !is_of_window(op))
    }) {
        let before = format!("pub const ACTIVATIONS_{slot}: SlotBuffer = ");
        lines.call(&before, "SlotBuffer::new", &[slot.to_string(), at(own.slot(slot))]);
    }
}

/// The slots of the window, each with the places of a whole piece.
fn window(lines: &mut Lines, plan: &Plan, own: Places, pipeline: usize) {
    for slot in 0..plan.tables().window_slots(pipeline) {
        lines.constant(&format!("pub const WINDOW_{slot}: WindowBuffer = WindowBuffer"), |lines| {
            lines.line(&format!("number: {slot},"));
            for (field, kept) in WINDOW_FIELDS.into_iter().zip(Kept::ALL) {
                if let Some(place) = own.window_slot(kept, slot) {
                    lines.line(&format!("{field}: {},", at(place)));
                }
            }
            lines.line("..WindowBuffer::NONE");
        });
    }
}

/// The fields of a slot of the window, by [`Kept::ALL`].
const WINDOW_FIELDS: [&str; Kept::ALL.len()] = ["parameters", "master", "first_moment", "second_moment", "sums"];

/// Whether the slot of an op is one of the window.
fn is_of_window(op: Op) -> bool {
    op.traits().piece.is_some()
}

fn ops(lines: &mut Lines, plan: &Plan, names: &Names, pipeline: usize, pass: Pass) {
    let mut position = Position::new(plan.units.len());
    for (turn, ops) in turns(plan, plan.pipeline_stages[pipeline].ops(pass)) {
        let others = if pass == Pass::Publish { "What this rank owns." } else { "The update." };
        lines.line(&format!("// {}", turn.map_or(others.to_owned(), |turn| heading(plan, turn))));
        for &op in ops {
            let bytes = bytes::of_op(plan, pipeline, pass, op, &position);
            lines.call("rank.", name(op), &arguments(names, op, bytes));
            position.pass(op);
        }
    }
}

fn heading(plan: &Plan, turn: LineTurn) -> String {
    let direction = if turn.backward { "Backward" } else { "Forward" };
    match plan.config.chunks_per_rank() {
        1 => format!("{direction} of micro-batch {}.", turn.micro_batch),
        _ => format!("{direction} of micro-batch {} through chunk {}.", turn.micro_batch, turn.chunk),
    }
}

/// The method of an op.
fn name(op: Op) -> &'static str {
    match op {
        Op::Reduce { .. } => "reduce_scatter",
        Op::Update { piece: Some(_), .. } => "update_piece",
        Op::FetchShard { .. } => "fetch_shard",
        Op::FetchSums { .. } => "fetch_sums",
        Op::StoreSums { .. } => "store_sums",
        Op::StoreActivations { .. } => "store_activations",
        Op::FetchActivations { .. } => "fetch_activations",
        Op::StoreOffered { .. } => "store_offered",
        op => op.traits().name,
    }
}

fn arguments(names: &Names, op: Op, bytes: usize) -> Vec<String> {
    let OpTraits { class, unit, bucket, parcel, micro_batch, slot, piece, round, .. } = op.traits();
    // An op's own axis; that of the others follows from their names.
    let axis = match op {
        Op::Subtotal { axis, .. } | Op::Spread { axis, .. } => Some(axis),
        _ => None,
    };
    let slots = match class {
        Class::Gather => "SLOT",
        _ if piece.is_some() => "WINDOW",
        Class::Tier if micro_batch.is_none() => "SHARD",
        _ => "ACTIVATIONS",
    };
    [
        parcel.map(|parcel| format!("Parcel::{parcel:?}")),
        unit.map(|unit| names.unit(unit).to_owned()),
        bucket.map(|bucket| format!("BUCKET_{bucket}")),
        micro_batch.map(|micro_batch| format!("MicroBatch({micro_batch})")),
        round.map(|round| format!("Reduction({round})")),
        piece.map(|piece| format!("UnitPiece({piece})")),
        slot.map(|slot| format!("{slots}_{slot}")),
        axis.map(|axis| format!("Axis::{axis:?}")),
        Some(number(bytes)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A number with `_` between its thousands.
fn number(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}
