//! Units: what the units of a model take on this machine while all of its cores work: the model is trained for some steps by as
//! many ranks as there are cores for, without sharding, so that each rank runs every unit. Never measures a layout.

use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Stdio;

use zero_plan::hardware::MeasuredUnit;
use zero_plan::spec::{Batch, Spec, ron_text};
use zero_plan::{Hardware, Op, Plan};

use super::{Recorded, rounded};
use crate::arguments::Request;
use crate::build::write_if_changed;
use crate::error::Error;
use crate::sizes;
use crate::workspace::Workspace;

/// Steps of a run: the profile begins with the third, and takes ten.
const STEPS: &str = "12";

/// Measures the units of the model of a spec, in its widths and on its micro-batches, with so many threads a rank. Adds them to
/// the hardware, in place of what was measured of them before, and says how long an op takes beside its work.
pub fn measure(path: &Path, size: Option<&str>, threads: NonZeroUsize, hardware: &mut Hardware) -> Result<(), Error> {
    let workspace = Workspace::find()?;
    let own = workspace.target.join("zero").join("build");
    std::fs::create_dir_all(&own).map_err(|source| Error::Write { path: own.clone(), source })?;
    let (derived, profile) = (own.join("measure.ron"), own.join("measure.json"));
    let ranks = (hardware.node.devices / threads.get()).max(1);
    write_if_changed(&derived, alone(&crate::build::read(path)?, ranks)?.as_bytes())?;
    let request = Request { spec: derived.clone(), bin: None, size: size.map(str::to_owned) };
    let (binary, sized) = sizes::binary_of_spec(&request)?;
    let _ = std::fs::remove_file(&profile);
    eprintln!("measuring the units of {} with {threads} threads on {ranks} ranks", path.display());
    let mut command = binary.command();
    command.args([
        "--steps",
        STEPS,
        "--held-out",
        "0",
        "--sample",
        "0",
        "--threads",
        &threads.to_string(),
        "--profile",
    ]);
    let status = command.arg(&profile).stdout(Stdio::null()).status().map_err(|source| binary.not_started(source))?;
    let failed = |what: String| Error::NotMeasured { spec: path.to_owned(), what };
    if !status.success() {
        return Err(failed("its run failed".to_owned()));
    }
    let recorded = Recorded::read(&profile).map_err(failed)?;
    sized.plan().with(|plan| {
        let times = Times::of(plan, &recorded).map_err(failed)?;
        hardware.measured.retain(|it| !times.replaces(plan, it, threads.get()));
        hardware.measured.extend(times.units(plan, threads.get()));
        hardware.device.op = rounded(times.beside_s).max(0.0);
        Ok(())
    })
}

/// A spec of the same model, in the same widths and on the same micro-batches, where each rank has all of it.
fn alone(spec: &Spec, ranks: usize) -> Result<String, Error> {
    let Spec { model: Some(model), batch: Batch { sequences, length, .. }, precision, .. } = spec else {
        return Err(Error::NoModel { spec: "measure.ron".into() });
    };
    let precision = ron_text(precision);
    Ok(format!(
        "(model: {model:?}, mesh: (replica: {ranks}), zero: (stage: 0), precision: {precision}, \
         batch: (sequences: {sequences}, length: {length}, micro_batches: 2))\n"
    ))
}

/// What ops took: the median over ranks, steps, micro-batches and units with the same layer.
struct Times {
    /// Of each position: its first unit, and seconds of forward, backward and update.
    layers: Vec<(usize, [f64; 3])>,
    /// Seconds between two ops.
    beside_s: f64,
}

impl Times {
    fn of(plan: &Plan, recorded: &Recorded) -> Result<Self, String> {
        let positions = plan.units.iter().map(|unit| unit.position).max().map_or(0, |last| last + 1);
        let mut seconds = vec![[const { Vec::new() }; 3]; positions];
        let (mut beside, mut ops) = (0.0, 0);
        for (rank, steps) in recorded.ranks.iter().enumerate() {
            let schedule = plan.of_rank(rank).step;
            for step in steps {
                if step.ops.len() != schedule.len() {
                    return Err(format!("its profile has {} ops a step, the plan {}", step.ops.len(), schedule.len()));
                }
                for (&op, (_, _, took)) in schedule.iter().zip(&step.ops) {
                    let (Some(kind), Some(unit)) = (kind(op), op.unit()) else { continue };
                    seconds[plan.units[unit].position][kind].push(*took);
                }
                beside += step.span.1 - step.ops.iter().map(|(_, _, took)| took).sum::<f64>();
                ops += schedule.len();
            }
        }
        let first = |position| plan.units.iter().position(|unit| unit.position == position);
        let layers =
            seconds.into_iter().enumerate().filter_map(|(position, times)| Some((first(position)?, times.map(median))));
        Ok(Self { layers: layers.collect(), beside_s: beside / ops.max(1) as f64 })
    }

    fn units(&self, plan: &Plan, threads: usize) -> Vec<MeasuredUnit> {
        let measured = self.layers.iter().map(|&(unit, [forward, backward, update])| {
            let it = &plan.units[unit];
            MeasuredUnit {
                model: plan.model.to_owned(),
                field: it.field.to_owned(),
                position: it.position,
                params: it.params,
                compute: plan.config.precision.compute,
                tokens: plan.config.tokens(),
                threads,
                forward: rounded(forward),
                backward: rounded(backward),
                update: if update > 0.0 { rounded(update) } else { 0.0 },
            }
        });
        measured.collect()
    }

    /// Whether something was measured of the same units.
    fn replaces(&self, plan: &Plan, other: &MeasuredUnit, threads: usize) -> bool {
        let times = |it: &MeasuredUnit| MeasuredUnit { forward: 0.0, backward: 0.0, update: 0.0, ..it.clone() };
        self.units(plan, threads).iter().any(|own| times(own) == times(other))
    }
}

/// Which of the three times of a unit an op is.
const fn kind(op: Op) -> Option<usize> {
    match op {
        Op::Forward { .. } => Some(0),
        Op::Backward { .. } => Some(1),
        Op::Update { .. } => Some(2),
        _ => None,
    }
}

/// The middle of some times; 0 of none.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    match times.len() {
        0 => 0.0,
        len => (times[(len - 1) / 2] + times[len / 2]) / 2.0,
    }
}
