//! Checkpoint arguments: options of a binary about checkpoints, and about recovery when a run is ended. Never acts on
//! one.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::arguments::as_text;
use super::range::{at_least_one, duration, every, resume, seconds, whole};
use zero_files::checkpoint::Store;
use zero_ranks::launch::{LaunchAnswer, LaunchOptions, RunFolder};

const CHECKPOINTS: &str = "Checkpoints";
const RETURN: &str = "Recovery";

/// How often a checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Every {
    /// After every multiple of this many steps.
    Steps(NonZeroU64),
    /// At the end of the first step that ends at least this long after the last checkpoint began, by the clock of rank 0.
    Time(Duration),
}

/// Where a run resumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Resume {
    /// At the newest checkpoint that is whole; at the beginning, if there is none.
    Newest,
    /// At the checkpoint with this path.
    From(PathBuf),
}

/// Arguments about checkpoints and recovery.
#[derive(Args, Clone, Debug, Serialize)]
pub struct CheckpointArguments {
    /// Folder for checkpoints: one at the end, one when the run is asked to end (exit code 75), and those of --every
    #[arg(long, value_name = "FOLDER", help_heading = CHECKPOINTS)]
    #[serde(serialize_with = "as_text")]
    pub checkpoint: Option<PathBuf>,
    /// Also write one after every so many steps, or so much time: 500, 90s, 10m, 2h
    #[arg(long, value_name = "STEPS_OR_TIME", requires = "checkpoint", value_parser = every, help_heading = CHECKPOINTS)]
    pub every: Option<Every>,
    /// Remove checkpoints older than the newest N; without it, all are kept
    #[arg(long, value_name = "N", requires = "checkpoint", value_parser = at_least_one, help_heading = CHECKPOINTS)]
    pub keep: Option<NonZeroU64>,
    /// Continue from the newest whole checkpoint in --checkpoint, if there is one, or from the one at PATH
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "newest", value_parser = resume)]
    #[arg(help_heading = CHECKPOINTS)]
    pub resume: Option<Resume>,
    /// End the run if a checkpoint cannot be written, instead of continuing to the next one
    #[arg(long, requires = "checkpoint", help_heading = CHECKPOINTS)]
    pub checkpoint_or_stop: bool,
    /// After a signal that asks the run to end, end without the checkpoint if it takes longer than this
    #[arg(long, default_value = "60s", value_name = "TIME", value_parser = duration, help_heading = RETURN)]
    #[serde(serialize_with = "seconds")]
    pub grace: Duration,
    /// Restart all ranks from the newest checkpoint, up to N times, when one of them dies or stops answering; on several
    /// hosts, `cargo zero launch` restarts them
    #[arg(long, default_value_t = 0, value_name = "N", requires = "checkpoint", value_parser = whole)]
    #[arg(help_heading = RETURN)]
    pub restarts: u64,
    /// Also do so when a loss or a gradient is not finite
    #[arg(long, requires = "restarts", help_heading = RETURN)]
    pub rollback: bool,
    /// End the run when a rank has waited this long for another one; four times as long in the first two steps
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = duration, help_heading = RETURN)]
    #[serde(serialize_with = "seconds")]
    pub timeout: Duration,
}

impl CheckpointArguments {
    /// The options of the launcher of a run of `steps` steps.
    pub fn launch_options(&self, steps: u64) -> LaunchOptions {
        self.launch_answer(steps).options(Store::newest, Store::is_taken)
    }

    /// The options of the launcher, to be sent to another program.
    pub(super) fn launch_answer(&self, steps: u64) -> LaunchAnswer {
        LaunchAnswer {
            finishes_on_signal: self.checkpoint.is_some(),
            grace: self.grace,
            restarts: self.restarts,
            folder: self.checkpoint.clone(),
            last_step: self.checkpoint.is_some().then_some(steps),
        }
    }
}

/// The folder of a run's checkpoints, for its launcher.
pub fn run_folder(path: PathBuf) -> RunFolder {
    RunFolder { path, newest: Store::newest, is_taken: Store::is_taken }
}
