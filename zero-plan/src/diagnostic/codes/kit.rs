//! Kit: mistakes in files of other frameworks, names of new crates, and words to explain.

use super::Code;

/// In order.
pub(super) const CODES: &[Code] = &[];
