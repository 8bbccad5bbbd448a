//! Error: everything that can end a run, as a person should see it, once. Never prints.

use std::path::PathBuf;

use crate::data::DataError;
use crate::engine::RunError;
use crate::launch::LaunchError;
use crate::plan::Flaw;
use crate::transport::Lost;

/// Why a run ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Ranks could not be started or joined, or one of them ended.
    #[error("{}", .0.report())]
    Launch(#[from] LaunchError),
    /// The data cannot be trained on.
    #[error("{}", .0.report())]
    Data(#[from] DataError),
    /// A step could not be done.
    #[error(transparent)]
    Run(#[from] RunError),
    /// What ranks do together does not fit: an error of the planner, not of its user.
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
    /// A file of results cannot be written.
    #[error("error[Z0351]: cannot write {what} to {}: {source}\n  = help: {help}", path.display())]
    Results {
        /// What it is to hold.
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

impl Error {
    /// Whether every rank finds the same, so that rank 0 speaks for all.
    pub fn is_common(&self) -> bool {
        matches!(self, Error::Run(RunError::NonFinite(_)) | Error::Data(_) | Error::Argument { .. } | Error::Unsound(_))
    }

    /// Whether another rank or the launcher tells the same better.
    pub fn is_echo(&self) -> bool {
        match self {
            Error::Run(RunError::Lost(_)) => true,
            Error::Launch(error) => error.is_echo(),
            _ => false,
        }
    }
}
