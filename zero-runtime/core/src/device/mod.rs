//! Device: the small set of operations that layers and the engine are written against. A new device is one folder that
//! implements [`Device`]. Never knows of units, ranks or schedules.
//!
//! Where the next one goes: a device is a crate beside `zero-runtime/cpu` that implements [`Device`] with [`Storage`],
//! [`Queues`], [`Kernels`] and [`DeviceMemory`]; a value of [`zero_plan::DeviceKind`] with a row in `spec/keys.rs`; and
//! its type in `zero-macros`. In your own crate it is `#[zero(device = my::Device)]`, and `impl Runs` if `main` is to
//! train on it. Views carry the device in their type, so only that crate can access its memory. In a step only
//! [`Storage::stage`] and [`Storage::read`] involve the host.
//!
//! A kernel is a line in the list of [`kernels`](Kernels), whose doc states shapes, rounding and order of sums. A width
//! is a [`zero_plan::Width`] and an [`Element`]: kernels widen on reading and round on writing. Work in the same pass
//! as a product is a variant of [`Then`]; by default each layer is right without it, and needs one more pass.

mod agreement;
mod argument;
mod available;
mod carried;
mod description;
mod element;
mod error;
mod failure;
mod groups;
mod host_update;
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
pub use available::{check_available, check_available_to_run, memory_bytes};
pub use carried::{Carried, Communicator, GoesOn, Group, GroupPart};
pub use description::DeviceDescription;
pub use element::{Element, bf16, known, known_mut, narrow_pair, widen_pair};
pub use error::DeviceError;
pub use failure::Failure;
pub use host_update::{HostCall, HostNumbers, HostOptimizer, HostPiece, HostStretch};
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

/// Stack of each thread of a rank, for its calls and for the scratch of its kernels: that of a typical main thread, so
/// that work that fits a main thread fits any thread.
pub const STACK_BYTES: usize = 8 << 20;

/// A device: the memory that holds data, the queues that order its ops, the kernels that are its ops and, where devices
/// cannot reach one another's memory, the communicator that carries bytes between them.
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

    /// The name and memory of the device, if it has memory of its own.
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

    /// The processor features by which a device that computes on the processor chooses its kernels. Features decide
    /// bits, so all ranks must have the same ones.
    const FEATURES: &'static [&'static str] = &[];

    /// Which of [`Device::FEATURES`] this processor has: bit i stands for the feature with index i.
    fn features() -> u64 {
        0
    }

    /// The names of [`Device::features`].
    fn feature_names() -> Vec<&'static str> {
        names_of(Self::FEATURES, Self::features())
    }

    /// The properties of this device, and of everything that it has prepared, that decide bits: ranks with different
    /// marks would get different results.
    fn marks(&self) -> Vec<Mark> {
        Vec::new()
    }

    /// The communicator for devices whose memory this device cannot reach, if there is one.
    fn communicator(&self) -> Option<&dyn Communicator<Self>> {
        None
    }
}

/// The names of the features whose bits are set in `found`: bit i stands for the feature with index i.
pub fn names_of<'a>(features: &[&'a str], found: u64) -> Vec<&'a str> {
    features.iter().enumerate().filter(|(bit, _)| found >> bit & 1 == 1).map(|(_, name)| *name).collect()
}
