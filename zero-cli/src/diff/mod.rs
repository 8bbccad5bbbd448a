//! Diff: how two specs differ by their plans, or a spec and its version in git's HEAD, or two checkpoints, which
//! `checkpoint` compares. Never trains.

mod head;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use zero_plan::PlanBuf;
use zero_ranks::terminal;
use zero_study::difference::{Difference, DifferenceText, PlanSide};
use zero_study::hardware::Hardware;
use zero_study::simulate::simulate;

use crate::error::CommandError;
use crate::hardware::{self, OnHardware};
use crate::request::{ModelRequest, Request};
use crate::sizes::SizedSpec;
use crate::{build, checkpoint, expanded, program, say};

/// The exit code if the two differ.
const DIFFERENT: u8 = 1;
/// The exit code if one of the two cannot be read.
const UNKNOWN: u8 = 2;

/// What to compare.
#[derive(Args, Debug, PartialEq)]
pub struct DiffArguments {
    /// A spec, or a checkpoint
    pub first: PathBuf,
    /// The other spec or checkpoint; without it, the spec is compared with its version in git's HEAD
    pub second: Option<PathBuf>,
    /// Compare the plans as they would be on this hardware, and the time of a step there: a file, or the name of known hardware
    #[arg(long, value_name = "HARDWARE")]
    pub on: Option<String>,
    /// Another network between its nodes: a file, or a name
    #[arg(long, value_name = "NETWORK", requires = "on")]
    pub network: Option<String>,
    /// Print the difference of specs as JSON, as described in docs/json.md
    #[arg(long)]
    pub json: bool,
    /// Print the difference of the two steps as code, which `expand` writes, line by line
    #[arg(long, conflicts_with_all = ["json", "on"])]
    pub code: bool,
    #[command(flatten)]
    pub program: ModelRequest,
}

impl DiffArguments {
    /// The named specs or checkpoints, one or two.
    fn named(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(self.first.as_path()).chain(self.second.as_deref())
    }
}

/// Prints how two specs or two checkpoints differ. The exit codes are those of `diff`: 0 if they are equal, 1 if they
/// differ, and 2 if they cannot be compared.
pub fn diff(arguments: &DiffArguments) -> ExitCode {
    let is_of_specs = arguments.named().all(is_spec);
    let differs = match (is_of_specs, &arguments.second) {
        (false, Some(second)) if !(arguments.json || arguments.code || arguments.on.is_some()) => {
            checkpoint::differ(&arguments.first, second)
        }
        (false, _) => Err(CommandError::NoSpecs { first: arguments.first.clone() }),
        (true, _) => of_specs(arguments),
    };
    match differs {
        Ok(false) => ExitCode::SUCCESS,
        Ok(true) => ExitCode::from(DIFFERENT),
        Err(error) => {
            terminal::tell(&error);
            ExitCode::from(UNKNOWN)
        }
    }
}

fn is_spec(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "ron") && !path.is_dir()
}

/// Whether the plans of two specs differ; prints the difference.
fn of_specs(arguments: &DiffArguments) -> Result<bool, CommandError> {
    let on = arguments.on.clone().map(|on| OnHardware { on, network: arguments.network.clone() });
    let hardware = on.map(|on| on.read()).transpose()?;
    // Mistakes in either spec are reported before minutes of work, not after.
    for spec in arguments.named() {
        program::read(spec)?;
    }
    let sized =
        |spec: &Path| build::sizes_of_spec(&Request { spec: spec.to_owned(), program: arguments.program.clone() });
    let (first, second) = (&arguments.first, arguments.second.as_ref());
    let shown = |path: &Path| path.display().to_string();
    let (before, after, names) = match second {
        Some(second) => (sized(first)?, sized(second)?, [shown(first), shown(second)]),
        None => {
            let committed = head::committed(first)?;
            (sized(&committed)?, sized(first)?, [format!("HEAD:{}", first.display()), shown(first)])
        }
    };
    let difference = compare(&before, &after, &names, hardware.as_ref())?;
    match arguments {
        DiffArguments { json: true, .. } => say::line(hardware::json(&difference)),
        DiffArguments { code: true, .. } => say::line(code(&before, &after, &names)),
        _ => say::line(DifferenceText(&difference)),
    }
    Ok(!difference.is_equal)
}

/// The lines by which the steps of two specs differ as code.
fn code(before: &SizedSpec, after: &SizedSpec, names: &[String; 2]) -> String {
    let [first, second] =
        [(before, &names[0]), (after, &names[1])].map(|(sized, name)| expanded::text(&sized.plan(), name));
    let mut options = diffy::DiffOptions::new();
    options.set_original_filename(names[0].clone()).set_modified_filename(names[1].clone());
    options.create_patch(&first, &second).to_string().trim_end().to_owned()
}

fn compare(
    before: &SizedSpec,
    after: &SizedSpec,
    names: &[String; 2],
    hardware: Option<&Hardware>,
) -> Result<Difference, CommandError> {
    let [(before_plan, first_s), (after_plan, second_s)] = [planned(before, hardware)?, planned(after, hardware)?];
    Ok(before_plan.with(|first| {
        let first = PlanSide { name: &names[0], spec: &before.spec, plan: first, step_s: first_s };
        after_plan.with(|second| {
            let second = PlanSide { name: &names[1], spec: &after.spec, plan: second, step_s: second_s };
            Difference::of(&first, &second)
        })
    }))
}

/// The plan of a spec. With hardware, the plan is adapted to it, and the seconds of a step are returned too.
fn planned(sized: &SizedSpec, hardware: Option<&Hardware>) -> Result<(PlanBuf, Option<f64>), CommandError> {
    let Some(hardware) = hardware else { return Ok((sized.plan(), None)) };
    let plan = sized.plan_on(hardware)?;
    let timeline = plan.with(|plan| simulate(plan, hardware));
    let timeline = timeline.map_err(|reason| CommandError::impossible(&sized.path, hardware, &reason))?;
    Ok((plan, Some(timeline.step_s)))
}
