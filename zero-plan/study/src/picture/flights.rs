//! Flights: transfers with their start and end, in tracks without overlaps. If a machine is known, they are transfers
//! over its links; otherwise they last from the op that starts a transfer to the op that has waited for it.

use serde::Serialize;
use zero_plan::{Axis, Class, Op, Parcel, Plan, Traffic};

use super::{TimeAxis, Timed};
use crate::simulate::{Lane, Timeline};

/// The transfers of a pipeline stage's ranks, with a column for each property.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Flights {
    /// Number of the op that starts the transfer.
    pub op: Vec<usize>,
    /// The class that it is drawn as.
    pub class: Vec<Class>,
    /// When it starts.
    pub start: Vec<u64>,
    /// When it has arrived.
    pub end: Vec<u64>,
    /// The track within its class.
    pub track: Vec<usize>,
    /// Bytes that a rank sends.
    pub bytes: Vec<usize>,
    /// The link that carries it, if known.
    pub link: Vec<&'static str>,
}

/// The most tracks of a class. If more flights overlap, the remaining flights overlap in the last track.
const TRACKS_MAX: usize = 4;

impl Flights {
    pub(super) fn of(plan: &Plan, pipeline: usize, timed: Timed) -> Self {
        let lane = &timed.timeline.lanes[pipeline];
        let mut found = match timed.hardware {
            Some(_) => transfers(plan, pipeline, lane),
            None => waits(plan, pipeline, timed.timeline),
        };
        found.sort_by(|a, b| a.start.total_cmp(&b.start).then(a.op.cmp(&b.op)));
        let mut flights = Self::default();
        let mut ends = [[0; TRACKS_MAX]; Class::ALL.len()];
        for Flight { op, class, start, end, bytes, link } in found {
            flights.push(timed.clock, op, class, [start, end], &mut ends[class as usize]);
            flights.bytes.push(bytes);
            flights.link.push(link);
        }
        flights
    }

    fn push(&mut self, clock: TimeAxis, op: usize, class: Class, [start, end]: [f64; 2], ends: &mut [u64; TRACKS_MAX]) {
        let (start, end) = (clock.ticks(start), clock.ticks(end));
        let track = ends.iter().position(|&end| end <= start).unwrap_or(TRACKS_MAX - 1);
        ends[track] = end;
        self.op.push(op);
        self.class.push(class);
        self.start.push(start);
        self.end.push(end);
        self.track.push(track);
    }
}

struct Flight {
    op: usize,
    class: Class,
    start: f64,
    end: f64,
    bytes: usize,
    link: &'static str,
}

/// The transfers over links.
fn transfers(plan: &Plan, pipeline: usize, lane: &Lane) -> Vec<Flight> {
    let flight = |transfer: &crate::simulate::Transfer| Flight {
        op: transfer.op,
        class: plan.pipeline_stages[pipeline].step[transfer.op].class(),
        start: transfer.start_s,
        end: transfer.end_s,
        bytes: transfer.bytes,
        link: transfer.link.name(),
    };
    lane.transfers.iter().map(flight).collect()
}

/// Flights from each op that starts a transfer to the op that ends it.
fn waits(plan: &Plan, pipeline: usize, timeline: &Timeline) -> Vec<Flight> {
    let ops = plan.pipeline_stages[pipeline].step;
    let (spans, rank) = (&timeline.lanes[pipeline].spans, plan.busiest_rank(pipeline));
    let flight = |(number, &op): (usize, &Op)| {
        let end = match op {
            Op::Send { parcel, .. } => taken(plan, pipeline, timeline, parcel, number)?,
            _ => {
                let ends = |&(_, other): &(usize, &Op)| ends(op, *other);
                let (last, _) = ops.iter().enumerate().skip(number).find(ends)?;
                spans[last].end_s
            }
        };
        let bytes = Traffic::of(plan, rank, &[op]).total_bytes();
        Some(Flight { op: number, class: op.class(), start: spans[number].start_s, end, bytes, link: "" })
    };
    ops.iter().enumerate().filter_map(flight).collect()
}

/// Whether `op` starts a transfer that `other` waits for, if `other` is the first such op after `op`.
fn ends(op: Op, other: Op) -> bool {
    match (op, other) {
        (Op::Gather { unit, .. }, Op::Wait { unit: waits }) => unit == waits,
        // If hosts compute parts of a sum, their subtotal comes first.
        (Op::Reduce { bucket, round }, Op::Settle { bucket: sums, round: nth })
        | (Op::Reduce { bucket, round }, Op::Subtotal { bucket: sums, round: nth, axis: Axis::Zero })
        | (Op::Subtotal { bucket, round, axis: Axis::Zero }, Op::Settle { bucket: sums, round: nth })
        | (Op::Settle { bucket, round }, Op::Combine { bucket: sums, round: nth })
        | (Op::Settle { bucket, round }, Op::Subtotal { bucket: sums, round: nth, axis: Axis::Replica })
        | (Op::Subtotal { bucket, round, axis: Axis::Replica }, Op::Combine { bucket: sums, round: nth }) => {
            (bucket, round) == (sums, nth)
        }
        // A spread starts and waits in one op.
        (Op::Spread { .. }, _) => op == other,
        _ => false,
    }
}

/// When the receiver has taken the parcel that op `number` sent.
fn taken(plan: &Plan, pipeline: usize, timeline: &Timeline, parcel: Parcel, number: usize) -> Option<f64> {
    let is_sent = |op: &&Op| matches!(op, Op::Send { parcel: other, .. } if *other == parcel);
    let nth = plan.pipeline_stages[pipeline].step[..number].iter().filter(is_sent).count();
    let receiver = plan.parcel_receiver(parcel, pipeline);
    let receives = plan.pipeline_stages[receiver].step.iter().zip(&timeline.lanes[receiver].spans);
    let mut receives = receives.filter(|(op, _)| matches!(op, Op::Receive { parcel: other, .. } if *other == parcel));
    receives.nth(nth).map(|(_, span)| span.end_s)
}
