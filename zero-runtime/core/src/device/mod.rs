//! Device: the small set of operations that layers and the engine are written against. A new device is one folder that
//! implements [`Device`]. Never knows of units, ranks or schedules.
//!
//! Where the next one goes: a device is a crate beside `zero-runtime/cpu` that implements [`Device`] with [`Storage`],
//! [`Queues`], [`Kernels`] and [`DeviceMemory`]; a value of [`zero_plan::DeviceKind`] with a row in `spec/keys.rs`; and
//! its type in `zero-macros`. In a crate of one's own it is `#[zero(device = my::Device)]`, and `impl Runs` if `main`
//! is to train on it. Views carry the device in their type, so only that crate looks into its memory. In a step only
//! [`Storage::stage`] and [`Storage::read`] ask the host.
//!
//! A kernel is a line in the list of [`kernels`](Kernels), whose doc says shapes, rounding and order of sums. A width
//! is a [`zero_plan::Width`] and an [`Element`]: kernels widen what they read and round what they store. Work in the
//! pass of a product is a variant of [`Then`]; by default each layer is right without it, and takes one more pass.

mod agreement;
mod argument;
mod available;
mod carried;
mod description;
mod element;
mod error;
mod failure;
mod groups;
mod kernels;
mod mark;
mod memory;
mod queues;
mod rotary;
mod segment;
mod step;
mod storage;
mod stored;

pub use agreement::Agreement;
pub use argument::{AttentionShape, Matrix, Nonlinearity, Strided, StridedMut, Then, Write};
pub use available::{check_available, memory_bytes};
pub use carried::{Carried, Communicator, GoesOn, Group, GroupPart};
pub use description::DeviceDescription;
pub use element::{Element, bf16, known, known_mut, narrow_pair, widen_pair};
pub use error::DeviceError;
pub use failure::Failure;
pub use kernels::{Kernels, MEAN_LANES};
pub use mark::Mark;
pub use memory::{Buffer, DeviceMemory, Exchange, Reached, SharedParts};
pub use queues::{Counts, Queues};
pub use rotary::{Rotary, Scaling};
pub use segment::Segment;
pub use step::{AdamW, DecayRun, HyperBlock, ReportBlock};
pub use storage::Storage;
pub use stored::{Stored, StoredMut, Weights};

use std::num::NonZeroUsize;

/// Stack of each thread of a rank, for its calls and for the scratch of its kernels: as large as a main thread's
/// usually is, so that work that fits a main thread fits any thread.
pub const STACK_BYTES: usize = 8 << 20;

/// A device: memory that data lies in, queues that order its ops, kernels that are its ops and, where devices do not reach one
/// another's memory, what carries bytes between them.
pub trait Device: Storage + Queues + Kernels + Send + 'static {
    /// The device for the rank with this number on its host: the device of the same number, unless the user of the
    /// program has chosen another.
    ///
    /// # Errors
    /// If there is no such device, or it cannot be used.
    fn open(local_rank: usize) -> Result<Self, DeviceError>;

    /// All devices of this host that have memory of their own, or those that the user of the program has chosen, each
    /// once.
    ///
    /// # Errors
    /// If there are none, or one cannot be used.
    fn all() -> Result<Vec<Self>, DeviceError> {
        Ok(Vec::new())
    }

    /// What it is, if it has memory of its own.
    fn description(&self) -> Option<DeviceDescription> {
        None
    }

    /// The same device for another thread, which only calls [`Storage::read`] on it and sees the results of all ops so
    /// far.
    fn beside(&self) -> Self;

    /// Runs `work` on this device, which may use this many threads of the host meanwhile, the calling thread included.
    /// Threads are called `name` and a number.
    ///
    /// # Errors
    /// If the system cannot start the threads.
    fn on_threads<R: Send>(
        self,
        threads: NonZeroUsize,
        name: &str,
        work: impl FnOnce(Self) -> R + Send,
    ) -> Result<R, DeviceError> {
        let _ = (threads, name);
        Ok(work(self))
    }

    /// The first error on this device, if there was one: ops do nothing after it. An error that the device notices late
    /// is known after the next read.
    fn failure(&self) -> Option<Failure> {
        None
    }

    /// The features of a processor by which a device that computes there chooses its kernels. As they decide bits, ranks
    /// must have the same ones.
    const FEATURES: &'static [&'static str] = &[];

    /// Which of [`Device::FEATURES`] this processor has: bit i stands for the feature with index i.
    fn features() -> u64 {
        0
    }

    /// The properties of this device, and of what it has prepared, that decide bits: ranks that differ in them would
    /// get different results.
    fn marks(&self) -> Vec<Mark> {
        Vec::new()
    }

    /// What carries bytes to devices whose memory it does not reach, if it can.
    fn communicator(&self) -> Option<&dyn Communicator<Self>> {
        None
    }
}
