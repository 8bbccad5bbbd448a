//! Units: how long the units of a model take on this machine while a number of ranks work. The model is trained for
//! some steps without sharding, so that each rank runs every unit. Never measures a layout.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use zero_plan::spec::{Batch, ModelSize, Spec, ron_text};
use zero_plan::{DeviceKind, GpuFigures, Plan, counted};
use zero_study::hardware::{MeasuredOp, MeasuredUnit, measured_units};

use super::{RecordedOp, RecordedProfile};
use crate::binary::Binary;
use crate::build;
use crate::compile::compile_gpus;
use crate::error::CommandError;
use crate::program::write_if_changed;
use crate::request::{ModelRequest, Request};
use crate::say;
use crate::sizes::SizedSpec;
use crate::workspace::Workspace;

/// Steps of a run: the profile begins with the third step, and records ten.
const STEPS: &str = "12";

/// A measurement of the units of a spec's model.
pub struct Measurement<'a> {
    /// The path of the spec.
    pub path: &'a Path,
    /// The spec that [`alone`] derives from it.
    pub alone: &'a str,
    /// Threads of a rank.
    pub threads: NonZeroUsize,
}

/// The program of a measurement, with the steps that it has run.
pub struct MeasuredProgram<'a> {
    of: Measurement<'a>,
    binary: Binary,
    sized: SizedSpec,
    profile: PathBuf,
    steps: Vec<RankStep>,
}

/// A step of a rank.
struct RankStep {
    ops: Vec<MeasuredOp>,
    /// The mean time between two ops, in seconds, if nothing was measured between them.
    beside_s: Option<f64>,
}

impl<'a> Measurement<'a> {
    /// Builds its program.
    pub fn build(self) -> Result<MeasuredProgram<'a>, CommandError> {
        let own = Workspace::find()?.target.join("zero").join("build");
        std::fs::create_dir_all(&own).map_err(|source| CommandError::Write { path: own.clone(), source })?;
        let (derived, profile) = (own.join("measure.ron"), own.join("measure.json"));
        write_if_changed(&derived, self.alone.as_bytes())?;
        let request = Request { spec: derived, program: ModelRequest::default() };
        let (binary, sized) = build::build_with_sizes(&request)?;
        Ok(MeasuredProgram { of: self, binary, sized, profile, steps: Vec::new() })
    }
}

impl MeasuredProgram<'_> {
    /// Lets it train for some steps.
    pub fn run(&mut self) -> Result<(), CommandError> {
        let Measurement { path, threads, .. } = self.of;
        let (ranks, each) = (counted(self.ranks(), "rank", "ranks"), counted(threads.get(), "thread", "threads"));
        say::note(format_args!("measuring the units of {} by {ranks} with {each}", path.display()));
        let _ = std::fs::remove_file(&self.profile);
        let mut command = self.binary.command();
        command.args(["--steps", STEPS, "--held-out", "0", "--sample", "0", "--threads", &threads.to_string()]);
        command.arg("--profile").arg(&self.profile).stdout(Stdio::null());
        let status = command.status().map_err(|source| self.binary.not_started(source))?;
        let failed = |what: String| CommandError::NotMeasured { spec: path.to_owned(), what };
        if !status.success() {
            return Err(failed("its run failed".to_owned()));
        }
        let recorded = RecordedProfile::read(&self.profile).map_err(failed)?;
        self.steps.extend(self.sized.plan().with(|plan| steps(plan, &recorded)).map_err(failed)?);
        Ok(())
    }

    /// The figures of the GPUs of this machine, all of them at work, from a program that depends on the same crates.
    pub fn gpus(&self) -> Result<GpuFigures, CommandError> {
        let failed = |what: &str| CommandError::NoGpusMeasured { spec: self.of.path.to_owned(), what: what.to_owned() };
        let none = || CommandError::NoModel { spec: self.of.path.to_owned() };
        let (workspace, model) = (Workspace::find()?, self.sized.spec.model.as_ref().ok_or_else(none)?);
        let program = workspace.program(model, None, self.of.path)?;
        let binary = compile_gpus(&workspace, &program)?.ok_or_else(|| failed("the program for it is not built"))?;
        let output = Command::new(&binary).stderr(Stdio::inherit()).output();
        let output = output.map_err(|source| CommandError::Start { binary, source })?;
        if !output.status.success() {
            return Err(failed("the program for it failed"));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| failed(&error.to_string()))
    }

    /// The times of its units.
    pub fn units(&self) -> Vec<MeasuredUnit> {
        let ops = self.steps.iter().map(|step| step.ops.iter().copied());
        self.sized.plan().with(|plan| measured_units(plan, self.of.threads.get(), ops))
    }

    fn ranks(&self) -> usize {
        self.sized.spec.config().mesh.ranks()
    }

    /// Seconds between two ops in each step; none if threads took turns with a core.
    pub fn beside_s(&self, cores: NonZeroUsize) -> impl Iterator<Item = f64> {
        let takes_turns = self.ranks() * self.of.threads.get() > cores.get();
        self.steps.iter().filter(move |_| !takes_turns).filter_map(|step| step.beside_s)
    }
}

/// The numbers of ranks on which the units of a spec are measured: the spec's own number, as many ranks as have a core for
/// each thread, and one rank. Ranks with a GPU each do not disturb one another, so with GPUs one rank is enough.
pub fn ranks(spec: &Spec, threads: NonZeroUsize, cores: NonZeroUsize) -> Vec<usize> {
    match spec.config().device {
        DeviceKind::Cpu => vec![spec.config().mesh.ranks(), (cores.get() / threads).max(1), 1],
        DeviceKind::Cuda => vec![1],
    }
}

/// A spec of the same model, with the same widths and micro-batches, in which each rank has the whole model.
pub fn alone(spec: &Spec, path: &Path, size: &ModelSize, ranks: usize) -> Result<String, CommandError> {
    let Spec { model: Some(model), batch: Batch { sequences, length, .. }, precision, .. } = spec else {
        return Err(CommandError::NoModel { spec: path.to_owned() });
    };
    let model = size.entry(model);
    let (precision, device) = (ron_text(precision), ron_text(&spec.device));
    Ok(format!(
        "(model: {model}, mesh: (zero: {ranks}), zero: (stage: 0), precision: {precision}, device: {device}, \
         batch: (sequences: {sequences}, length: {length}))\n"
    ))
}

/// The steps of all ranks of a profile.
fn steps(plan: &Plan, recorded: &RecordedProfile) -> Result<Vec<RankStep>, String> {
    let mut all = Vec::new();
    for (rank, steps) in recorded.ranks.iter().enumerate() {
        let schedule = plan.of_rank(rank).step;
        for step in steps {
            if step.ops.len() != schedule.len() {
                return Err(format!("its profile has {} ops a step, the plan {}", step.ops.len(), schedule.len()));
            }
            let measured = |(&op, recorded): (_, &RecordedOp)| {
                let &RecordedOp { seconds, core_seconds, .. } = recorded;
                MeasuredOp { op, seconds, core_seconds }
            };
            let ops: Vec<_> = schedule.iter().zip(&step.ops).map(measured).collect();
            let beside_s = step.span.1 - ops.iter().map(|op| op.seconds).sum::<f64>();
            let is_looked_at = ops.iter().any(|op| op.core_seconds.is_some());
            let beside_s = (!is_looked_at).then(|| (beside_s / ops.len().max(1) as f64).max(0.0));
            all.push(RankStep { ops, beside_s });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units take longer while eight ranks share four cores, and a simulation of eight ranks needs these times.
    #[test]
    fn units_are_measured_by_the_ranks_of_their_spec_too() {
        let text = "(model: Example(\"gpt\"), mesh: (zero: 8), zero: (stage: 3), batch: (sequences: 4, length: 64))";
        let spec = zero_plan::spec::parse(text).expect("a spec");
        let [one, two, four] = [1, 2, 4].map(|number| NonZeroUsize::new(number).expect("not zero"));
        assert_eq!(ranks(&spec, one, four), [8, 4, 1]);
        assert_eq!(ranks(&spec, two, four), [8, 2, 1]);
        assert_eq!(ranks(&spec, four, two), [8, 1, 1]);
        let on_gpus = Spec { device: DeviceKind::Cuda, ..spec };
        assert_eq!(ranks(&on_gpus, one, four), [1]);
    }
}
