//! Verify: checks that every byte of a checkpoint is unchanged since it was written. Never interprets bytes, except to
//! report where a fault lies.

use std::ffi::OsStr;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::error::CheckpointError;
use super::manifest::{CHUNK_BYTES, TensorInfo};
use super::open::{Checkpoint, ShardFile};
use crate::weights::{FirstTen, is_beside};

/// A part of a file that has a hash of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HashedChunk {
    /// The index of the file in the manifest.
    pub file: usize,
    /// The index of the chunk in the file.
    pub index: usize,
}

impl Checkpoint {
    /// All chunks of all files.
    pub fn chunks(&self) -> impl Iterator<Item = HashedChunk> {
        let files = self.manifest.files.iter().enumerate();
        files.flat_map(|(file, sums)| (0..sums.chunks.len()).map(move |index| HashedChunk { file, index }))
    }

    /// The chunks that bytes of a file lie in.
    pub fn chunks_of(&self, file: usize, bytes: Range<u64>) -> impl Iterator<Item = HashedChunk> + use<> {
        let size = CHUNK_BYTES as u64;
        let end = if bytes.is_empty() { bytes.start / size } else { bytes.end.div_ceil(size) };
        (bytes.start / size..end).map(move |index| HashedChunk { file, index: index as usize })
    }

    /// Checks on `threads` threads that these chunks are unchanged. `progress` receives the number of bytes read since its
    /// last call.
    ///
    /// # Errors
    /// The first of [`Checkpoint::faults`].
    pub fn verify(
        &self,
        chunks: &[HashedChunk],
        threads: usize,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(), CheckpointError> {
        self.faults(chunks, threads, progress).into_iter().next().map_or(Ok(()), Err)
    }

    /// The faults of these chunks, in their order: Z0387 for each that was changed, Z0385 for each that cannot be read.
    pub fn faults(
        &self,
        chunks: &[HashedChunk],
        threads: usize,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Vec<CheckpointError> {
        let (next, faults) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            let mut bytes = Vec::new();
            while let Some(&chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                if let Err(error) = self.read_chunk(chunk, &mut bytes) {
                    faults.lock().expect("no thread panics with it").push((chunk, error));
                }
                progress(bytes.len() as u64);
            }
        };
        std::thread::scope(|scope| {
            (1..threads.min(chunks.len())).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        let mut faults = faults.into_inner().expect("no thread panics with it");
        faults.sort_by_key(|&(chunk, _)| chunk);
        faults.into_iter().map(|(_, error)| error).collect()
    }

    /// Fills `bytes` with a chunk, and checks that it is unchanged.
    ///
    /// # Errors
    /// Z0385, or Z0387 if it was changed.
    pub(super) fn read_chunk(&self, chunk: HashedChunk, bytes: &mut Vec<u8>) -> Result<(), CheckpointError> {
        let sums = &self.manifest.files[chunk.file];
        let start = (chunk.index * CHUNK_BYTES) as u64;
        bytes.resize(CHUNK_BYTES.min((sums.bytes - start) as usize), 0);
        self.read(chunk.file, start, bytes)?;
        if blake3::hash(bytes).to_hex().as_str() == sums.chunks[chunk.index] {
            return Ok(());
        }
        Err(self.files[chunk.file].changed(chunk.index, sums.bytes, &self.manifest.tensors))
    }
}

impl ShardFile {
    /// The error for a chunk of this file of `bytes` bytes that was changed.
    pub(super) fn changed(&self, index: usize, bytes: u64, tensors: &[TensorInfo]) -> CheckpointError {
        let start = (index * CHUNK_BYTES) as u64;
        let end = bytes.min(start + CHUNK_BYTES as u64);
        let data = self.entries.first().map_or(bytes, |&(_, first)| first);
        let name = self.path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let mut holds = FirstTen::default();
        if start < data && !is_beside(name) {
            holds.0.push("the header".to_owned());
        }
        let own = self.entries.iter().filter(|(entry, first)| *first < end && first + entry.bytes() > start);
        holds.0.extend(own.map(|(entry, _)| format!("`{}`", entry.name(tensors))));
        CheckpointError::Changed { path: self.path.clone(), start, end, holds }
    }
}
