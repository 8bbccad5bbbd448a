//! Operations: a timeline for no machine in particular: computation takes as long as it has operations, and all else takes no
//! time. So it shows the order of a schedule, and its bubble. Never knows bytes.

use crate::layout::OUTGOING_SLOTS;
use crate::picture::scratch::{Lane, Span, Timeline};
use crate::plan::Plan;
use crate::schedule::{Op, Parcel};

/// The timeline of a training step, in operations. Ranks of a pipeline stage do the same at the same time, so they never wait
/// for one another; parcels are all that is waited for, and the agreement.
pub fn operations(plan: &Plan) -> Timeline {
    let stages = plan.stages.len();
    let mut lanes: Vec<Lanes> = vec![Lanes::default(); stages];
    let mut moved = true;
    while moved {
        moved = false;
        for stage in 0..stages {
            while let Some(span) = next(plan, &lanes, stage) {
                lanes[stage].push(plan.stages[stage].step, span);
                moved = true;
            }
        }
    }
    let step_s = lanes.iter().map(|lane| lane.clock).fold(0.0, f64::max);
    let lanes = lanes.into_iter().map(|lane| Lane { spans: lane.spans, transfers: Vec::new() }).collect();
    Timeline { lanes, step_s }
}

/// How far a pipeline stage is, and what others wait for of it.
#[derive(Clone, Default)]
struct Lanes {
    spans: Vec<Span>,
    clock: f64,
    /// When parcels were sent and taken, by kind.
    sent: [Vec<f64>; Parcel::ALL.len()],
    taken: [Vec<f64>; Parcel::ALL.len()],
    /// When it has come to its agreement.
    agrees: Option<f64>,
}

impl Lanes {
    fn push(&mut self, ops: &[Op], span: Span) {
        match ops[self.spans.len()] {
            Op::Send { parcel, .. } => self.sent[parcel as usize].push(span.end_s),
            Op::Receive { parcel, .. } => self.taken[parcel as usize].push(span.end_s),
            _ => {}
        }
        self.clock = span.end_s;
        self.spans.push(span);
        if ops.get(self.spans.len()) == Some(&Op::Agree) {
            self.agrees = Some(self.clock);
        }
    }
}

/// The span of the next op of a pipeline stage, if what it waits for is there.
fn next(plan: &Plan, lanes: &[Lanes], stage: usize) -> Option<Span> {
    let lane = &lanes[stage];
    let op = *plan.stages[stage].step.get(lane.spans.len())?;
    let there = match op {
        Op::Receive { parcel, .. } => {
            let sent = &lanes[plan.parcel_sender(parcel, stage)].sent[parcel as usize];
            *sent.get(lane.taken[parcel as usize].len())?
        }
        Op::Clear { parcel } => match lane.sent[parcel as usize].len().checked_sub(OUTGOING_SLOTS) {
            Some(nth) => *lanes[plan.parcel_receiver(parcel, stage)].taken[parcel as usize].get(nth)?,
            None => 0.0,
        },
        Op::Agree => {
            let mut latest = 0.0;
            for (lane, stage) in lanes.iter().zip(plan.stages) {
                let is_there = lane.agrees.or((stage.step[0] == Op::Agree).then_some(0.0))?;
                latest = f64::max(latest, is_there);
            }
            latest
        }
        _ => 0.0,
    };
    let start_s = lane.clock.max(there);
    Some(Span { start_s, end_s: start_s + cost(plan, op) as f64, waited_s: start_s - lane.clock })
}

/// Operations of computation. A backward pass does twice the work of a forward pass.
fn cost(plan: &Plan, op: Op) -> usize {
    match op {
        Op::Forward { unit, .. } | Op::Recompute { unit, .. } => plan.units[unit].operations,
        Op::Backward { unit, .. } => 2 * plan.units[unit].operations,
        _ => 0,
    }
}
