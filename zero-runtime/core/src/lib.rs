//! The contracts that the parts of the runtime share, so that they need not know one another. Never decides what a step
//! does, and never starts or ends a process.
//!
//! # What is in it
//!
//! - [`checked`] counts bytes without wrapping around, [`view`] borrows a device's memory, and an [`arena`] is the
//!   memory of a rank on its device, and the memory that it shares.
//! - [`device`] is the contract of devices, split by purpose: memory, queues, kernels, and the communicator that
//!   carries bytes between devices.
//! - [`layer`] has the layers, written against a device's operations, and the table of their code. A [`model`] under a
//!   spec is a [`model::Program`], a value that the engine, files and runs use. [`orthogonal`] orthogonalizes a matrix
//!   for Muon.
//! - A [`transport`] says when the bytes of other ranks are ready. Ranks of a host wait for one another by [`control`]
//!   blocks, and [`lost`] describes why a wait was in vain. A [`watchdog`] reports and ends waits, also in threads that
//!   have no transport.
//! - A [`tier`] keeps states where no device reaches them, such as in files.
//! - [`states`] is a rank's part of a model as files read and fill it. [`random`], [`time`] and [`speed`] are draws,
//!   clocks, and how fast a device is.
//!
//! # What is always true
//!
//! - No kernel, no process and no file is here: devices, launchers and checkpoints are crates above this one.
//! - Errors here concern memory or a device; launchers, files and runs define their own.
//! - Memory is handed out only as views that end with the op that they were made for.
//! - Sums are f32. Inputs and outputs of layers have the width of `precision.compute`, and each is rounded once, when
//!   it is stored.
//! - Counts in control blocks only grow, and every wait for one ends.
//!
//! The first lines of [`layer`], [`device`] and [`transport`] say where the next layer, device, kernel or transport
//! goes.

pub mod arena;
pub mod checked;
pub mod control;
pub mod device;
pub mod layer;
pub mod lost;
pub mod model;
pub mod orthogonal;
pub mod published;
pub mod random;
pub mod sampling;
pub mod speed;
pub mod states;
pub mod tier;
pub mod time;
pub mod transport;
pub mod view;
pub mod watchdog;

#[doc(hidden)]
pub use zero_plan as plan;
