//! Code that the tests share: tiny models, a way to train them under any plan, an independent reference, and the golden
//! files that both are compared with. Contains no test: tests are in `tests/tests/`, and `tests/README.md` says which goes where.
//!
//! No number of ranks divides a model's number of parameters, so that there is always padding. The reference computes in f64 by
//! plain loops, and shares no code with a kernel. Programs that tests start as processes are in `src/bin/`.

pub mod buffers;
pub mod heads;
pub mod layout;
pub mod long;
pub mod pretend;
pub mod published;
pub mod readers;
pub mod reference;
pub mod saved;
pub mod small;
pub mod specs;
pub mod tiers;
pub mod tiny;
pub mod training;

pub use zero_naive as naive;
