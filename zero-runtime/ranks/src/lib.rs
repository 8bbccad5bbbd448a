//! How a program becomes ranks, and how the ranks communicate. Never computes, and never knows a model, an engine or a
//! file format.
//!
//! # What is in it
//!
//! - [`launch`] makes ranks of processes: a launcher starts them, those of one host find one another and share one
//!   piece of memory, and all of them end when one does.
//! - [`transport`] tells each rank when the bytes of other ranks are ready. Ranks of a host read them in place (`shared`,
//!   with ranks as threads in `local` and as processes in `shm`). Bytes of other hosts arrive by MPI (`cluster`), or
//!   through a device (`carried`). Where devices have queues, the queues wait and signal, and `queued` waits for the device.
//! - [`terminal`] prints the reports of both, [`processors`] keeps threads to processors, [`stack`] gives the work of a
//!   main thread room, and [`wake_latency`] measures how long a rank that waits for another one takes to wake up.
//!
//! # What is always true
//!
//! - Ranks share memory without a name in any file system, so a run leaves nothing there.
//! - Errors are printed once, by the rank or launcher that knows the cause best. A rank that only sees a peer fail waits
//!   for the peer's own error. A wait of 5 s is reported with the ops on both sides, and again whenever it has doubled.
//! - An exit code shows whether a restart helps: a rank that has lost another one ends with 76. The launcher alone
//!   decides, and restarts ranks from the same checkpoint only once. It knows about checkpoints only what its caller
//!   passes to it.
//! - Ranks of several hosts raise the same counts as ranks of one. One thread of each rank makes all calls of MPI. When a
//!   batch of messages has arrived, it raises the count that the sender would raise itself on this host; when a batch has
//!   left, it raises the count by which the receiver would report that it has read the batch. So waits, timeouts and
//!   proofs are those of one host.
//! - The plan lists the messages, and the order in which they are posted. Only clocks and reports of long waits are sent
//!   in addition.
//! - Where a device carries bytes, all ranks of a group do the same ops in the same order, so a rank waits for no
//!   count; counts are raised only so that it can find out which rank is late. Ranks of several hosts meet by MPI, which
//!   also sends them the names of the groups.
//!
//! Add the next transport beside `transport/shared`; [`zero_core::transport`] describes its contract. Add the next way to
//! start ranks as a launcher whose variables `launch/environment` knows.

pub mod launch;
pub mod processors;
pub mod stack;
pub mod terminal;
pub mod transport;
pub mod wake_latency;
