//! Plan: prints the plan of a spec, as its binary prints it or as JSON. Never trains.

use std::os::unix::process::CommandExt;

use clap::Args;
use zero_study::summary::Summary;

use crate::error::CommandError;
use crate::request::{Purpose, Request};
use crate::{build, hardware, say};

/// The plan to print, and the format.
#[derive(Args, Debug, PartialEq)]
pub struct PlanArguments {
    #[command(flatten)]
    pub request: Request,
    /// Also print the places of all data, and every op of every pipeline stage
    #[arg(long)]
    pub schedule: bool,
    /// Print its figures as JSON, as described in docs/json.md
    #[arg(long, conflicts_with = "schedule")]
    pub json: bool,
}

/// Prints the plan.
pub fn plan(arguments: &PlanArguments) -> Result<(), CommandError> {
    let request = &arguments.request;
    if !arguments.json {
        let binary = build::build(request, Purpose::Questions)?;
        if let Some(size) = &binary.size {
            say::line(format_args!("size: {size}"));
        }
        let what = if arguments.schedule { "--schedule" } else { "--plan" };
        return Err(binary.not_started(binary.command().arg(what).exec()));
    }
    let summary = build::sizes_of_spec(request)?.plan().with(Summary::of);
    let summary = summary.map_err(|flaw| CommandError::Flawed { spec: request.spec.clone(), flaw })?;
    say::line(hardware::json(&summary));
    Ok(())
}
