//! Published parameters over HTTP. After a step, ranks copy what they own ([`zero_core::published`]); here each rank serves its copy,
//! and rank 0 the manifest that makes a version of the copies of all ranks. A reader pulls every rank's bytes from that rank, checks
//! them by their hashes, and has the model that the run has.
//!
//! # What is in it
//!
//! - [`wire`] has the documents that readers get, and [`layout`](layout()) makes the one about tensors.
//! - [`Server`] serves, on one thread beside that of a rank. [`Readers`] is what this thread and the rank's own share.
//! - [`client`] is a reader, and [`follow`](mod@follow) one that keeps each version. [`http`] bounds what a server takes.
//! - `python/` is the Python package of readers, which needs nothing of this crate.
//!
//! # What is always true
//!
//! - A version is whole on all ranks, or it is not in any manifest.
//! - No rank waits for a reader here: a copy that is overwritten meanwhile ends the answers that read it.
//! - Every byte that a reader uses is covered by a hash, and the manifest covers the hashes.
//! - Requests, connections, readers and the time that each of them takes are bounded.

pub mod client;
mod error;
pub mod follow;
pub mod http;
mod layout;
mod readers;
mod server;
pub mod wire;

pub use error::PublishError;
pub use layout::layout;
pub use readers::Readers;
pub use server::{Served, Server, Steps, bind, run_name, secret};
