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

#[cfg(test)]
pub mod tests {
    use serde_json::{Value, json};
    use zero_plan::{Config, Mesh, Op, Unit};

    use super::*;

    /// A trace of a run of a plan, as a binary writes it: step `k` of 0, 1, and so on takes `k + 1` microseconds an op.
    pub fn trace(plan: &Plan, steps: usize) -> String {
        events(plan, steps).to_string()
    }

    fn events(plan: &Plan, steps: usize) -> Value {
        let mut events = Vec::new();
        for rank in 0..plan.config.mesh.ranks() {
            events
                .push(json!({"name": "process_name", "ph": "M", "pid": rank + 1, "tid": 0, "args": {"name": "rank"}}));
            let mut at = 100.0 + rank as f64;
            for step in 0..steps {
                let (ops, each) = (plan.of_rank(rank).step, (step + 1) as f64);
                let event = |name: String, tid, ts, dur: f64| json!({"name": name, "ph": "X", "pid": rank + 1, "tid": tid, "ts": ts, "dur": dur});
                events.push(event(format!("step {step}"), 3, at, each * ops.len() as f64));
                for &op in ops {
                    let tid = if matches!(op, Op::Forward { .. } | Op::Backward { .. }) { 1 } else { 2 };
                    events.push(event(plan.title(op), tid, at, each));
                    at += each;
                }
            }
        }
        json!({"displayTimeUnit": "ms", "traceEvents": events})
    }

    fn planned(stage: u8) -> PlanBuf {
        let unit = |source| Unit { field: "unit", index: Some(source), params: 100, takes: 100, source, ..Unit::NONE };
        let mesh = Mesh { pipeline: 2, ..Mesh::of_zero(2) };
        let config = Config { mesh, stage, micro_batches: 2, ..Config::PLAIN };
        PlanBuf::new("Four", config, &[unit(0), unit(1), unit(2), unit(3)])
    }

    /// What is read of a trace that is held against another plan, or the error.
    fn read_as(trace: &str, planned: &PlanBuf) -> Result<Measured, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("profile.json");
        std::fs::write(&path, trace).expect("a file");
        read(&path, planned).map_err(|error| error.to_string())
    }

    #[test]
    fn the_median_step_is_read_as_it_was() {
        let planned = planned(3);
        let measured = read_as(&planned.with(|plan| trace(plan, 3)), &planned).expect("a profile");
        assert_eq!((measured.step, measured.steps, measured.ranks.len()), (1, 3, 4));
        planned.with(|plan| {
            for (rank, columns) in measured.ranks.iter().enumerate() {
                let count = plan.of_rank(rank).step.len();
                assert_eq!((columns.start.len(), columns.end.len()), (count, count));
                assert!(columns.start.iter().zip(&columns.end).all(|(start, end)| end - start == 2000));
            }
            // Each rank begins where its first step ended, which is later where there were more ops and for later ranks.
            let first = measured.ranks.iter().map(|columns| columns.start[0]).min();
            let last = measured.ranks.iter().filter_map(|columns| columns.end.last().copied()).max();
            assert_eq!((first, last), (Some(0), Some(measured.end)));
        });
    }

    #[test]
    fn z0170_a_profile_that_cannot_be_read() {
        let planned = planned(3);
        let refused = |text: &str| read_as(text, &planned).expect_err("no profile");
        for (text, what) in [
            ("(zero: (stage: 3))", "expected value"),
            ("{}", "missing field `traceEvents`"),
            (r#"{"traceEvents": []}"#, "it has no steps"),
            (r#"{"traceEvents": [{"name": "forward x", "ph": "X", "pid": 1}]}"#, "belongs to no step"),
        ] {
            let error = refused(text);
            assert!(error.starts_with("error[Z0170]: cannot read the profile ") && error.contains(what), "{error}");
        }
        let missing = read(Path::new("/no/such/profile.json"), &planned).expect_err("no file").to_string();
        assert!(missing.starts_with("error[Z0170]") && missing.contains("No such file"), "{missing}");
    }

    #[test]
    fn z0171_a_profile_of_another_plan() {
        let refused = |trace: &Value| read_as(&trace.to_string(), &planned(3)).expect_err("another plan");
        let of_stage_1 = refused(&planned(1).with(|plan| events(plan, 1)));
        assert!(
            of_stage_1.starts_with("error[Z0171]: the profile ") && of_stage_1.contains("op 0 of rank 0"),
            "{of_stage_1}"
        );
        let own = || planned(3).with(|plan| events(plan, 2));
        let mut fewer_ranks = own();
        fewer_ranks["traceEvents"].as_array_mut().expect("events").retain(|event| event["pid"] != 4);
        assert!(refused(&fewer_ranks).contains("it has 3 ranks, and the plan 4"));
        let mut cut = own();
        cut["traceEvents"].as_array_mut().expect("events").pop();
        assert!(refused(&cut).contains("a step of rank 3 has"), "{}", refused(&cut));
        let mut without_step = own();
        without_step["traceEvents"]
            .as_array_mut()
            .expect("events")
            .retain(|event| event["pid"] != 2 || event["name"] != "step 1");
        assert!(refused(&without_step).contains("rank 1"));
    }
}
