//! Units: what the units of a model take on this machine while all of its cores work: the model is trained for some steps by as
//! many ranks as there are cores for, without sharding, so that each rank runs every unit. Never measures a layout.

use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Stdio;

use zero_plan::hardware::{measured_units, rounded};
use zero_plan::report::count;
use zero_plan::spec::{Batch, Spec, ron_text};
use zero_plan::{Hardware, Op, Plan};

use super::Recorded;
use crate::arguments::Request;
use crate::build::write_if_changed;
use crate::error::Error;
use crate::sizes;
use crate::workspace::Workspace;

/// Steps of a run: the profile begins with the third, and takes ten.
const STEPS: &str = "12";

/// What is measured of a spec.
pub struct Measurement<'a> {
    /// Where the spec lies.
    pub path: &'a Path,
    /// What [`alone`] makes of it.
    pub alone: &'a str,
    /// The size of its model.
    pub size: Option<&'a str>,
    /// Threads of a rank.
    pub threads: NonZeroUsize,
    /// Threads for each core, of all ranks together.
    pub per_core: usize,
}

impl Measurement<'_> {
    /// Measures the units, adds them to the hardware, and says how long an op takes beside its work.
    pub fn add_to(&self, hardware: &mut Hardware) -> Result<(), Error> {
        let own = Workspace::find()?.target.join("zero").join("build");
        std::fs::create_dir_all(&own).map_err(|source| Error::Write { path: own.clone(), source })?;
        let (derived, profile) = (own.join("measure.ron"), own.join("measure.json"));
        write_if_changed(&derived, self.alone.as_bytes())?;
        let request = Request { spec: derived, bin: None, size: self.size.map(str::to_owned) };
        let (binary, sized) = sizes::binary_of_spec(&request)?;
        let _ = std::fs::remove_file(&profile);
        let (path, threads) = (self.path.display(), self.threads);
        let each = count(threads.get(), "thread", "threads");
        eprintln!("measuring the units of {path} by ranks with {each}, {} for each core", self.per_core);
        let mut command = binary.command();
        command.args(["--steps", STEPS, "--held-out", "0", "--sample", "0", "--threads", &threads.to_string()]);
        command.arg("--profile").arg(&profile).stdout(Stdio::null());
        let status = command.status().map_err(|source| binary.not_started(source))?;
        let failed = |what: String| Error::NotMeasured { spec: self.path.to_owned(), what };
        if !status.success() {
            return Err(failed("its run failed".to_owned()));
        }
        let recorded = Recorded::read(&profile).map_err(failed)?;
        sized.plan().with(|plan| {
            let (ops, beside_s) = ops(plan, &recorded).map_err(failed)?;
            hardware.measured.extend(measured_units(plan, threads.get(), self.per_core, ops));
            if self.per_core == 1 {
                hardware.device.op = rounded(beside_s);
            }
            Ok(())
        })
    }
}

/// A spec of the same model, in the same widths and on the same micro-batches, where each rank has all of it.
pub fn alone(spec: &Spec, path: &Path, ranks: usize) -> Result<String, Error> {
    let Spec { model: Some(model), batch: Batch { sequences, length, .. }, precision, .. } = spec else {
        return Err(Error::NoModel { spec: path.to_owned() });
    };
    let precision = ron_text(precision);
    Ok(format!(
        "(model: {model:?}, mesh: (zero: {ranks}), zero: (stage: 0), precision: {precision}, \
         batch: (sequences: {sequences}, length: {length}))\n"
    ))
}

/// What each op of a profile took, in seconds, and what lies between two ops.
fn ops(plan: &Plan, recorded: &Recorded) -> Result<(Vec<(Op, f64)>, f64), String> {
    let (mut ops, mut beside_s) = (Vec::new(), 0.0);
    for (rank, steps) in recorded.ranks.iter().enumerate() {
        let schedule = plan.of_rank(rank).step;
        for step in steps {
            if step.ops.len() != schedule.len() {
                return Err(format!("its profile has {} ops a step, the plan {}", step.ops.len(), schedule.len()));
            }
            beside_s += step.span.1 - step.ops.iter().map(|(_, _, took)| took).sum::<f64>();
            ops.extend(schedule.iter().zip(&step.ops).map(|(&op, (_, _, took))| (op, *took)));
        }
    }
    let count = ops.len().max(1) as f64;
    Ok((ops, (beside_s / count).max(0.0)))
}
