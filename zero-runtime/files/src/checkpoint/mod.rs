//! Checkpoint: a run as it stood after a step, in files that any layout of the same model can read. Never uses an
//! engine except to list and fill its states.
//!
//! Writing: each rank has a [`Shard`], whose file a [`ShardWriter`] writes to a folder that the [`Store`] of the run
//! has begun. When all files are there, the store renames the folder to its final name. All operations on files go
//! through a [`Disk`].
//!
//! Reading: [`Checkpoint::open`] trusts only bytes that agree with their hashes. [`Elements`] are the numbers of one
//! state of all tensors, wherever they lie in the files.

mod compare;
mod disk;
mod elements;
mod entry;
mod error;
mod export;
mod initial;
mod lock;
mod manifest;
mod open;
mod sealed;
mod shard;
mod states;
mod store;
#[cfg(test)]
mod tests;
mod verify;

pub use compare::{Comparison, StateDifference, compare};
pub use disk::{Disk, Sink, System};
pub use elements::Elements;
pub use entry::{TensorRun, state_name};
pub use error::CheckpointError;
pub use export::{PublishError, Published, UNRECORDED, export};
pub use initial::InitialCheckpoint;
pub use manifest::{
    CHUNK_BYTES, DataPosition, FORMAT, FileSums, MANIFEST, Manifest, PlanInfo, SpecInfo, TensorInfo, WriterVersions,
};
pub use open::{Checkpoint, read_manifest};
pub use shard::{Shard, ShardWriter};
pub use states::{entries, tensors_of};
pub use store::{Store, StoredCheckpoint};
pub use verify::HashedChunk;
