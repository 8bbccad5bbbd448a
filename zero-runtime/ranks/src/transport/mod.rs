//! Transport: signals when the bytes of other ranks are ready, and brings them here if they cannot be read in place. Never
//! computes: sums and changes of width belong to the engine and the device.
//!
//! `shared` is for ranks that see one memory; `local` makes ranks of threads, `shm` of processes; `cluster` joins ranks of
//! several hosts.
#![allow(unsafe_code)]

mod carried;
pub mod cluster;
mod exchange;
mod host_peers;
pub mod local;
mod queued;
mod shared;
pub mod shm;
mod watchdog;

use zero_core::control;
pub(crate) use zero_core::lost::Life;
pub use zero_core::lost::{Broken, Lost, Silent};
pub use zero_core::transport::{ClockLook, Crossed, TIMEOUT, Transport};

pub use shared::Shared;
