//! Report: a plan as a person reads it. Formats, never computes.

use core::fmt;

use crate::message::Bytes;
use crate::plan::Plan;

/// Prints what a plan takes and moves: memory per rank by part, bytes on the wire per step.
pub struct Report<'a>(pub &'a Plan<'a>);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Bytes(self.0.bytes_per_rank_max()))
    }
}
