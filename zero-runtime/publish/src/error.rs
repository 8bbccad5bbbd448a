//! Errors of publications.

use std::io;

/// Why a rank cannot serve, or a reader cannot read.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// A rank cannot serve at its address.
    #[error("{address} cannot be bound: {source}")]
    Address {
        /// The address.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// Nobody answers.
    #[error("no answer from {url}: {what}")]
    Unreachable {
        /// The URL.
        url: String,
        /// Why.
        what: String,
    },
    /// An answer that is none of a run that publishes.
    #[error("{url} answers {status}: {what}")]
    Refused {
        /// The URL.
        url: String,
        /// The status of HTTP.
        status: u16,
        /// What it says.
        what: String,
    },
    /// A newer version has taken its place.
    #[error("version {version} was given up")]
    GivenUp {
        /// The version.
        version: String,
    },
    /// Bytes that are not those that were published.
    #[error("{what} of version {version} is corrupt: {why}")]
    Corrupt {
        /// The version.
        version: String,
        /// The bytes: which piece of which rank, or which document.
        what: String,
        /// Expected and found.
        why: String,
    },
}

impl PublishError {
    /// That the run at `url` has published nothing yet.
    pub fn nothing(url: &str) -> Self {
        Self::Unreachable { url: url.to_owned(), what: "it has published nothing yet".to_owned() }
    }
}
