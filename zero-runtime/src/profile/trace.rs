//! Trace: the ops of all ranks on one axis of time, in the trace event format that Perfetto and Chrome open: an object
//! with `traceEvents`, where an event of phase `X` has a start and a duration in microseconds. Never measures.

use std::io::{self, Write};

use serde::Serialize;
use zero_plan::{Axis, Coordinates, Op, Plan};

use super::clocks::within_ns;
use super::{HostClock, RecordedRun, Span, Work};

/// The rows of a rank. Viewers take process 0 and thread 0 for those of an idle kernel, so numbers begin at 1.
const COMPUTE: usize = 1;
const COMMUNICATION: usize = 2;
const STEPS: usize = 3;

/// A trace, to be written.
pub struct Trace<'a>(pub RecordedRun<'a>);

#[derive(Serialize)]
struct TraceEvent {
    name: String,
    ph: &'static str,
    pid: usize,
    tid: usize,
    #[serde(flatten)]
    time: Option<TraceTime>,
    args: Details,
}

/// Start and duration, in microseconds.
#[derive(Serialize)]
struct TraceTime {
    ts: f64,
    dur: f64,
}

/// The details of an event.
#[derive(Default, Serialize)]
struct Details {
    /// The name under which a process or thread is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bucket: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    micro_batch: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slot: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gflop: Option<f64>,
    /// Time of all cores for the rank since the op before this one ended, added up, in microseconds: in every second
    /// step.
    #[serde(skip_serializing_if = "Option::is_none")]
    core_us: Option<f64>,
}

/// How the clocks of several hosts were mapped onto one axis of time. Times are in microseconds.
#[derive(Serialize)]
struct TraceClocks {
    /// How far apart two times of two hosts may really be that are equal here.
    clocks_within_us: f64,
    /// The shift of each host.
    clocks: Vec<ClockShift>,
}

/// The shift that was added to times of a host.
#[derive(Serialize)]
struct ClockShift {
    /// Before the first step, and after the last one.
    offsets_us: [f64; 2],
    /// The most by which either may be wrong.
    error_us: f64,
}

impl TraceClocks {
    fn of(clocks: &[HostClock]) -> Self {
        let clock = |clock: &HostClock| ClockShift {
            offsets_us: [clock.first, clock.last].map(|look| look.offset_ns as f64 / 1e3),
            error_us: microseconds(clock.error_ns()),
        };
        Self { clocks_within_us: microseconds(within_ns(clocks)), clocks: clocks.iter().map(clock).collect() }
    }
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}

impl Trace<'_> {
    /// Writes it, one event per line.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let RecordedRun { plan, ranks, clocks, .. } = self.0;
        out.write_all(b"{\"displayTimeUnit\": \"ms\", ")?;
        if !clocks.is_empty() {
            out.write_all(b"\"otherData\": ")?;
            serde_json::to_writer(&mut *out, &TraceClocks::of(clocks))?;
            out.write_all(b", ")?;
        }
        out.write_all(b"\"traceEvents\": [")?;
        let mut before = "\n";
        let mut put = |event: TraceEvent| -> io::Result<()> {
            out.write_all(before.as_bytes())?;
            before = ",\n";
            Ok(serde_json::to_writer(&mut *out, &event)?)
        };
        for (rank, record) in ranks.iter().enumerate() {
            let (pid, at) = (rank + 1, plan.config.mesh.coordinates(rank));
            put(named(pid, 0, "process_name", &rank_name(plan, rank)))?;
            for (tid, name) in [(COMPUTE, "compute"), (COMMUNICATION, "communication"), (STEPS, "steps")] {
                put(named(pid, tid, "thread_name", name))?;
            }
            for ((number, step), ops) in (record.first_step + 1..).zip(&record.steps).zip(record.ops_of_steps()) {
                put(event(format!("step {number}"), pid, STEPS, *step, Details::default()))?;
                for (&op, span) in plan.of_rank(rank).step.iter().zip(ops) {
                    let core_us = (span.core_ns > 0).then(|| microseconds(span.core_ns));
                    let args = Details { core_us, ..details(plan, at, op) };
                    put(event(plan.title(op), pid, row(op), *span, args))?;
                }
            }
        }
        out.write_all(b"\n]}\n")
    }
}

fn event(name: String, pid: usize, tid: usize, span: Span, args: Details) -> TraceEvent {
    let time = TraceTime { ts: microseconds(span.start_ns), dur: microseconds(span.ns()) };
    TraceEvent { name, ph: "X", pid, tid, time: Some(time), args }
}

/// An event that names a process or a thread of it.
fn named(pid: usize, tid: usize, what: &str, name: &str) -> TraceEvent {
    let args = Details { name: Some(name.to_owned()), ..Details::default() };
    TraceEvent { name: what.to_owned(), ph: "M", pid, tid, time: None, args }
}

fn rank_name(plan: &Plan, rank: usize) -> String {
    let at = plan.config.mesh.coordinates(rank);
    let axes = Axis::ALL.into_iter().filter(|&axis| plan.config.mesh.len(axis) > 1);
    let places: Vec<String> = axes.map(|axis| format!("{} {}", axis.name(), at.along(axis))).collect();
    if places.is_empty() { format!("rank {rank}") } else { format!("rank {rank} ({})", places.join(", ")) }
}

fn row(op: Op) -> usize {
    if op.class().computes() { COMPUTE } else { COMMUNICATION }
}

fn details(plan: &Plan, at: Coordinates, op: Op) -> Details {
    let work = Work::of(plan, at, op);
    Details {
        unit: op.unit().map(|unit| plan.units[unit].to_string()),
        bucket: op.bucket(),
        round: op.round(),
        micro_batch: op.micro_batch(),
        slot: op.slot(),
        bytes: (work.bytes > 0).then_some(work.bytes),
        gflop: (work.operations > 0).then_some(work.operations as f64 / 1e9),
        ..Details::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use zero_plan::{Config, Mesh, PlanBuf, Unit};

    use super::*;
    use zero_engine::Record;

    #[test]
    fn an_event_says_what_its_op_computes_and_moves() {
        let unit = |source| Unit { params: 100, takes: 100, operations: 4_000_000, source, ..Unit::NONE };
        let config = Config { mesh: Mesh::of_zero(2), ..Config::PLAIN };
        PlanBuf::new("", config, &[unit(0), unit(1)]).with(|plan| {
            let ops = plan.pipeline_stages[0].step;
            let span = Span { start_ns: 0, end_ns: 1, core_ns: 0 };
            let mut record = Record::new(0, ops.len(), 1);
            (record.steps, record.ops) = (vec![span], vec![span; ops.len()]);
            let mut written = Vec::new();
            let ranks = [record.clone(), record];
            Trace(RecordedRun { plan, ranks: &ranks, machines: &[], clocks: &[] })
                .write(&mut written)
                .expect("room in memory");
            let trace: Value = serde_json::from_slice(&written).expect("JSON");
            assert!(trace.get("otherData").is_none(), "one host has one clock");
            let events = trace["traceEvents"].as_array().expect("events").iter();
            let mut events = events.filter(|event| event["ph"] == "X" && event["tid"] != STEPS);
            for at in [0, 1].map(|rank| config.mesh.coordinates(rank)) {
                for (&op, event) in ops.iter().zip(&mut events) {
                    let (work, args) = (Work::of(plan, at, op), &event["args"]);
                    assert_eq!(args["bytes"].as_u64().unwrap_or(0), work.bytes as u64, "{op:?}: {event}");
                    assert_eq!(args["gflop"].as_f64().unwrap_or(0.0) * 1e9, work.operations as f64, "{op:?}: {event}");
                    assert_eq!(args["bucket"].as_u64(), op.bucket().map(|bucket| bucket as u64), "{op:?}: {event}");
                    let computes = work.operations > 0 || matches!(op, Op::Momentum { .. } | Op::Update { .. });
                    assert_eq!(event["tid"] == COMPUTE, computes, "{op:?}: {event}");
                }
            }
            assert!(events.next().is_none() && ops.iter().any(|op| matches!(op, Op::Settle { .. })));
        });
    }
}
