//! See: mistakes in what is to be drawn.

use super::Code;

/// In order.
pub(super) const CODES: &[Code] = &[];
