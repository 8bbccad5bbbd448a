//! How a program becomes ranks, and how these reach one another.
//!
//! [`launch`] makes ranks of processes: a launcher starts them, those of one host find one another and share one piece of
//! memory, and all of them end when one does. [`transport`] tells each rank when the bytes of others are there: ranks of a
//! host read these in place, MPI or a device brings those of other hosts. [`terminal`] is where both report.
//! [`wake_latency`] measures how long ranks take to wait for one another.
//!
//! - Ranks share memory without a name in any file system, so a run leaves nothing there.
//! - Errors are printed once, by the rank or launcher that knows the cause best.
//! - A launcher sees of checkpoints only what its caller tells it.
//!
//! It never computes, and never knows a model, an engine or a file format.

pub mod launch;
pub mod processors;
pub mod terminal;
pub mod transport;
pub mod wake_latency;
