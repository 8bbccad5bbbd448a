//! Overlap: how much of the communication over an emulated link is exposed, by prefetch and by bucket size. Ranks are
//! threads, a link is a clock: what is measured is the schedule, not a network.

use std::num::NonZeroUsize;

use zero_runtime::Cores;
use zero_runtime::engine::{Engine, Span};
use zero_runtime::model::Model;
use zero_runtime::plan::hardware::{self, DeviceFigures, Hardware, Kind, MeasuredUnit, Node, Rates, measured_units};
use zero_runtime::plan::spec::Size;
use zero_runtime::plan::{Bytes, Config, PlanBuf, Traffic, simulate_with};
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
    /// What its units took: all that a prediction knows of the run.
    units: Vec<MeasuredUnit>,
}

/// What a prediction knows of this machine beside the link.
struct Machine {
    cores: NonZeroUsize,
    /// Bytes a second of one core.
    bandwidth: f64,
}

/// Measures and prints both tables.
///
/// # Errors
/// If something fails to run.
pub fn measure(rounds: u32, steps: u32) -> Outcome<()> {
    let cores = std::thread::available_parallelism()?;
    let machine = Machine { cores, bandwidth: Cores::measure(cores)?.bytes_per_s };
    println!(
        "| link | prefetch | bucket | sent a step | link busy, ms | exposed, ms | predicted | step, ms | predicted |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let base = Gpt::PLAN.config;
    for prefetch in [0, 1, 2, 4] {
        row(NEAR, Config { prefetch, bucket_bytes: 512 << 10, ..base }, (rounds, steps), &machine)?;
    }
    for bucket_bytes in [64 << 10, 256 << 10, 512 << 10, 1 << 20] {
        row(FAR, Config { prefetch: 12, bucket_bytes, ..base }, (rounds, steps), &machine)?;
    }
    Ok(())
}

fn row(link: Link, config: Config, (rounds, steps): (u32, u32), machine: &Machine) -> Outcome<()> {
    let plan = PlanBuf::new(Gpt::PLAN.model, config, Gpt::PLAN.units);
    let sent = plan.with(|plan| Traffic::of(plan, 0, plan.pipeline_stages[0].step).total_bytes());
    let mut samples = Vec::new();
    for _ in 0..rounds {
        samples.push(run(link, &plan, steps)?);
    }
    let busy_ms = sent as f64 / (link.bandwidth_gb_per_s * 1e6);
    let middle = |figure: fn(&Sample) -> f64| median(samples.iter().map(figure).collect());
    let (exposed_ms, step_ms) = (middle(|sample| sample.exposed_ms), middle(|sample| sample.step_ms));
    let predicted = samples.iter().map(|sample| predict(&plan, link, machine, &sample.units));
    let predicted = predicted.collect::<Outcome<Vec<_>>>()?;
    let predicted_exposed = median(predicted.iter().map(|it| it.0).collect());
    let predicted_step = median(predicted.iter().map(|it| it.1).collect());
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
            let mut engine = Engine::<Gpt, _>::new(Emulated::new(transport, link));
            engine.initialize(0);
            engine.record(steps as usize);
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
            let record = engine.take_record().expect("it was asked for");
            let ops = plan.pipeline_stages[0].step;
            let seconds = |span: &Span| span.ns() as f64 * 1e-9;
            let steps = record.ops.chunks(ops.len()).map(|spans| ops.iter().copied().zip(spans.iter().map(seconds)));
            let units = measured_units(plan, 1, 1, steps);
            Ok::<_, zero_runtime::engine::RunError>(Sample { step_ms, exposed_ms, units })
        })
    })?;
    Ok(ranks.into_iter().next().expect("a plan has a rank")?)
}

/// What is exposed of the communication, and how long a step takes, in milliseconds, as the simulation says.
fn predict(plan: &PlanBuf, link: Link, machine: &Machine, units: &[MeasuredUnit]) -> Outcome<(f64, f64)> {
    let Link { latency_us, bandwidth_gb_per_s } = link;
    let own = hardware::Link { bandwidth: bandwidth_gb_per_s * 1e9, latency: latency_us * 1e-6, shared_by: 1 };
    let hardware = Hardware {
        name: "this machine, with an emulated link".to_owned(),
        device: DeviceFigures {
            name: "a core".to_owned(),
            kind: Kind::Cpu,
            memory: Size::GiB(1),
            reserved: Size::B(0),
            // All units were measured.
            matmul: Rates { f32: 1e9, bf16: 1e9 },
            achieved: 1.0,
            bandwidth: machine.bandwidth,
            op: 0.0,
        },
        node: Node { devices: machine.cores.get(), link: Some(own), memory: None, disk: None },
        network: None,
        measured: units.to_vec(),
    };
    plan.with(|plan| {
        let timeline = simulate_with(plan, &hardware, 1)?;
        Ok((1e3 * timeline.parts(plan, 0).exposed_s(), 1e3 * timeline.step_s))
    })
}
