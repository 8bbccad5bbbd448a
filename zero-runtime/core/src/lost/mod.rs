//! Lost: why a rank waits in vain: another rank has ended, a device has failed, or a rank is silent. Never waits.

mod broken;
mod silent;

pub use broken::Broken;
pub use silent::{Life, Silent};

/// Why this rank waits in vain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// Another rank has given up, or a third rank has given up on it; the rank that gave up reports why.
    #[error("rank {rank} has ended")]
    Ended {
        /// The rank that ended first, or is given up.
        rank: usize,
    },
    /// The device of this rank no longer works, or its tier.
    #[error(transparent)]
    Device(#[from] Box<Broken>),
    /// Another rank has not arrived in time. Of all ranks that wait for it, this rank reports it.
    #[error(transparent)]
    Silent(#[from] Box<Silent>),
}
