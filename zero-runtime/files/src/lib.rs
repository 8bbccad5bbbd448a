//! The files that a run reads and writes: text and tokens, published weights, and checkpoints. Never computes, and never
//! knows an engine, a kernel or a transport.
//!
//! # What is in it
//!
//! - [`data`] draws sequences from text, from files of tokens or from your own [`data::Dataset`]. It also has tokenizers
//!   and, in `data/tokens`, the format of token files.
//! - [`weights`] reads and writes folders in Hugging Face's format, in pieces, by the rank that stores them.
//! - [`checkpoint`] writes, finds, verifies, compares and exports checkpoints. A checkpoint is a run as it stood after a
//!   step, which any layout of the same model can read.
//! - [`mod@tier`] keeps states of a rank on a disk, by direct I/O.
//! - [`resident`] tells how much memory this process has in use.
//! - [`testing`] has small checkpoints, a disk that fails, and a tier in memory.
//!
//! # What is always true
//!
//! - Nothing holds a model: numbers go between files and a rank's [`zero_core::states::RankStates`] in pieces.
//! - A folder gets its name by one rename, when all of it is written and on its disk. Older checkpoints are removed
//!   after that.
//! - Bytes that are read are used only if they agree with their hashes. Ranks write every state once, and read each
//!   element once.
//! - A sequence is a pure function of seed, step and index, so any number of ranks trains on the same data.
//! - A file is not held in memory, except for small text that is encoded there.
//!
//! # Where the next thing goes
//!
//! - A file format that is not text is a line in `data/kind`; a format of token ids is a header in
//!   `data/tokens/header`.
//! - To store checkpoints elsewhere than in a file system, implement [`checkpoint::Disk`].
//! - A tokenizer of another kind, or a template of chats, goes into [`data`]; commands and runs use both without the
//!   engine.

pub mod checkpoint;
pub mod data;
mod flush;
mod guard;
mod hub;
mod pointer;
pub mod resident;
mod room;
pub mod testing;
pub mod tier;
pub mod weights;

pub use guard::guarded;
pub use pointer::Pointer;
