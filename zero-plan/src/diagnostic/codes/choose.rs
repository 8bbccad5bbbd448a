//! Choose: mistakes in what a layout is asked for.

use super::Code;

/// In order.
pub(super) const CODES: &[Code] = &[];
