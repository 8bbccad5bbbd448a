//! Error: why a device or the host's memory is unavailable, with message, stable code and way out. Never prints.

use std::io;

use zero_plan::Bytes;

use super::Failure;

/// Why memory cannot be allocated, or a device cannot be used.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each variant's message names its fields")]
pub enum DeviceError {
    #[error("the run needs {} of memory, but only {} are available {limit}", size(*bytes), size(*available))]
    OutOfMemory { bytes: u64, available: u64, limit: String },
    #[error("{0}")]
    Failed(Failure),
    #[error("cannot {what}: {source}")]
    System { what: &'static str, source: io::Error },
}

impl DeviceError {
    /// For `map_err`: `what` completes "cannot ...".
    pub fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what, source: source.into() }
    }

    /// The stable code.
    pub fn code(&self) -> &'static str {
        match self {
            Self::OutOfMemory { .. } => "Z0331",
            Self::Failed(failure) => failure.code,
            Self::System { .. } => "Z0332",
        }
    }

    /// What the error means and how to go on.
    pub fn help(&self) -> &str {
        match self {
            Self::OutOfMemory { .. } => {
                "free memory, or build from a spec that needs less: a higher stage or a smaller batch"
            }
            Self::Failed(failure) => &failure.help,
            Self::System { .. } => "the operating system refused; see the limits of this user and container",
        }
    }

    /// The whole error, as printed for a person.
    pub fn report(&self) -> String {
        format!("error[{}]: {self}\n  = help: {}", self.code(), self.help())
    }
}

fn size(bytes: u64) -> Bytes {
    Bytes(bytes as usize)
}
