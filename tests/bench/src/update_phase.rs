//! Update phase: how fast a disk works from the agreement of a step's ranks to the step's end, by a profile of a run and the bytes of
//! its plan. Never runs anything.

use serde_json::Value;
use zero_runtime::plan::{Op, Plan};

use crate::Outcome;
use crate::figures::median;

/// Bytes a second that all ranks of a plan without a pipeline fetch and store in this phase, both together: the median of steps.
///
/// # Errors
/// If the profile is not one of this plan.
pub fn bytes_per_s(plan: &Plan, profile: &Value) -> Outcome<f64> {
    let events = profile["traceEvents"].as_array().ok_or("no events in the profile")?;
    let mut seconds = Vec::new();
    for rank in 0..plan.config.mesh.ranks() {
        let ends = |name: &str| -> Vec<f64> {
            let of_rank = events.iter().filter(|event| event["pid"] == rank + 1 && event["ph"] == "X");
            let named = of_rank.filter(|event| event["name"].as_str().is_some_and(|found| found.starts_with(name)));
            named.filter_map(|event| Some(event["ts"].as_f64()? + event["dur"].as_f64()?)).collect()
        };
        let (steps, agreements) = (ends("step "), ends("agree"));
        if steps.is_empty() || steps.len() != agreements.len() {
            return Err("a profile without one agreement a step".into());
        }
        seconds.extend(steps.iter().zip(agreements).map(|(step, agreement)| (step - agreement) / 1e6));
    }
    Ok((0..plan.config.mesh.ranks()).map(|rank| bytes(plan, rank)).sum::<usize>() as f64 / median(seconds))
}

/// Bytes that a rank fetches and stores after the agreement.
fn bytes(plan: &Plan, rank: usize) -> usize {
    let own = plan.places(plan.config.mesh.coordinates(rank));
    let after = plan.of_rank(rank).step.iter().skip_while(|op| !matches!(op, Op::Agree));
    after.flat_map(|&op| own.trips(op)).map(|(kept, _)| kept.len_bytes).sum()
}
