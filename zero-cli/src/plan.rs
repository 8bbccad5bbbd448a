//! Plan: prints the plan of a spec, as its binary prints it or as JSON. Never trains.

use clap::Args;
use zero_study::summary::Summary;

use crate::error::CommandError;
use crate::request::{Purpose, Request};
use crate::{become_binary, build, hardware, say};

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
        return become_binary(
            request,
            Purpose::Questions,
            &[if arguments.schedule { "--schedule" } else { "--plan" }.into()],
        );
    }
    let summary = build::sizes_of_spec(request)?.plan().with(Summary::of);
    let summary = summary.map_err(|flaw| CommandError::Flawed { spec: request.spec.clone(), flaw })?;
    say::line(hardware::json(&summary));
    Ok(())
}
