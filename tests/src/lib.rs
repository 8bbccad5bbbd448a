//! What the tests share: an independent reference, and the golden files it is held against.

pub mod reference;
