//! Failure: why a device no longer runs ops, in words. Never says which op of a step failed: the engine knows that.

use std::fmt;

/// What went wrong on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The stable code.
    pub code: &'static str,
    /// What was attempted, and how it failed.
    pub what: String,
    /// The way out.
    pub help: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}
