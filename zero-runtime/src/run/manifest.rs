//! Manifest: a checkpoint's description of the run that wrote it. Never writes or reads a file.

use serde_json::{Map, Value};

use super::date;
use super::header::{GivenArguments, target};
use super::output::StepLine;
use super::train::Job;
use zero_core::device::Device;
use zero_files::checkpoint::{DataPosition, FORMAT, Manifest, PlanInfo, SpecInfo, TensorInfo, WriterVersions};
use zero_files::weights::Publication;
use zero_plan::Plan;

/// The part of the manifest that all checkpoints of a run share; [`Manifest::after`] adds the step.
pub fn manifest<D: Device>(job: &Job<D>, tensors: Vec<TensorInfo>, publication: &Publication) -> Manifest {
    let description = job.data.contents().map_or_else(|| "the program's own".to_owned(), |data| data.origin);
    Manifest {
        format: FORMAT,
        step: 0,
        seed: job.arguments.seed,
        model: job.program.plan.model.to_owned(),
        tensors,
        config: (job.program.config)(),
        arguments: arguments(job),
        data: DataPosition { fingerprint: data_fingerprint(job), sequences_drawn: 0, description },
        spec: SpecInfo { path: job.program.spec.to_owned(), text: Some(job.program.spec_text.to_owned()) },
        plan: plan_info(job.program.plan),
        loss: None,
        gradient_norm: None,
        versions: WriterVersions {
            zero: env!("CARGO_PKG_VERSION").to_owned(),
            format: FORMAT,
            target: target(),
            features: D::feature_names().into_iter().map(str::to_owned).collect(),
        },
        written_at: String::new(),
        files: Vec::new(),
        published: publication.tensors.clone(),
    }
}

/// The fingerprint of the data that a run trains on; empty for data of the program's own, which has none.
pub fn data_fingerprint<D: Device>(job: &Job<D>) -> String {
    job.data_fingerprint.map_or_else(String::new, |fingerprint| format!("{fingerprint:016x}"))
}

/// All arguments of a run by name, as metrics have them.
pub fn arguments<D: Device>(job: &Job<D>) -> Map<String, Value> {
    match serde_json::to_value(GivenArguments { run: job.arguments, of_data: job.of_data }) {
        Ok(Value::Object(arguments)) => arguments,
        _ => unreachable!("arguments are an object"),
    }
}

/// The plan as a manifest describes it.
pub fn plan_info(plan: &Plan) -> PlanInfo {
    let config = &plan.config;
    let (mesh, precision) = (&config.mesh, &config.precision);
    let axes = [("zero", mesh.zero), ("replica", mesh.replica), ("pipeline", mesh.pipeline)];
    let shown: Vec<String> =
        axes.into_iter().filter(|axis| axis.1 > 1).map(|(name, len)| format!("{name} {len}")).collect();
    PlanInfo {
        fingerprint: format!("{:016x}", plan.fingerprint()),
        ranks: mesh.ranks(),
        data_ranks: mesh.data_ranks(),
        stage: config.stage,
        mesh: if shown.is_empty() { "one rank".to_owned() } else { shown.join(", ") },
        sequences: config.sequences,
        length: config.length,
        micro_batches: config.micro_batches,
        params: plan.params(),
        compute_width: precision.compute.name().to_owned(),
        params_width: precision.params.name().to_owned(),
        reduce_width: precision.reduce.name().to_owned(),
        master_width: precision.master.name().to_owned(),
        moments_width: precision.moments.name().to_owned(),
        optimizer: config.optimizer,
    }
}

/// The manifest of a run after a step.
pub(super) fn after(manifest: &Manifest, line: &StepLine) -> Manifest {
    let plan = &manifest.plan;
    let per_step = (plan.sequences * plan.micro_batches * plan.data_ranks) as u64;
    let data = DataPosition { sequences_drawn: line.step * per_step, ..manifest.data.clone() };
    Manifest {
        step: line.step,
        data,
        loss: Some(line.loss),
        gradient_norm: Some(line.gradient_norm),
        written_at: date::now(),
        ..manifest.clone()
    }
}
