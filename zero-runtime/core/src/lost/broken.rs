//! Broken: describes a device or a tier that has failed in the middle of a run: what it could not do, and which op its
//! rank was at. Never touches it.

use core::fmt;

use crate::device::Failure;

/// A device or a tier that no longer works.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// What went wrong.
    pub failure: Failure,
    /// The rank that it belongs to.
    pub rank: usize,
    /// The op that the host was at when it noticed. A device that is behind its host failed in this op or before.
    pub doing: String,
}

impl core::error::Error for Broken {}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { failure, rank, doing } = self;
        writeln!(f, "error[{}]: {}", failure.code, failure.what)?;
        writeln!(f, "  --> rank {rank}, in {doing} or before")?;
        write!(f, "  = help: {}", failure.help)
    }
}
