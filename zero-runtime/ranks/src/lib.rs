//! How a program becomes ranks, and how these reach one another. Never computes, and never knows a model, an engine or
//! a file format.
//!
//! # What is in it
//!
//! - [`launch`] makes ranks of processes: a launcher starts them, those of one host find one another and share one
//!   piece of memory, and all of them end when one does.
//! - [`transport`] tells each rank when the bytes of others are there. Ranks of a host read these in place (`shared`,
//!   with ranks as threads in `local` and as processes in `shm`). MPI brings those of other hosts (`cluster`), or a
//!   device does (`carried`). Where devices have queues, these wait and tell, and `queued` waits for the device.
//! - [`terminal`] is where both report, [`processors`] says which of them a thread keeps to, and [`wake_latency`]
//!   measures how long ranks take to wait for one another.
//!
//! # What is always true
//!
//! - Ranks share memory without a name in any file system, so a run leaves nothing there.
//! - Errors are printed once, by the rank or launcher that knows the cause best. A rank that only notices that another
//!   one has failed waits for the error of that rank. A wait of 5 s is reported with the ops on both sides, and again
//!   whenever it has doubled.
//! - An exit code says whether a restart helps: a rank that has lost another one ends with 76. The launcher alone
//!   decides, and restarts ranks from the same checkpoint only once. It sees of checkpoints only what its caller tells
//!   it.
//! - Between hosts the same counts grow as on one. One thread of each rank makes all calls of MPI. When a batch of
//!   messages has arrived, it raises the count that the sender would raise itself on this host; when a batch has left,
//!   the count by which the receiver would say that it has read it. So waits, timeouts and proofs are those of one
//!   host.
//! - The plan says which messages there are, and in which order they are posted. Only clocks and reports of long
//!   waits travel beside them.
//! - Where a device carries bytes, all ranks of a group do the same ops in the same order, so a rank waits for no
//!   count; counts are told so that it can find out which rank is late. Ranks of several hosts meet by MPI, which also
//!   gives them the names of the groups.
//!
//! The next transport goes beside `transport/shared`; [`zero_core::transport`] says what it promises. The next way to
//! start ranks is a launcher whose variables `launch/environment` knows.

pub mod launch;
pub mod processors;
pub mod terminal;
pub mod transport;
pub mod wake_latency;
