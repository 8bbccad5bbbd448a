//! Checkpoint: commands for checkpoints on a disk: verify, inspect, diff and export. Never builds a model; the format
//! of checkpoints is in `zero_files::checkpoint`.

mod inspect;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use zero_files::checkpoint::{Checkpoint, CheckpointError, MANIFEST, Store};
use zero_files::weights::WeightType;
use zero_plan::place::State;

use crate::error::CommandError;
use crate::say;
pub use inspect::inspect;
#[cfg(test)]
pub use inspect::page;

/// What to verify.
#[derive(Args, Debug, PartialEq)]
pub struct VerifyArguments {
    /// A checkpoint, or the folder of a run, all of whose checkpoints are verified
    pub path: PathBuf,
    /// Threads that read; without it, one for each core
    #[arg(long, value_name = "N")]
    pub threads: Option<std::num::NonZeroUsize>,
}

/// The checkpoint to export, the folder, and the type.
#[derive(Args, Debug, PartialEq)]
pub struct ExportArguments {
    /// A checkpoint
    pub checkpoint: PathBuf,
    /// The new folder, in Hugging Face's format
    pub folder: PathBuf,
    /// Type of the exported numbers; without it, those of the folder that the run began with, or f32
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<WeightType>,
}

/// The checkpoints that a path names: a single checkpoint, or the checkpoints of a run's folder, the oldest first.
fn named_by(path: &Path) -> Result<Vec<PathBuf>, CommandError> {
    if path.join(MANIFEST).exists() {
        return Ok(vec![path.to_owned()]);
    }
    let found = if path.is_dir() { Store::checkpoints(path)? } else { Vec::new() };
    if found.is_empty() {
        let what =
            if path.is_dir() { "it has neither a manifest nor a checkpoint's folder" } else { "it is not a folder" };
        return Err(CheckpointError::NoCheckpoint { path: path.to_owned(), what: what.to_owned() }.into());
    }
    Ok(found.into_iter().rev().map(|found| found.path).collect())
}

/// Reads every byte of checkpoints, and reports whether each is unchanged since it was written.
pub fn verify(arguments: &VerifyArguments) -> Result<(), CommandError> {
    let paths = named_by(&arguments.path)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let threads = arguments.threads.map_or(cores, std::num::NonZeroUsize::get);
    // Checkpoints that cannot be opened are reported later, in their turn.
    let bytes = paths.iter().filter_map(|path| Checkpoint::open(path).ok()).map(|it| it.bytes()).sum();
    let bar = bar(bytes, "{bar:20} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    let mut all = Vec::new();
    for path in &paths {
        let faults = Checkpoint::examine(path, threads, &|bytes| bar.inc(bytes));
        // A living run keeps only some of those that were listed. The one that was asked for must be there.
        let is_removed = !faults.is_empty() && *path != arguments.path && Store::has_removed(path);
        let said = match faults.len() {
            0 => "whole".to_owned(),
            _ if is_removed => "removed meanwhile".to_owned(),
            1 => "1 fault".to_owned(),
            count => format!("{count} faults"),
        };
        bar.suspend(|| say::line(format_args!("{}: {said}", path.display())));
        if !is_removed {
            all.extend(faults);
        }
    }
    bar.finish_and_clear();
    if all.is_empty() { Ok(()) } else { Err(CommandError::Faults(all)) }
}

/// Whether two checkpoints differ. Prints which tensors differ, by how much, and all other differences.
pub fn differ(first: &Path, second: &Path) -> Result<bool, CommandError> {
    let (a, b) = (Checkpoint::open(first)?, Checkpoint::open(second)?);
    let elements: usize = a.lens().iter().sum();
    let states = if [&a, &b].iter().all(|it| it.has(State::Master)) { 4 } else { 3 };
    let bar = bar((states * elements) as u64, "{bar:20} {percent}% {eta}");
    let comparison = zero_files::checkpoint::compare(&a, &b, &|elements| bar.inc(elements))?;
    bar.finish_and_clear();
    for line in &comparison.model {
        say::line(line);
    }
    let names = comparison.tensors.iter().map(|it| it.tensor.chars().count()).max().unwrap_or(0);
    for it in &comparison.tensors {
        let (state, tensor) = (it.state_name(), &it.tensor);
        say::line(format_args!(
            "{state:13} {tensor:names$}  {} of {} elements, by up to {:.3e}, relative {:.3e}",
            it.differing, it.elements, it.max_abs, it.max_relative
        ));
    }
    match (comparison.is_equal(), comparison.compared) {
        (true, compared) => say::line(format_args!("{compared} tensors of states are equal")),
        (false, compared) => {
            say::line(format_args!("{} of {compared} tensors of states differ", comparison.tensors.len()))
        }
    }
    for line in &comparison.about {
        say::line(format_args!("  {line}"));
    }
    Ok(!comparison.is_equal())
}

/// Writes the parameters of a checkpoint to a folder in Hugging Face's format.
pub fn export(arguments: &ExportArguments) -> Result<(), CommandError> {
    let checkpoint = Checkpoint::open(&arguments.checkpoint)?;
    let elements: usize = checkpoint.lens().iter().sum();
    let bar = bar(elements as u64, "{bar:20} {percent}% {eta}");
    let folder = &arguments.folder;
    let written = zero_files::checkpoint::export(&checkpoint, folder, arguments.dtype, &|elements| bar.inc(elements))?;
    bar.finish_and_clear();
    say::line(format_args!("{} tensors of step {} to {}", written.tensors, checkpoint.manifest.step, folder.display()));
    written.notes.iter().for_each(|note| say::line(format_args!("  {note}")));
    Ok(())
}

/// A bar on standard error, if that is a terminal.
fn bar(length: u64, template: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).expect("a valid template");
    ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr()).with_style(style)
}
