//! Draw: builds the models of the specs to ask for their sizes, plans and times them, and writes a page or a figure. Never runs them.

use std::path::{Path, PathBuf};

use zero_plan::{Config, Plan, PlanBuf};
use zero_study::hardware::Hardware;
use zero_study::picture::{Picture, TimeAxis, Timed, operations};
use zero_study::simulate::{Impossible, simulate};

use super::ViewArguments;
use super::page::{self, PlanView, Variant};
use super::{profile, svg};
use crate::binary;
use crate::build;
use crate::error::CommandError;
use crate::hardware::OnHardware;
use crate::request::Request;
use crate::say;
use crate::sizes::SizedSpec;
use crate::workspace::Workspace;

/// Choices of `prefetch` that a page offers beside the spec's own.
const PREFETCHES: [usize; 9] = [0, 1, 2, 3, 4, 6, 8, 12, 16];
/// Ops of all choices together: more would make a page slow to open.
const OPS_MAX: usize = 60_000;

/// Writes the page or the figure, and prints its path.
pub fn view(arguments: &ViewArguments) -> Result<(), CommandError> {
    let on = arguments.on.clone().map(|on| OnHardware { on, network: arguments.network.clone() });
    let hardware = on.as_ref().map(OnHardware::read).transpose()?;
    let of_spec = |spec: &Path| {
        build::sizes_of_spec(&Request { spec: spec.to_owned(), program: arguments.request.program.clone() })
    };
    let spec = of_spec(&arguments.request.spec)?;
    let drawn = if arguments.svg {
        svg::figure(&PicturedSpec::of(&spec, hardware.as_ref())?.picture()?)
    } else {
        let pictured = PicturedSpec::of(&spec, hardware.as_ref())?;
        let mut first = pictured.view()?;
        if let Some(path) = &arguments.profile {
            first.measured = Some(profile::read(path, &pictured.planned())?);
        }
        let mut views = vec![first];
        if let Some(other) = &arguments.other {
            views.push(PicturedSpec::of(&of_spec(other)?, hardware.as_ref())?.view()?);
        }
        page::page(&views)
    };
    let path = match &arguments.out {
        Some(path) => path.clone(),
        None => place(&arguments.request.spec, if arguments.svg { "svg" } else { "html" })?,
    };
    write(&path, &drawn)?;
    say::line(path.display());
    Ok(())
}

fn write(path: &Path, drawn: &str) -> Result<(), CommandError> {
    std::fs::write(path, drawn).map_err(|source| CommandError::Out { path: path.to_owned(), source })
}

/// The path of a spec's picture: beside the binary that was built from the spec, which no other spec shares.
fn place(spec: &Path, extension: &str) -> Result<PathBuf, CommandError> {
    let target = Workspace::find()?.target;
    let target = target.canonicalize().unwrap_or(target);
    let spec = spec.canonicalize().map_err(|source| CommandError::Unreadable { path: spec.to_owned(), source })?;
    Ok(binary::place(&target, &spec, &format!("plan.{extension}")))
}

/// A spec, with everything that its pictures are drawn from.
struct PicturedSpec<'a> {
    spec: &'a SizedSpec,
    config: Config,
    hardware: Option<&'a Hardware>,
}

impl<'a> PicturedSpec<'a> {
    fn of(spec: &'a SizedSpec, hardware: Option<&'a Hardware>) -> Result<Self, CommandError> {
        let config = hardware.map_or(Ok(spec.spec.config()), |hardware| spec.config_on(hardware))?;
        Ok(Self { spec, config, hardware })
    }

    fn planned(&self) -> PlanBuf {
        self.planned_with(self.config.prefetch)
    }

    fn planned_with(&self, prefetch: usize) -> PlanBuf {
        self.spec.planned(Config { prefetch, ..self.config })
    }

    /// The plan of the spec as it is.
    fn picture(&self) -> Result<Picture, CommandError> {
        self.draw(&self.planned())
    }

    fn draw(&self, planned: &PlanBuf) -> Result<Picture, CommandError> {
        let name = self.spec.path.display().to_string();
        let drawn = planned.with(|plan| picture(plan, self.hardware, &name, &self.spec.text));
        // Only real hardware can lack something that a mesh needs.
        drawn.map_err(|reason| match self.hardware {
            Some(hardware) => CommandError::impossible(&self.spec.path, hardware, &reason),
            None => unreachable!("operations need no hardware: {reason}"),
        })
    }

    /// The plan of the spec, and plans with other choices of `prefetch`, if these make a difference.
    fn view(&self) -> Result<PlanView, CommandError> {
        let given = self.config.prefetch;
        let own = self.planned();
        let ops =
            own.with(|plan| plan.pipeline_stages.iter().map(|pipeline_stage| pipeline_stage.step.len()).sum::<usize>());
        let mut variants = Vec::new();
        for prefetch in self.prefetches(OPS_MAX / ops.max(1)) {
            let picture = if prefetch == given { self.draw(&own)? } else { self.draw(&self.planned_with(prefetch))? };
            variants.push(Variant { prefetch, is_given: prefetch == given, picture });
        }
        Ok(PlanView { name: self.spec.path.display().to_string(), variants, measured: None })
    }

    /// At most `most` choices of `prefetch`, but at least one, in order: the spec's, and the nearest choices that are less
    /// than the number of units that can be gathered.
    fn prefetches(&self, most: usize) -> Vec<usize> {
        let given = self.config.prefetch;
        if !self.config.shards_parameters() {
            return vec![given];
        }
        let gathered = self.spec.sizes.probes[0].units.iter().filter(|unit| unit.params > 0).count();
        let others = PREFETCHES.into_iter().filter(|&prefetch| prefetch < gathered && prefetch != given);
        let mut chosen: Vec<usize> = [given].into_iter().chain(others).collect();
        chosen.sort_by_key(|prefetch| prefetch.abs_diff(given));
        chosen.truncate(most.max(1));
        chosen.sort_unstable();
        chosen
    }
}

/// The picture of a plan: in time on some hardware or, without hardware, in operations.
fn picture(plan: &Plan, hardware: Option<&Hardware>, name: &str, text: &str) -> Result<Picture, Impossible> {
    let timed = |timeline, clock| Timed { timeline, clock, hardware: None, memory_bytes: None };
    let Some(hardware) = hardware else {
        return Ok(Picture::of(plan, timed(&operations(plan)?, TimeAxis::Operations), name, text));
    };
    let memory_bytes = hardware.budget_bytes(plan.config.mesh.ranks_per_node()) as usize;
    let timeline = simulate(plan, hardware)?;
    let timed = timed(&timeline, TimeAxis::Nanoseconds);
    let timed = Timed { hardware: Some(&hardware.name), memory_bytes: Some(memory_bytes), ..timed };
    Ok(Picture::of(plan, timed, name, text))
}

#[cfg(test)]
mod tests;
