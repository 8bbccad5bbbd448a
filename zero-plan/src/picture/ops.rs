//! Ops: the ops of a pipeline stage as columns of numbers, with when each of them runs; what they do, once for each kind; and
//! what a step is made of. Never decides when an op runs.

use serde::Serialize;

use super::{Clock, Timed};
use crate::picture::scratch::Lane;
use crate::plan::Plan;
use crate::schedule::Op;

/// What an op is drawn as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Computation of activations.
    Forward,
    /// The same once more.
    Recompute,
    /// Computation of gradients.
    Backward,
    /// The optimizer.
    Update,
    /// Parameters on their way to where they are computed with.
    Gather,
    /// Gradients on their way to their sums.
    Reduce,
    /// What travels between pipeline stages.
    Parcel,
    /// Loss and norm, of all ranks.
    Agree,
}

impl Class {
    /// All of them, in the order of a legend.
    pub const ALL: [Class; 8] = [
        Class::Forward,
        Class::Recompute,
        Class::Backward,
        Class::Update,
        Class::Gather,
        Class::Reduce,
        Class::Parcel,
        Class::Agree,
    ];

    /// Of an op.
    pub const fn of(op: Op) -> Self {
        match op {
            Op::Forward { .. } => Class::Forward,
            Op::Recompute { .. } => Class::Recompute,
            Op::Backward { .. } => Class::Backward,
            Op::Update { .. } => Class::Update,
            Op::Gather { .. } | Op::Wait { .. } | Op::Convert { .. } | Op::Release { .. } => Class::Gather,
            Op::Claim { .. } | Op::Reduce { .. } | Op::Settle { .. } | Op::Combine { .. } => Class::Reduce,
            Op::Fold { .. } | Op::Spread { .. } => Class::Reduce,
            Op::Receive { .. } | Op::Clear { .. } | Op::Send { .. } => Class::Parcel,
            Op::Agree => Class::Agree,
        }
    }

    /// Whether a device computes in it.
    pub const fn computes(self) -> bool {
        matches!(self, Class::Forward | Class::Recompute | Class::Backward | Class::Update)
    }

    /// What it is in a legend.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Forward => "forward",
            Class::Recompute => "recompute",
            Class::Backward => "backward",
            Class::Update => "update",
            Class::Gather => "parameters",
            Class::Reduce => "gradients",
            Class::Parcel => "parcels",
            Class::Agree => "agreement",
        }
    }
}

/// What the index of an op's subject counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum About {
    /// Units.
    Unit,
    /// Buckets.
    Bucket,
    /// There is none.
    Nothing,
}

/// What ops of one kind do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verb {
    /// In a few words.
    pub name: String,
    /// Whether the name says it all, or the subject belongs behind it.
    pub alone: bool,
    /// What it is about.
    pub about: About,
    /// What it is drawn as.
    pub class: Class,
    /// What it does, with places for the details of an op: see [`Op::sentence`].
    pub sentence: &'static str,
    /// The key of the spec that decides it.
    pub key: &'static str,
}

impl Verb {
    fn of(plan: &Plan, op: Op) -> Self {
        let about = match (op.unit(), op.bucket()) {
            (Some(_), _) => About::Unit,
            (_, Some(_)) => About::Bucket,
            _ => About::Nothing,
        };
        let alone = matches!(op, Op::Receive { .. } | Op::Send { .. } | Op::Clear { .. } | Op::Agree);
        let name = if alone { plan.title(op) } else { op.name().to_owned() };
        let (sentence, key) = (op.sentence(&plan.config), op.decided_by(&plan.config));
        Self { name, alone, about, class: Class::of(op), sentence, key }
    }
}

/// All verbs of a plan, in the order in which ops first use them.
pub fn verbs(plan: &Plan) -> Vec<Verb> {
    let mut verbs = Vec::new();
    for &op in plan.stages.iter().flat_map(|stage| stage.step) {
        let verb = Verb::of(plan, op);
        if !verbs.contains(&verb) {
            verbs.push(verb);
        }
    }
    verbs
}

/// The ops of a pipeline stage, a column for each property. What an op does not have is -1.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OpColumns {
    /// Index of its verb.
    pub verb: Vec<usize>,
    /// Unit or bucket.
    pub about: Vec<isize>,
    /// Micro-batch.
    pub micro_batch: Vec<isize>,
    /// Slot, or round of a reduction.
    pub nth: Vec<isize>,
    /// When it begins, after it has waited.
    pub start: Vec<u64>,
    /// When it ends.
    pub end: Vec<u64>,
    /// How long it waits before it begins.
    pub waited: Vec<u64>,
    /// Bytes that it sends.
    pub sent: Vec<usize>,
}

impl OpColumns {
    pub(super) fn of(plan: &Plan, pipeline: usize, verbs: &[Verb], lane: &Lane, clock: Clock) -> Self {
        let signed = |value: Option<usize>| value.map_or(-1, |value| value as isize);
        let mut columns = Self::default();
        for (&op, span) in plan.stages[pipeline].step.iter().zip(&lane.spans) {
            let verb = Verb::of(plan, op);
            columns.verb.push(verbs.iter().position(|known| *known == verb).unwrap_or_default());
            columns.about.push(signed(op.unit().or(op.bucket())));
            columns.micro_batch.push(signed(op.micro_batch()));
            columns.nth.push(signed(op.slot().or(op.round())));
            let (start, waits_from) = (clock.ticks(span.start_s), clock.ticks(span.start_s - span.waited_s));
            columns.start.push(start);
            columns.end.push(clock.ticks(span.end_s));
            columns.waited.push(start - waits_from.min(start));
            columns.sent.push(crate::traffic::Traffic::of(plan, &[op]).total_bytes());
        }
        columns
    }
}

/// What a step of a rank is made of. The sum of all parts is the step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TimeParts {
    /// Computing.
    pub computes: u64,
    /// In ops that communicate, copy or sum.
    pub moves: u64,
    /// Waiting for parameters.
    pub waits_for_parameters: u64,
    /// Waiting for gradients of other ranks.
    pub waits_for_gradients: u64,
    /// Waiting for another pipeline stage: within a step, its bubble.
    pub waits_for_parcels: u64,
    /// Waiting for all to agree, and for the last of them to end the step.
    pub waits_for_all: u64,
}

impl TimeParts {
    pub(super) fn of(plan: &Plan, pipeline: usize, timed: Timed) -> Self {
        let ticks = |time| timed.clock.ticks(time);
        let (mut parts, mut at) = (Self::default(), 0);
        for (&op, span) in plan.stages[pipeline].step.iter().zip(&timed.timeline.lanes[pipeline].spans) {
            let (start, end) = (ticks(span.start_s), ticks(span.end_s));
            let class = Class::of(op);
            *parts.waits_in(class) += start - at;
            *if class.computes() { &mut parts.computes } else { &mut parts.moves } += end - start;
            at = end;
        }
        parts.waits_for_all += ticks(timed.timeline.step_s) - at;
        parts
    }

    fn waits_in(&mut self, class: Class) -> &mut u64 {
        match class {
            Class::Forward | Class::Recompute | Class::Backward | Class::Update => &mut self.moves,
            Class::Gather => &mut self.waits_for_parameters,
            Class::Reduce => &mut self.waits_for_gradients,
            Class::Parcel => &mut self.waits_for_parcels,
            Class::Agree => &mut self.waits_for_all,
        }
    }

    /// All of them.
    pub const fn total(&self) -> u64 {
        self.computes
            + self.moves
            + self.waits_for_parameters
            + self.waits_for_gradients
            + self.waits_for_parcels
            + self.waits_for_all
    }
}
