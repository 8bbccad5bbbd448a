//! Simulate: the predicted step of a spec on some hardware. Builds the model to ask for its sizes; never runs it.

use clap::Args;
use zero_ranks::processors::threads;
use zero_study::simulate::{Prediction, PredictionText};

use crate::build;
use crate::error::CommandError;
use crate::hardware::{self, OnHardware};
use crate::request::Request;
use crate::saving::CheckpointTimes;
use crate::say;

/// The step to simulate.
#[derive(Args, Debug, PartialEq)]
pub struct SimulateArguments {
    #[command(flatten)]
    pub request: Request,
    #[command(flatten)]
    pub on: OnHardware,
    /// Threads of a rank, if the hardware is a processor; without it, ranks share its cores
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Print the prediction as JSON, as described in docs/json.md
    #[arg(long)]
    pub json: bool,
}

/// Prints the predicted step.
pub fn simulate(arguments: &SimulateArguments) -> Result<(), CommandError> {
    let hardware = arguments.on.read()?;
    let sized = build::sizes_of_spec(&arguments.request)?;
    let plan = sized.plan_on(&hardware)?;
    let threads = arguments.threads.map(std::num::NonZeroUsize::get);
    let prediction = plan.with(|plan| Prediction::of(plan, &hardware, threads));
    let prediction = prediction.map_err(|reason| CommandError::impossible(&sized.path, &hardware, &reason))?;
    match arguments.json {
        true => say::line(hardware::json(&prediction)),
        false => {
            say::line(PredictionText(&prediction));
            if let Some(saving) = hardware.node.disk.map(|disk| plan.with(|plan| CheckpointTimes::of(plan, disk))) {
                say::line(format_args!("\n{saving}"));
            }
        }
    }
    Ok(())
}
