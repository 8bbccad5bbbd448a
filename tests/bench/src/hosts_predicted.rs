//! Hosts predicted: predicted and measured times of a step, for a model on two hosts under several layouts. `cargo zero measure`
//! describes the hosts and their network for the simulation. Never asserts.

use std::process::Command;

use zero_runtime::plan::PlanBuf;
use zero_study::hardware::Hardware;
use zero_study::simulate::{Flow, LinkKind, Prediction};

use crate::Outcome;
use crate::figures::median;
use crate::hosts::{CARD, Choice, NODES};
use crate::predicted::{Built, STEPS, Source, build, cargo_zero, machine, steps_s};
use crate::processes::finished;

/// Name, keys of the spec besides model, batch and transport, and micro-batches.
const LAYOUTS: [(&str, &str, usize); 8] = [
    ("stage 3, prefetch 0, 2 x 1", "mesh: (nodes: 2, zero: 2), zero: (stage: 3, prefetch: 0, bucket: MiB(2))", 1),
    ("stage 3, prefetch 1, 2 x 1", "mesh: (nodes: 2, zero: 2), zero: (stage: 3, prefetch: 1, bucket: MiB(2))", 1),
    ("stage 3, prefetch 2, 2 x 1", "mesh: (nodes: 2, zero: 2), zero: (stage: 3, prefetch: 2, bucket: MiB(2))", 1),
    ("stage 1, 2 x 1", "mesh: (nodes: 2, zero: 2), zero: (stage: 1, bucket: MiB(2))", 1),
    ("stage 3, prefetch 2, 2 x 2", "mesh: (nodes: 2, zero: 4), zero: (stage: 3, prefetch: 2, bucket: MiB(2))", 1),
    (
        "hybrid: stage 3 within, prefetch 2, 2 x 2",
        "mesh: (nodes: 2, replica: 2, zero: 2, within_node: [Zero]), zero: (stage: 3, prefetch: 2, bucket: MiB(2))",
        1,
    ),
    ("stage 2, 2 x 2", "mesh: (nodes: 2, zero: 4), zero: (stage: 2, bucket: MiB(2))", 1),
    (
        "pipeline across, stage 1 within, 2 x 2",
        "mesh: (nodes: 2, zero: 2, pipeline: 2, within_node: [Zero]), pipeline: (schedule: OneFOneB), zero: (stage: 1)",
        4,
    ),
];

/// The size of the model.
const SIZE: &str = "11M";

/// Measures and prints the table.
///
/// # Errors
/// If something fails to build or to run.
pub fn measure(choice: &Choice) -> Outcome<()> {
    let (names, own) = (choice.names()?, tempfile::tempdir()?);
    let mut sources = Vec::new();
    for (name, keys, micro_batches) in LAYOUTS {
        let path = own.path().join(format!("{name}.ron"));
        let batch = format!("batch: (sequences: {}, length: 256, micro_batches: {micro_batches})", 4 / micro_batches);
        std::fs::write(&path, format!("(model: Example(\"gpt\"), {keys}, {batch}, transport: Cluster)\n"))?;
        sources.push(Source { path, size: Some(SIZE) });
    }
    let built = sources.iter().map(build).collect::<Outcome<Vec<_>>>()?;
    let hardware = hosts(choice, &names, &sources)?;
    let network = hardware.network.ok_or("a network")?;
    println!("network: {:.1} MB/s, {:.0} us\n", network.bandwidth * 1e-6, network.latency * 1e6);
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); built.len()];
    for round in 1..=choice.rounds {
        eprintln!("round {round} of {}", choice.rounds);
        for (built, times) in built.iter().zip(&mut times) {
            times.push(run(choice, &names, built)?);
        }
    }
    println!("| layout | measured, ms | predicted, ms | predicted / measured | network busy, ms | of it hidden |");
    println!("|---|---|---|---|---|---|");
    for (built, times) in built.iter().zip(times) {
        let (plan, measured_s) = (plan(built), median(times));
        let prediction = plan.with(|plan| Prediction::of(plan, &hardware, Some(1)))?;
        let carried = prediction.traffic.iter().filter(|it| it.link == LinkKind::Network && it.flow != Flow::Agreement);
        let (busy_s, exposed_s) =
            carried.fold((0.0, 0.0), |(busy, exposed), it| (busy + it.busy_s, exposed + it.exposed_s));
        println!(
            "| {} | {:.1} | {:.1} | {:.2} | {:.1} | {:.0} % |",
            built.name,
            1e3 * measured_s,
            1e3 * prediction.step_s,
            prediction.step_s / measured_s,
            1e3 * busy_s,
            100.0 * (1.0 - exposed_s / busy_s).max(0.0),
        );
    }
    Ok(())
}

fn plan(built: &Built) -> PlanBuf {
    PlanBuf::new(&built.sizes.model, built.spec.config(), &built.sizes.probes[0].units)
}

/// This machine as hosts that share it equally, and the network between them.
fn hosts(choice: &Choice, names: &[String], sources: &[Source]) -> Outcome<Hardware> {
    let mut measure = cargo_zero();
    let (ssh, hosts) = (choice.ssh(), names.join(","));
    measure.args(["measure", "--interface", CARD, "--launcher", &choice.launcher, "--hosts", &hosts, "--ssh"]).arg(ssh);
    let line: Vec<String> = words(&measure).collect();
    let here = std::env::current_dir()?;
    let text =
        finished(choice.on(&names[0], &format!("cd {} && {}", here.display(), line.join(" "))), "a measurement")?;
    let seen = Hardware::parse(&text).map_err(|problems| problems[0].render("the network", &text))?;
    let mut hardware = machine(sources.iter().map(|source| source.path.as_path()), Some(SIZE))?;
    hardware.node.devices = (hardware.node.devices / NODES).max(1);
    hardware.network = seen.network;
    Ok(hardware)
}

fn words(command: &Command) -> impl Iterator<Item = String> {
    std::iter::once(command.get_program()).chain(command.get_args()).map(|word| word.to_string_lossy().into_owned())
}

/// Seconds of a step: the median of a run.
fn run(choice: &Choice, names: &[String], built: &Built) -> Outcome<f64> {
    let metrics = std::env::temp_dir().join(format!("zero-hosts-{}.jsonl", std::process::id()));
    let (binary, each) = (built.binary.display(), built.spec.config().mesh.ranks_per_node());
    let options = format!("--steps {STEPS} --held-out 0 --sample 0 --threads 1 --metrics {}", metrics.display());
    choice.mpirun(names, each, &format!("'{binary}' {options}"))?;
    Ok(median(steps_s(&metrics)?))
}
