//! Tier: keeps states of a rank in a file without a name, by direct I/O. Never holds them in memory or in the system's
//! cache, and never decides what travels.
//!
//! `folder` finds out whether the file system of a folder can do that, and makes the file; `disk` carries out orders in
//! two threads, one for each direction. The file has no name, so that nothing of it is left however a run ends, and runs
//! in one folder do not meet. It is never flushed: only checkpoints outlast a run. `rates` times both directions for a
//! description of hardware.

mod disk;
mod folder;
mod rates;

pub use disk::DiskTier;
pub use folder::{StateFolder, TierError};
pub use rates::{TimedPass, TimedRanks};
