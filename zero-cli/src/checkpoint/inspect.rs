//! Inspect: the contents of a checkpoint, or the checkpoints of a run, as text. Never reads an element.

use std::path::Path;

use serde_json::Value;
use zero_files::checkpoint::{Checkpoint, MANIFEST, Manifest, PlanInfo, Store, WriterVersions, state_name};
use zero_plan::Bytes;
use zero_plan::place::State;

use super::named_by;
use crate::error::CommandError;
use crate::say;

/// Prints the contents of a checkpoint or, for the folder of a run, a line for each checkpoint. Errors of checkpoints
/// that cannot be read come last.
pub fn inspect(path: &Path) -> Result<(), CommandError> {
    let paths = named_by(path)?;
    if path.join(MANIFEST).exists() {
        say::line(page(&Checkpoint::open(path)?).trim_end());
        return Ok(());
    }
    let mut faults = Vec::new();
    say::line(format_args!(
        "{:>12}  {:>10}  {:>10}  {:>5}  {:20}  layout",
        "step", "loss", "bytes", "ranks", "written"
    ));
    for path in paths {
        match Checkpoint::open(&path) {
            Ok(checkpoint) => say::line(row(&checkpoint)),
            Err(_) if Store::has_removed(&path) => {}
            Err(error) => faults.push(error),
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(CommandError::Faults(faults)) }
}

fn number(number: Option<f64>) -> String {
    number.map_or("-".to_owned(), |number| format!("{number:.5}"))
}

fn row(checkpoint: &Checkpoint) -> String {
    let Manifest { step, loss, plan, written_at, .. } = &checkpoint.manifest;
    let (bytes, loss) = (Bytes(checkpoint.bytes() as usize).to_string(), number(*loss));
    let PlanInfo { ranks, stage, mesh, .. } = plan;
    format!("{step:>12}  {loss:>10}  {bytes:>10}  {ranks:>5}  {written_at:20}  stage {stage}, {mesh}")
}

/// A checkpoint as a page of text.
pub fn page(checkpoint: &Checkpoint) -> String {
    let manifest = &checkpoint.manifest;
    let PlanInfo { fingerprint, ranks, data_ranks, stage, mesh, sequences, length, micro_batches, .. } = &manifest.plan;
    let WriterVersions { zero, format, target, features } = &manifest.versions;
    let elements: usize = checkpoint.lens().iter().sum();
    let mut lines = vec![
        ("model", format!("{}, {elements} parameters in {} tensors", manifest.model, manifest.tensors.len())),
        ("step", manifest.step.to_string()),
        ("loss", number(manifest.loss)),
        ("gradient norm", number(manifest.gradient_norm)),
        ("seed", manifest.seed.to_string()),
        ("data", format!("{}, {}", manifest.data.description, manifest.data.fingerprint)),
        ("drawn", format!("{} sequences", manifest.data.sequences_drawn)),
        ("layout", format!("stage {stage}, {mesh}: {ranks} ranks, {data_ranks} data-parallel")),
        ("batch", format!("{sequences} sequences of {length} in {micro_batches} micro-batches, on each such rank")),
        ("widths", widths(&manifest.plan)),
        ("plan", fingerprint.clone()),
        ("spec", manifest.spec.path.clone()),
        ("written", format!("{} by zero {zero} for {target}, format {format}", manifest.written_at)),
        (
            "kernels",
            if features.is_empty() { "not recorded".to_owned() } else { format!("for {}", features.join(" ")) },
        ),
        ("files", format!("{}, {}", manifest.files.len(), Bytes(checkpoint.bytes() as usize))),
    ];
    lines
        .extend(State::ALL.into_iter().filter(|&state| checkpoint.has(state)).map(|state| of_state(checkpoint, state)));
    let mut text: String = lines.iter().map(|(name, value)| format!("{name:14}{value}\n")).collect();
    text.push_str("\narguments\n");
    let said = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.extend(manifest.arguments.iter().map(|(name, value)| format!("  {name:24}{}\n", said(value))));
    text.push_str("\ntensors\n");
    let names = manifest.tensors.iter().map(|tensor| tensor.name.chars().count()).max().unwrap_or(0);
    text.extend(manifest.tensors.iter().map(|tensor| format!("  {:names$}  {:?}\n", tensor.name, tensor.shape)));
    text
}

fn widths(plan: &PlanInfo) -> String {
    let PlanInfo { compute_width, params_width, reduce_width, master_width, moments_width, .. } = plan;
    format!(
        "compute {compute_width}, params {params_width}, reduce {reduce_width}, master {master_width}, moments \
         {moments_width}"
    )
}

/// The name of a state, and its bytes, types and pieces as text.
fn of_state(checkpoint: &Checkpoint, state: State) -> (&'static str, String) {
    let sources = checkpoint.sources(state);
    let bytes: usize = sources.iter().map(|(source, width)| source.len * width.bytes()).sum();
    let mut widths: Vec<&str> = sources.iter().map(|(_, width)| width.name()).collect();
    widths.sort_unstable();
    widths.dedup();
    (state_name(state), format!("{} of {} in {} pieces", Bytes(bytes), widths.join(" and "), sources.len()))
}
