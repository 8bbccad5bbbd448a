//! What a run reads and writes: text and tokens, published weights, and checkpoints.
//!
//! [`data`] draws sequences from text, from files of tokens or from a [`data::Dataset`] of one's own; tokenizers are
//! there. [`weights`] reads and writes folders as Hugging Face has them. A [`checkpoint`] is a run as it stood after a
//! step, which any layout of the same model can read. [`testing`] has small checkpoints and a disk that fails.
//!
//! - Nothing holds a model: numbers go between files and a rank's [`zero_core::states::RankStates`] in pieces.
//! - A folder gets its name by one rename, when all of it is written.
//! - Bytes that are read count only if they agree with their hashes.
//!
//! It never computes, and never knows an engine, a device or a transport.

pub mod checkpoint;
pub mod data;
mod room;
pub mod testing;
pub mod weights;
