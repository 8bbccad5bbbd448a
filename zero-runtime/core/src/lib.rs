//! What the parts of the runtime agree on, so that they need not know one another.
//!
//! From below: [`size`] counts bytes, [`view`] borrows a device's memory, [`device`] says what a device does, an
//! [`arena`] is the memory of a rank on one, and a [`transport`] says when the bytes of other ranks are there. Ranks of a
//! host wait for one another by [`control`] blocks, and [`lost`] describes why a wait was in vain. [`layer`] has the layers,
//! written against a device's operations, and a [`model`] under a spec is a table of their code, as a value.
//!
//! - No kernel, no process and no file is here: devices, launchers and checkpoints are crates above this one.
//! - An error here is one of memory or of a device; what only a launcher, a file or a run can say is theirs.
//! - Memory is handed out only as views that end with the op that they were made for.
//!
//! It never decides what a step does, and never starts or ends a process.

pub mod arena;
pub mod control;
pub mod device;
pub mod layer;
pub mod lost;
pub mod model;
pub mod orthogonal;
pub mod random;
pub mod size;
pub mod speed;
pub mod states;
pub mod time;
pub mod transport;
pub mod view;

#[doc(hidden)]
pub use zero_plan as plan;
