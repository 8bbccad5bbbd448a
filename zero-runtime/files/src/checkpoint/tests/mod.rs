//! Tests of checkpoints as files. Saving and loading by engines is tested with the engine.

mod damage;
mod read;
mod save;

use std::fs;
use std::path::Path;

use super::*;
use crate::testing::SampleCheckpoint;

/// The names in a folder, sorted.
fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect();
    names.sort();
    names
}

/// The fault of the checkpoint in a folder, as a run finds it.
fn fault(path: &Path) -> Option<CheckpointError> {
    let checkpoint = match Checkpoint::open(path) {
        Ok(checkpoint) => checkpoint,
        Err(error) => return Some(error),
    };
    let chunks: Vec<HashedChunk> = checkpoint.chunks().collect();
    checkpoint.verify(&chunks, 2, &|_| {}).err()
}
