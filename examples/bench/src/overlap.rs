//! Overlap: how much of the communication over an emulated link is exposed, by prefetch and by bucket size. Ranks are
//! threads, a link is a clock: what is measured is the schedule, not a network.

use zero_runtime::engine::Engine;
use zero_runtime::model::Model;
use zero_runtime::plan::{Bytes, Config, PlanBuf, Traffic};
use zero_runtime::random::mix;
use zero_runtime::transport::{Transport, local};

use crate::Outcome;
use crate::emulated::{Emulated, Link};
use crate::figures::median;
use crate::models::overlap::Gpt;
use crate::schedule::HYPER;

/// Its gathers take about as long as the computation of a unit or two.
const NEAR: Link = Link { latency_us: 500.0, bandwidth_gb_per_s: 0.5 };
/// Its latency is more than the backward of a small unit hides.
const FAR: Link = Link { latency_us: 5000.0, bandwidth_gb_per_s: 0.5 };

/// What a configuration came to, in milliseconds a step.
struct Sample {
    step_ms: f64,
    exposed_ms: f64,
}

/// Measures and prints both tables.
///
/// # Errors
/// If something fails to run.
pub fn measure(rounds: u32, steps: u32) -> Outcome<()> {
    println!("| link | prefetch | bucket | sent a step | link busy, ms | exposed, ms | step, ms |");
    println!("|---|---|---|---|---|---|---|");
    let base = Gpt::PLAN.config;
    for prefetch in [0, 1, 2, 4] {
        row(NEAR, Config { prefetch, bucket_bytes: 512 << 10, ..base }, (rounds, steps))?;
    }
    for bucket_bytes in [64 << 10, 256 << 10, 512 << 10, 1 << 20] {
        row(FAR, Config { prefetch: 12, bucket_bytes, ..base }, (rounds, steps))?;
    }
    Ok(())
}

fn row(link: Link, config: Config, (rounds, steps): (u32, u32)) -> Outcome<()> {
    let plan = PlanBuf::new(Gpt::PLAN.model, config, Gpt::PLAN.units);
    let sent = plan.with(|plan| Traffic::of(plan, plan.stages[0].step).total_bytes());
    let mut samples = Vec::new();
    for _ in 0..rounds {
        samples.push(run(link, &plan, steps)?);
    }
    let busy_ms = sent as f64 / (link.bandwidth_gb_per_s * 1e6);
    let exposed_ms = median(samples.iter().map(|sample| sample.exposed_ms).collect());
    let step_ms = median(samples.iter().map(|sample| sample.step_ms).collect());
    let (Config { prefetch, bucket_bytes, .. }, Link { latency_us, bandwidth_gb_per_s }) = (config, link);
    println!(
        "| {latency_us} us, {bandwidth_gb_per_s} GB/s | {prefetch} | {} | {} | {busy_ms:.1} | {exposed_ms:.1} | {step_ms:.1} |",
        Bytes(bucket_bytes),
        Bytes(sent)
    );
    Ok(())
}

fn run(link: Link, plan: &PlanBuf, steps: u32) -> Outcome<Sample> {
    let ranks = plan.with(|plan| {
        local::run(plan, Result::is_err, |transport| {
            let rank = transport.arena().rank() as u64;
            let mut engine = Engine::<Gpt, _>::new(Emulated::new(transport, link));
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
            Ok::<_, zero_runtime::engine::RunError>(Sample { step_ms: a_step(start.elapsed()), exposed_ms })
        })
    })?;
    Ok(ranks.into_iter().next().expect("a plan has a rank")?)
}
