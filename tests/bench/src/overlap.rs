//! Overlap: how much of the communication over an emulated link is exposed, by prefetch and by bucket size, beside the prediction
//! from an earlier measured description of this machine. Ranks are threads and the link is a clock, so this measures the schedule,
//! not a network.

use zero_core::model::Model;
use zero_core::random::mix;
use zero_engine::Engine;
use zero_ranks::transport::{Transport, local};
use zero_runtime::plan::{Bytes, Config, PlanBuf, Traffic};
use zero_study::hardware::{self, Hardware};
use zero_study::simulate::simulate_with;

use crate::Outcome;
use crate::emulated::{Emulated, Link};
use crate::figures::median;
use crate::models::overlap::Gpt;
use crate::predicted::machine;
use crate::schedule::HYPER;

/// A link whose gathers take about as long as the computation of a unit or two.
const NEAR: Link = Link { latency_us: 500.0, bandwidth_gb_per_s: 0.5 };
/// A link that is busy for longer than a step computes.
const NARROW: Link = Link { latency_us: 500.0, bandwidth_gb_per_s: 0.1 };
/// A link whose latency is more than the backward of a small unit hides.
const FAR: Link = Link { latency_us: 5000.0, bandwidth_gb_per_s: 0.5 };

/// The example with the same model, and its size there.
const SPEC: &str = "(model: Example(\"gpt\"), mesh: (zero: 2), zero: (stage: 3), batch: (sequences: 4, length: 64))\n";
const SIZE: &str = "0.7M";

/// The result of a configuration, in milliseconds a step.
struct Sample {
    step_ms: f64,
    exposed_ms: f64,
}

/// Measures and prints the table.
///
/// # Errors
/// If something fails to run.
pub fn measure(rounds: u32, steps: u32) -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("overlap.ron");
    std::fs::write(&path, SPEC)?;
    let machine = machine([path.as_path()], Some(SIZE))?;
    println!(
        "| link | prefetch | bucket | sent a step | link busy, ms | exposed, ms | predicted | step, ms | predicted |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let base = Gpt::PLAN.config;
    for link in [NEAR, NARROW] {
        for prefetch in [0, 1, 2, 4] {
            row(link, Config { prefetch, bucket_bytes: 512 << 10, ..base }, (rounds, steps), &machine)?;
        }
    }
    for bucket_bytes in [64 << 10, 256 << 10, 512 << 10, 1 << 20] {
        row(FAR, Config { prefetch: 12, bucket_bytes, ..base }, (rounds, steps), &machine)?;
    }
    Ok(())
}

fn row(link: Link, config: Config, (rounds, steps): (u32, u32), machine: &Hardware) -> Outcome<()> {
    let plan = PlanBuf::new(Gpt::PLAN.model, config, Gpt::PLAN.units);
    // The prediction is made before the runs, and does not depend on them.
    let (predicted_exposed, predicted_step) = predict(&plan, link, machine)?;
    let sent = plan.with(|plan| Traffic::of(plan, 0, plan.pipeline_stages[0].step).total_bytes());
    let mut samples = Vec::new();
    for _ in 0..rounds {
        samples.push(run(link, &plan, steps)?);
    }
    let busy_ms = sent as f64 / (link.bandwidth_gb_per_s * 1e6);
    let middle = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure).collect());
    let (exposed_ms, step_ms) = (middle(|sample| sample.exposed_ms), middle(|sample| sample.step_ms));
    let (Config { prefetch, bucket_bytes, .. }, Link { latency_us, bandwidth_gb_per_s }) = (config, link);
    println!(
        "| {latency_us} us, {bandwidth_gb_per_s} GB/s | {prefetch} | {} | {} | {busy_ms:.1} | {exposed_ms:.1} | {predicted_exposed:.1} | {step_ms:.1} | {predicted_step:.1} |",
        Bytes(bucket_bytes),
        Bytes(sent)
    );
    Ok(())
}

fn run(link: Link, plan: &PlanBuf, steps: u32) -> Outcome<Sample> {
    let ranks = plan.with(|plan| {
        local::run(plan, Result::is_err, |transport| {
            let rank = transport.arena().rank() as u64;
            let mut engine = Engine::new(Gpt::PROGRAM, Emulated::new(transport, link));
            engine.initialize(0);
            let start = std::time::Instant::now();
            for step in 0..u64::from(steps) {
                engine.step(&HYPER, |_, ids, targets| {
                    for (i, (id, target)) in ids.iter_mut().zip(targets).enumerate() {
                        *id = (mix(step, 2 * i as u64 + rank) % 512) as u32;
                        *target = *id;
                    }
                })?;
            }
            let a_step = |time: std::time::Duration| 1e3 * time.as_secs_f64() / f64::from(steps);
            let exposed_ms = a_step(engine.transport().exposed());
            let step_ms = a_step(start.elapsed());
            Ok::<_, zero_engine::RunError>(Sample { step_ms, exposed_ms })
        })
    })?;
    Ok(ranks.into_iter().next().expect("a plan has a rank")?)
}

/// The simulated exposed communication and time of a step, in milliseconds, for this machine with the link.
fn predict(plan: &PlanBuf, link: Link, machine: &Hardware) -> Outcome<(f64, f64)> {
    let Link { latency_us, bandwidth_gb_per_s } = link;
    let own = hardware::Link { bandwidth: bandwidth_gb_per_s * 1e9, latency: latency_us * 1e-6, shared_by: 1 };
    let mut machine = machine.clone();
    machine.node.link = Some(own);
    plan.with(|plan| {
        let timeline = simulate_with(plan, &machine, 1)?;
        Ok((1e3 * timeline.parts(plan, 0).exposed_s(), 1e3 * timeline.step_s))
    })
}

#[cfg(test)]
mod tests {
    use zero_runtime::plan::spec;

    use super::*;

    /// Measurements of the example hold for this model only if the micro-batches are the same.
    #[test]
    fn units_are_measured_on_the_same_micro_batches() {
        let (measured, base) = (spec::parse(SPEC).expect("a spec").config(), Gpt::PLAN.config);
        let shape = |config: Config| (config.mesh, config.stage, config.sequences, config.length, config.precision);
        assert_eq!(shape(measured), shape(base));
    }
}
