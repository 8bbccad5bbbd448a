//! Profile: the times of a run of a plan, read from the trace that its binary wrote. Never measures, and rejects a
//! trace of another plan.

use std::path::Path;

use serde::Serialize;
use zero_plan::{Plan, PlanBuf};

use crate::error::CommandError;
use crate::measure::{RecordedOp, RecordedProfile, RecordedStep};

/// The step of median length of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredStep {
    /// Its number among the steps of the profile, from 1.
    pub step: usize,
    /// Number of steps in the profile.
    pub steps: usize,
    /// How long it took, from the first op of any rank to the last, in nanoseconds.
    pub end: u64,
    /// When the ops of each rank ran, counted from the first op of any rank.
    pub ranks: Vec<TimeColumns>,
}

/// When ops ran, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TimeColumns {
    /// When each began.
    pub start: Vec<u64>,
    /// When each ended.
    pub end: Vec<u64>,
}

/// Reads a profile of a run of a plan.
///
/// # Errors
/// Z0170 if the file is not a profile, Z0171 if it is a profile of another plan.
pub fn read(path: &Path, planned: &PlanBuf) -> Result<MeasuredStep, CommandError> {
    let recorded = RecordedProfile::read(path).map_err(|what| CommandError::Profile { path: path.to_owned(), what })?;
    let foreign = |what| CommandError::OtherProfile { path: path.to_owned(), what };
    planned.with(|plan| measured(plan, &recorded.ranks)).map_err(foreign)
}

/// The median step, or how the profile differs from the plan.
fn measured(plan: &Plan, ranks: &[Vec<RecordedStep>]) -> Result<MeasuredStep, String> {
    let (planned, count) = (plan.config.mesh.ranks(), ranks.first().map_or(0, Vec::len));
    if ranks.len() != planned {
        return Err(format!("it has {} ranks, but the plan has {planned}", ranks.len()));
    }
    for (rank, steps) in ranks.iter().enumerate() {
        if steps.len() != count {
            return Err(format!("rank {rank} has {} steps in it, but rank 0 has {count}", steps.len()));
        }
        steps.iter().try_for_each(|step| compare(plan, rank, step))?;
    }
    let mut steps: Vec<usize> = (0..count).collect();
    let length = |step: usize| bounds(ranks, step).1 - bounds(ranks, step).0;
    steps.sort_by(|&a, &b| length(a).total_cmp(&length(b)));
    let step = steps[(count - 1) / 2];
    let (first, last) = bounds(ranks, step);
    let ns = |seconds: f64| ((seconds - first) * 1e9).round() as u64;
    let columns = |steps: &Vec<RecordedStep>| TimeColumns {
        start: steps[step].ops.iter().map(|op| ns(op.start_s)).collect(),
        end: steps[step].ops.iter().map(|op| ns(op.end_s())).collect(),
    };
    Ok(MeasuredStep { step: step + 1, steps: count, end: ns(last), ranks: ranks.iter().map(columns).collect() })
}

/// Compares the ops of a rank with the ops of the plan.
fn compare(plan: &Plan, rank: usize, step: &RecordedStep) -> Result<(), String> {
    let (planned, ops) = (plan.of_rank(rank).step, &step.ops);
    for (number, (RecordedOp { name, .. }, &op)) in ops.iter().zip(planned).enumerate() {
        let title = plan.title(op);
        if *name != title {
            return Err(format!("op {number} of rank {rank} is `{name}` in it, but `{title}` in the plan"));
        }
    }
    match ops.len() == planned.len() {
        true => Ok(()),
        false => Err(format!("a step of rank {rank} has {} ops in it, but {} in the plan", ops.len(), planned.len())),
    }
}

/// When the first op of a step began and the last op ended, on any rank, in seconds.
fn bounds(ranks: &[Vec<RecordedStep>], step: usize) -> (f64, f64) {
    let ops = || ranks.iter().flat_map(|steps| &steps[step].ops);
    let first = ops().map(|op| op.start_s).fold(f64::INFINITY, f64::min);
    (first, ops().map(RecordedOp::end_s).fold(0.0, f64::max))
}

#[cfg(test)]
pub mod tests {
    use serde_json::{Value, json};
    use zero_plan::{Config, Mesh, Op, Unit};

    use super::*;

    /// A trace of a run of a plan, as a binary writes it: each op of step `k`, from 0 on, takes `k + 1` microseconds.
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

    /// Reads a trace as one of this plan.
    fn read_as(trace: &str, planned: &PlanBuf) -> Result<MeasuredStep, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("profile.json");
        std::fs::write(&path, trace).expect("a file");
        read(&path, planned).map_err(|error| error.to_string())
    }

    #[test]
    fn the_median_step_is_read_as_it_was() {
        let planned = planned(3);
        let measured = read_as(&planned.with(|plan| trace(plan, 3)), &planned).expect("a profile");
        assert_eq!((measured.step, measured.steps, measured.ranks.len()), (2, 3, 4));
        planned.with(|plan| {
            for (rank, columns) in measured.ranks.iter().enumerate() {
                let count = plan.of_rank(rank).step.len();
                assert_eq!((columns.start.len(), columns.end.len()), (count, count));
                assert!(columns.start.iter().zip(&columns.end).all(|(start, end)| end - start == 2000));
            }
            // Each rank begins at the end of its first step, which is later for more ops and for later ranks.
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
            (r#"{"traceEvents": []}"#, "it has no step"),
            (r#"{"traceEvents": [{"name": "forward x", "ph": "X", "pid": 1}]}"#, "an op before the first step"),
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
        assert!(refused(&fewer_ranks).contains("it has 3 ranks, but the plan has 4"));
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
