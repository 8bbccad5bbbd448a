//! Error: everything that can end a run, as text for a person. Never prints.

use std::path::PathBuf;

use zero_core::device::DeviceError;
use zero_core::lost::Lost;
use zero_core::model::NamesError;
use zero_engine::RunError;
use zero_files::checkpoint::{CheckpointError, PublishError};
use zero_files::data::DataError;
use zero_files::tier::TierError;
use zero_files::weights::{ExportError, WeightsError};
use zero_plan::{Bytes, Flaw};
use zero_ranks::launch::{EXIT_AGAIN, EXIT_REPORTED, LaunchError};

/// Why a run has ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Ranks could not be started or joined, or one of them ended.
    #[error("{}", .0.report())]
    Launch(#[from] LaunchError),
    /// The data cannot be trained on.
    #[error("{}", .0.report())]
    Data(#[from] DataError),
    /// Published weights cannot be read or written.
    #[error("{}", .0.report())]
    Weights(#[from] WeightsError),
    /// A checkpoint cannot be read, or written.
    #[error("{}", .0.report())]
    Checkpoint(#[from] CheckpointError),
    /// States cannot be kept in the folder of `--offload`.
    #[error("{}", .0.report())]
    Tier(#[from] TierError),
    /// Published parameters cannot be served.
    #[error(
        "error[Z0338]: cannot serve published parameters at `--publish {at}`: {what}\n  = help: name an address of this host with \
         a free port for each of its ranks, or port 0 for any"
    )]
    Publish {
        /// The address that was asked for.
        at: String,
        /// What went wrong.
        what: String,
    },
    /// A worker cannot serve.
    #[cfg(feature = "serve")]
    #[error(
        "error[Z0339]: this worker cannot serve: {what}\n  = help: name a free address of this host by --host and --port, and by \
         --from a run of this model that publishes"
    )]
    Serve {
        /// What went wrong.
        what: String,
    },
    /// All ranks have the same error.
    #[error(transparent)]
    OfAll(Box<Error>),
    /// A step could not be done.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The ops of the ranks do not fit together, which is a fault of the planner and not of its user.
    #[error("error{0}\n  = help: this is a fault of zero: please report it with the spec")]
    Unsound(#[from] Flaw),
    /// An argument contradicts another one, or the plan.
    #[error("error[Z0350]: {what}\n  = help: {help}")]
    Argument {
        /// What was expected and found.
        what: String,
        /// The way out.
        help: String,
    },
    /// The model predicts no numbers.
    #[error(
        "error[Z0401]: logits after {} of the sample are infinite or NaN\n  = help: take the parameters of an earlier step; \
         `evaluate`, with a text, names the unit whose output goes wrong",
        zero_plan::counted(*tokens, "token", "tokens")
    )]
    Logits {
        /// Tokens before them, those of the prompt included.
        tokens: usize,
    },
    /// Names that `#[weights]` gives do not fit the layers, or are not unique.
    #[error(transparent)]
    Names(#[from] NamesError),
    /// The arguments of the run ask for more than the budget of its spec.
    #[error(
        "error[Z0333]: with {threads} threads a rank needs {}, but `memory` in the spec is {}\n  = help: {help}",
        Bytes(*needed_bytes), Bytes(*budget_bytes)
    )]
    OverBudget {
        /// Threads of each rank.
        threads: usize,
        /// The most memory that a rank takes, in its arena and outside of it.
        needed_bytes: usize,
        /// The budget of the spec.
        budget_bytes: usize,
        /// The way out.
        help: String,
    },
    /// A measurement differs from the plan.
    #[error(
        "error[{code}]: rank {rank}, {what}: planned are {}{planned} bytes, measured {measured}\n  = help: {help}",
        if *is_bound { "at most " } else { "" }
    )]
    NotAsPlanned {
        /// The stable code.
        code: &'static str,
        /// The first rank with such a difference.
        rank: usize,
        /// What was measured.
        what: &'static str,
        /// The planned bytes.
        planned: usize,
        /// The measured bytes.
        measured: usize,
        /// Whether the planned value is an upper bound, so that less is as planned.
        is_bound: bool,
        /// The way out.
        help: &'static str,
    },
    /// A rank would compute different bits than the others.
    #[error(
        "error[Z0447]: rank {rank} has another {what}: expected {expected}, on {agreeing} of {peers} ranks, found {found}\n  = \
         help: this difference may change results: start all ranks on devices of one kind, with the same libraries"
    )]
    DeviceDiffers {
        /// The odd rank.
        rank: usize,
        /// What differs.
        what: &'static str,
        /// The value of most ranks among those that should have the same, or of the first of them.
        expected: u64,
        /// How many of these ranks have it.
        agreeing: usize,
        /// Number of these ranks, the odd one included.
        peers: usize,
        /// Its own value.
        found: u64,
    },
    /// A file of results cannot be written.
    #[error("error[Z0351]: cannot write {what} to {}: {source}\n  = help: {help}", path.display())]
    Results {
        /// The contents of the file.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
        /// The way out.
        help: &'static str,
    },
}

impl From<Lost> for Error {
    fn from(lost: Lost) -> Self {
        Error::Run(lost.into())
    }
}

impl From<ExportError> for Error {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Weights(error) => error.into(),
            ExportError::Lost(lost) => lost.into(),
        }
    }
}

impl From<PublishError> for Error {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Checkpoint(error) => error.into(),
            PublishError::Weights(error) => error.into(),
        }
    }
}

impl From<DeviceError> for Error {
    fn from(error: DeviceError) -> Self {
        Self::Launch(error.into())
    }
}

impl Error {
    /// Whether all ranks have agreed on it and have the same message.
    pub fn is_agreed(&self) -> bool {
        matches!(
            self,
            Error::Run(RunError::NonFinite(_) | RunError::OutOfRange(_))
                | Error::Logits { .. }
                | Error::NotAsPlanned { .. }
                | Error::DeviceDiffers { .. }
                | Error::OfAll(_)
        )
    }

    /// Whether the error names a silent rank. Of all ranks that have waited for the silent one, this rank reports it at
    /// once: the wait is in vain, and no rank can be asked.
    pub fn is_silence(&self) -> bool {
        matches!(self, Error::Run(RunError::Lost(Lost::Silent(_))))
    }

    /// The exit code of a rank that ends with this error. It shows whether a restart may help; `rolls_back` says whether a
    /// restart may help against numbers that are not finite.
    pub fn exit_code(&self, rolls_back: bool) -> u8 {
        match self {
            Error::Run(RunError::Lost(_)) => EXIT_AGAIN,
            Error::Run(RunError::NonFinite(_)) if rolls_back => EXIT_AGAIN,
            Error::Launch(error) => error.exit_code(),
            _ => EXIT_REPORTED,
        }
    }

    /// Whether another rank or the launcher prints a better message for the same cause.
    pub fn is_echo(&self) -> bool {
        match self {
            Error::Run(RunError::Lost(Lost::Ended { .. })) => true,
            Error::Launch(error) => error.is_echo(),
            _ => false,
        }
    }
}
