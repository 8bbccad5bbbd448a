//! Transport: how ranks communicate. [`Transport`] is the contract.

use crate::device::Cpu;

pub use zero_core::lost::{Broken, Lost, Silent};
pub use zero_core::transport::{ClockLook, Crossed, TIMEOUT, Transport};
pub use zero_core::watchdog::{Awaited, Watchdog};
pub use zero_ranks::transport::{cluster, local, shm};

/// [`zero_ranks::transport::Shared`], by default of ranks that compute on processors.
pub type Shared<'p, D = Cpu> = zero_ranks::transport::Shared<'p, D>;
