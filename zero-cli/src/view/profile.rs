//! Profile: what a run of a plan took, read from the trace that its binary has written. Never measures, and never believes a
//! trace of another plan.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use zero_plan::{Plan, PlanBuf};

use crate::error::Error;

/// One step of a run: the median of those that it has.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Number of the step in its run.
    pub step: usize,
    /// Steps that the profile has.
    pub steps: usize,
    /// How long it took, from the first op of any rank to the last, in nanoseconds.
    pub end: u64,
    /// When the ops of each rank ran, from the first op of any rank on.
    pub ranks: Vec<Columns>,
}

/// When ops ran, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Columns {
    /// When each began.
    pub start: Vec<u64>,
    /// When each ended.
    pub end: Vec<u64>,
}

#[derive(Deserialize)]
struct Trace {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

/// An event, with times in microseconds.
#[derive(Deserialize)]
struct Event {
    name: String,
    ph: String,
    pid: usize,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
}

/// The steps of a rank: their numbers, each with its ops.
type Steps = BTreeMap<usize, Vec<Event>>;

/// Reads a profile of a run of a plan.
///
/// # Errors
/// Z0170 where it is no profile, Z0171 where it is one of another plan.
pub fn read(path: &Path, planned: &PlanBuf) -> Result<Measured, Error> {
    let unreadable = |what: String| Error::Profile { path: path.to_owned(), what };
    let text = std::fs::read(path).map_err(|source| unreadable(source.to_string()))?;
    let trace: Trace = serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))?;
    let ranks = ranks(trace).map_err(unreadable)?;
    let foreign = |what| Error::OtherProfile { path: path.to_owned(), what };
    planned.with(|plan| measured(plan, &ranks)).map_err(foreign)
}

/// The events by rank and step.
fn ranks(trace: Trace) -> Result<Vec<Steps>, String> {
    let mut ranks: BTreeMap<usize, Steps> = BTreeMap::new();
    for event in trace.events.into_iter().filter(|event| event.ph == "X") {
        let steps = ranks.entry(event.pid).or_default();
        match event.name.strip_prefix("step ").and_then(|number| number.parse().ok()) {
            Some(number) => _ = steps.insert(number, Vec::new()),
            // The ops of a step follow it.
            None => match steps.last_entry() {
                Some(mut step) => step.get_mut().push(event),
                None => return Err(format!("the op `{}` belongs to no step", event.name)),
            },
        }
    }
    match ranks.values().all(|steps| !steps.is_empty()) && !ranks.is_empty() {
        true => Ok(ranks.into_values().collect()),
        false => Err("it has no steps".to_owned()),
    }
}

/// The median step, or what shows that the profile is of another plan.
fn measured(plan: &Plan, ranks: &[Steps]) -> Result<Measured, String> {
    let planned = plan.config.mesh.ranks();
    if ranks.len() != planned {
        return Err(format!("it has {} ranks, and the plan {planned}", ranks.len()));
    }
    let mut steps = Vec::new();
    for (&number, _) in &ranks[0] {
        for (rank, of_rank) in ranks.iter().enumerate() {
            let ops = of_rank.get(&number).ok_or_else(|| format!("rank {rank} has no step {number}"))?;
            compare(plan, rank, ops)?;
        }
        steps.push((length(ranks, number), number));
    }
    steps.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let (_, number) = steps[(steps.len() - 1) / 2];
    let zero = bounds(ranks, number).0;
    let ns = |microseconds: f64| ((microseconds - zero) * 1e3).round() as u64;
    let columns = |steps: &Steps| Columns {
        start: steps[&number].iter().map(|event| ns(event.ts)).collect(),
        end: steps[&number].iter().map(|event| ns(event.ts + event.dur)).collect(),
    };
    let end = ns(bounds(ranks, number).1);
    Ok(Measured { step: number, steps: steps.len(), end, ranks: ranks.iter().map(columns).collect() })
}

/// Holds the ops of a rank against those of the plan.
fn compare(plan: &Plan, rank: usize, ops: &[Event]) -> Result<(), String> {
    let planned = plan.of_rank(rank).step;
    for (number, (event, &op)) in ops.iter().zip(planned).enumerate() {
        let title = plan.title(op);
        if event.name != title {
            return Err(format!("op {number} of rank {rank} is `{}` in it, and `{title}` in the plan", event.name));
        }
    }
    match ops.len() == planned.len() {
        true => Ok(()),
        false => Err(format!("a step of rank {rank} has {} ops in it, and {} in the plan", ops.len(), planned.len())),
    }
}

/// When the first op of a step began and the last one ended, on any rank, in microseconds.
fn bounds(ranks: &[Steps], number: usize) -> (f64, f64) {
    let ops = || ranks.iter().filter_map(|steps| steps.get(&number)).flatten();
    let start = ops().map(|event| event.ts).fold(f64::INFINITY, f64::min);
    (start, ops().map(|event| event.ts + event.dur).fold(0.0, f64::max))
}

fn length(ranks: &[Steps], number: usize) -> f64 {
    let (start, end) = bounds(ranks, number);
    end - start
}
