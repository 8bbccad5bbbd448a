//! Overlap: how much of the communication over an emulated link is exposed, by prefetch and by bucket size. Ranks are
//! threads, a link is a clock: what is measured is the schedule, not a network.

use std::error::Error;

use zero_runtime::engine::{Engine, Hyper};
use zero_runtime::model::Model;
use zero_runtime::plan::{Bytes, Config, PlanBuf, Traffic};
use zero_runtime::random::mix;
use zero_runtime::transport::{Emulated, Link, Transport, local};

use crate::Arguments;
use crate::compare::median;
use crate::models::overlap::Gpt;

/// Slow enough that gathers and reductions take about as long as the computation that can hide them.
const LINK: Link = Link { latency_us: 200.0, bandwidth_gb_per_s: 0.5 };

const HYPER: Hyper = Hyper { lr: 1e-3, beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weight_decay: 0.1, clip: Some(1.0) };

/// What a configuration came to, in milliseconds a step.
struct Sample {
    step_ms: f64,
    exposed_ms: f64,
}

/// Measures and prints both tables.
pub fn measure(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let Link { latency_us, bandwidth_gb_per_s } = LINK;
    println!("Each of two ranks on a link of {bandwidth_gb_per_s} GB/s and {latency_us} us.\n");
    println!("| prefetch | bucket | sent a step | link busy, ms | exposed, ms | step, ms |");
    println!("|---|---|---|---|---|---|");
    let base = Gpt::PLAN.config;
    let by_prefetch = [0, 1, 2, 4].map(|prefetch| Config { prefetch, bucket_bytes: 4 << 20, ..base });
    let by_bucket = [64 << 10, 1 << 20, 4 << 20].map(|bucket_bytes| Config { prefetch: 2, bucket_bytes, ..base });
    for config in by_prefetch.into_iter().chain(by_bucket) {
        row(config, arguments)?;
    }
    Ok(())
}

fn row(config: Config, arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let plan = PlanBuf::new(Gpt::PLAN.model, config, Gpt::PLAN.units);
    let sent = plan.with(|plan| Traffic::of(plan, plan.stages[0].step).total_bytes());
    let mut samples = Vec::new();
    for _ in 0..arguments.rounds {
        samples.push(run(&plan, arguments.steps)?);
    }
    let busy_ms = sent as f64 / (LINK.bandwidth_gb_per_s * 1e6);
    let exposed_ms = median(samples.iter().map(|sample| sample.exposed_ms).collect());
    let step_ms = median(samples.iter().map(|sample| sample.step_ms).collect());
    let Config { prefetch, bucket_bytes, .. } = config;
    println!(
        "| {prefetch} | {} | {} | {busy_ms:.1} | {exposed_ms:.1} | {step_ms:.1} |",
        Bytes(bucket_bytes),
        Bytes(sent)
    );
    Ok(())
}

fn run(plan: &PlanBuf, steps: usize) -> Result<Sample, Box<dyn Error>> {
    let ranks = plan.with(|plan| {
        local::run(plan, Result::is_err, |transport| {
            let rank = transport.arena().rank() as u64;
            let mut engine = Engine::<Gpt, _>::new(Emulated::new(transport, LINK));
            engine.initialize(0);
            let start = std::time::Instant::now();
            for step in 0..steps as u64 {
                engine.step(&HYPER, |_, ids, targets| {
                    for (i, (id, target)) in ids.iter_mut().zip(targets).enumerate() {
                        *id = (mix(step, 2 * i as u64 + rank) % 512) as u32;
                        *target = *id;
                    }
                })?;
            }
            let a_step = |time: std::time::Duration| 1e3 * time.as_secs_f64() / steps as f64;
            let exposed_ms = a_step(engine.transport().exposed());
            Ok::<_, zero_runtime::engine::RunError>(Sample { step_ms: a_step(start.elapsed()), exposed_ms })
        })
    })?;
    Ok(ranks.into_iter().next().expect("a plan has a rank")?)
}
