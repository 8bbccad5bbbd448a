//! Simulate: what a step of a spec would be like on some hardware. Builds the model to ask for its sizes; never runs it.

use clap::Args;
use zero_ranks::processors::threads;
use zero_study::simulate::{Prediction, PredictionText};

use crate::error::CommandError;
use crate::hardware::{self, OnHardware};
use crate::request::Request;
use crate::saving::CheckpointTimes;
use crate::say;
use crate::sizes;

/// What to simulate.
#[derive(Args, Debug, PartialEq)]
pub struct SimulateArguments {
    #[command(flatten)]
    pub request: Request,
    #[command(flatten)]
    pub on: OnHardware,
    /// Threads of a rank, where the hardware is a processor; without it, ranks share its cores
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<std::num::NonZeroUsize>,
    /// Print it as JSON, whose shape docs/json.md says
    #[arg(long)]
    pub json: bool,
}

/// Prints what a step would be like.
pub fn simulate(arguments: &SimulateArguments) -> Result<(), CommandError> {
    let hardware = arguments.on.read()?;
    let sized = sizes::of_spec(&arguments.request)?;
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
