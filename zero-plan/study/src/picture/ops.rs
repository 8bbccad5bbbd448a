//! Ops: the ops of a pipeline stage as columns of numbers, with their times; a description of each kind of op; and the
//! parts of a step. Never decides when an op runs.

use serde::Serialize;
use zero_plan::{Class, Op, Plan};

use super::Timed;
use crate::simulate::{Cause, StepPart, Timeline, label};

/// The kind of an op's subject, to which its index refers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum About {
    /// Units.
    Unit,
    /// Buckets.
    Bucket,
    /// No subject.
    Nothing,
}

/// A kind of ops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpVerb {
    /// The name, in a few words.
    pub name: String,
    /// Whether the name is complete without the subject after it.
    pub alone: bool,
    /// The kind of its subject.
    pub about: About,
    /// The class that it is drawn as.
    pub class: Class,
    /// A sentence about the kind, with places for the details of an op: see [`Op::words`].
    pub sentence: &'static str,
    /// The key of the spec that controls it.
    pub key: &'static str,
}

impl OpVerb {
    fn of(plan: &Plan, op: Op) -> Self {
        let about = match (op.unit(), op.bucket()) {
            (Some(_), _) => About::Unit,
            (_, Some(_)) => About::Bucket,
            _ => About::Nothing,
        };
        let class = op.class();
        let alone = matches!(class, Class::Parcel | Class::Agree);
        let name = if alone { plan.title(op) } else { op.name().to_owned() };
        let (sentence, key) = op.words(&plan.config);
        Self { name, alone, about, class, sentence, key }
    }
}

/// All verbs of a plan, in the order in which ops first use them.
pub fn verbs(plan: &Plan) -> Vec<OpVerb> {
    let mut verbs = Vec::new();
    for &op in plan.pipeline_stages.iter().flat_map(|pipeline_stage| pipeline_stage.step) {
        let verb = OpVerb::of(plan, op);
        if !verbs.contains(&verb) {
            verbs.push(verb);
        }
    }
    verbs
}

/// The ops of a pipeline stage, with a column for each property. A property that an op does not have is -1.
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
    /// The cause of the wait, for each op that waited.
    pub waits: Vec<WaitPicture>,
}

impl OpColumns {
    pub(super) fn of(plan: &Plan, pipeline: usize, verbs: &[OpVerb], timed: Timed) -> Self {
        let (Timed { timeline, clock, .. }, mut columns) = (timed, Self::default());
        let rank = plan.busiest_rank(pipeline);
        let signed = |value: Option<usize>| value.map_or(-1, |value| value as isize);
        for (number, (&op, span)) in
            plan.pipeline_stages[pipeline].step.iter().zip(&timeline.lanes[pipeline].spans).enumerate()
        {
            let verb = OpVerb::of(plan, op);
            columns.verb.push(verbs.iter().position(|known| *known == verb).unwrap_or_default());
            columns.about.push(signed(op.unit().or(op.bucket())));
            columns.micro_batch.push(signed(op.micro_batch()));
            columns.nth.push(signed(op.slot().or(op.round())));
            let (start, waits_from) = (clock.ticks(span.start_s), clock.ticks(span.start_s - span.waited_s));
            columns.start.push(start);
            columns.end.push(clock.ticks(span.end_s));
            columns.waited.push(start - waits_from.min(start));
            if waits_from < start {
                columns.waits.extend(WaitPicture::of(timeline, number, span.cause));
            }
            columns.sent.push(zero_plan::Traffic::of(plan, rank, &[op]).total_bytes());
        }
        columns
    }
}

/// The cause of an op's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WaitPicture {
    /// The op that waited.
    pub op: usize,
    /// The pipeline stage of the op that it waited for.
    pub pipeline: usize,
    /// The op whose end, or whose transfer, it waited for.
    pub of: usize,
    /// The transfer, if there was one.
    pub flow: Option<&'static str>,
}

impl WaitPicture {
    fn of(timeline: &Timeline, op: usize, cause: Cause) -> Option<Self> {
        match cause {
            Cause::Start => None,
            Cause::Op { lane, op: of } => Some(Self { op, pipeline: lane, of, flow: None }),
            Cause::Transfer { lane, transfer } => {
                let transfer = timeline.lanes[lane].transfers[transfer];
                Some(Self { op, pipeline: lane, of: transfer.op, flow: Some(transfer.flow.name()) })
            }
        }
    }
}

/// A part of the time of a rank's step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimePart {
    /// Its name.
    pub name: String,
    /// The class that it is drawn as; none if the rank waits.
    pub class: Option<Class>,
    /// How long it takes.
    pub time: u64,
}

/// The parts of a step of a rank.
pub(super) fn time(plan: &Plan, pipeline: usize, timed: Timed) -> Vec<TimePart> {
    let parts = timed.timeline.parts(plan, pipeline).0.into_iter();
    let part = |(part, time)| TimePart { name: label(part), class: class_of(part), time: timed.clock.ticks(time) };
    parts.map(part).collect()
}

const fn class_of(part: StepPart) -> Option<Class> {
    match part {
        StepPart::Forward => Some(Class::Forward),
        StepPart::Backward => Some(Class::Backward),
        StepPart::Recompute => Some(Class::Recompute),
        StepPart::Update => Some(Class::Update),
        StepPart::Memory => Some(Class::Reduce),
        StepPart::Exposed(..) | StepPart::Bubble => None,
    }
}
