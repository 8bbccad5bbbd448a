//! Host update: a piece of the parameters that the cores of the host update for a device that has a memory of its own, as
//! addresses in the memory of the host. Never says when: the device calls in the queue that the plan puts the update in.
#![allow(unsafe_code)]

use zero_plan::Width;

use super::{DecayRun, HyperBlock, ReportBlock};

/// Something that a queue makes the host do.
pub type HostCall = Box<dyn Fn() + Send + Sync>;

/// Numbers in the memory of the host.
#[derive(Clone, Copy, Debug)]
pub struct HostNumbers {
    /// The first of them.
    pub start: *mut u8,
    /// Their width.
    pub width: Width,
}

/// Elements of a piece that one op updates, and which of them decay.
#[derive(Clone, Debug)]
pub struct HostStretch {
    /// The first element, counted from the start of the piece.
    pub start: usize,
    /// The runs of its elements.
    pub runs: Vec<DecayRun>,
}

/// A piece that the host updates: `len` numbers of each state, of which those in `stretches` are parameters, and the others
/// padding at the end.
#[derive(Clone, Debug)]
pub struct HostPiece {
    /// The settings of the step.
    pub hyper: *const HyperBlock,
    /// The report of the step.
    pub report: *const ReportBlock,
    /// Elements, padding included.
    pub len: usize,
    /// The parameters that go to the device: those before the update, or anything if there is a master copy.
    pub params: HostNumbers,
    /// The master copy, if there is one.
    pub master: Option<HostNumbers>,
    /// The sums of gradients.
    pub sums: HostNumbers,
    /// Both moments.
    pub moments: [HostNumbers; 2],
    /// The parameters, in order.
    pub stretches: Vec<HostStretch>,
}

// SAFETY: addresses and their purpose; whoever has a piece updated promises that nobody else uses these numbers meanwhile.
unsafe impl Send for HostPiece {}
// SAFETY: as above.
unsafe impl Sync for HostPiece {}

/// What updates pieces on the cores of a host, to the bits of [`Kernels::update`](super::Kernels::update).
pub trait HostOptimizer: Send + Sync {
    /// Updates a piece. If the report says that a number is not finite, no state changes. Either way, the parameters of the
    /// piece are then those that the device is to have, and 0 in the padding.
    ///
    /// # Safety
    /// All numbers of the piece are there, and nobody else uses them meanwhile.
    unsafe fn update(&self, piece: &HostPiece);
}
