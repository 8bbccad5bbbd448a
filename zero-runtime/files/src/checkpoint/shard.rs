//! Shard: the file that one rank writes: a header that is fixed for a run except for the step, then the bytes of its
//! entries, which are hashed on their way to the disk. Never knows where bytes come from.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::disk::{Disk, Sink};
use super::entry::TensorRun;
use super::error::CheckpointError;
use super::manifest::{CHUNK_BYTES, FileSums, TensorInfo, shard_name, sums_name};
use super::sealed::seal;
use crate::weights::BesideFile;
use zero_plan::Width;

/// The name of the format in the header.
pub(super) const FORMAT_NAME: &str = "zero-checkpoint-1";
/// Data begins at a multiple of this many bytes.
const ALIGNMENT: usize = 64;
/// Pieces of fewer bytes are collected before they are written.
const PIECE_BYTES: usize = 256 << 10;
/// If training waits for the file, the disk is asked to begin to write each time this many bytes have arrived.
const START_BYTES: u64 = 8 << 20;
/// Digits of a step in a header: always the same number, so that all headers of a run are equally long.
const STEP_DIGITS: usize = 20;

/// The file that one rank writes.
#[derive(Clone, Debug)]
pub struct Shard {
    rank: usize,
    entries: Vec<TensorRun>,
    /// The header of step 0, with its length before it.
    head: Vec<u8>,
    /// Where the digits of the step begin in it.
    step_at: usize,
    data_bytes: u64,
}

impl Shard {
    /// The file of a rank with these entries, in their order.
    ///
    /// # Panics
    /// If an entry reaches beyond its tensor.
    pub fn new(rank: usize, tensors: &[TensorInfo], entries: Vec<TensorRun>) -> Self {
        let zero = "0".repeat(STEP_DIGITS);
        let told = json!({ "format": FORMAT_NAME, "rank": rank.to_string(), "step": zero });
        // The metadata comes first, so that no name of a tensor can be taken for the digits of the step.
        let mut header = format!("{{\"__metadata__\":{told}").into_bytes();
        let in_front = header.len();
        let mut data_bytes = 0;
        for entry in &entries {
            let tensor = &tensors[entry.tensor];
            assert!(entry.start + entry.len <= tensor.elements(), "{}: an entry beyond its tensor", tensor.name);
            let end = data_bytes + entry.bytes();
            let dtype = match entry.width {
                Width::F32 => "F32",
                Width::BF16 => "BF16",
            };
            let info = json!({ "dtype": dtype, "shape": [entry.len], "data_offsets": [data_bytes, end] });
            header.extend(format!(",{}:{info}", Value::from(entry.name(tensors))).into_bytes());
            data_bytes = end;
        }
        header.push(b'}');
        let length = (8 + header.len()).next_multiple_of(ALIGNMENT) - 8;
        header.resize(length, b' ');
        let head = [&(length as u64).to_le_bytes()[..], &header].concat();
        let found = head[..8 + in_front].windows(STEP_DIGITS).position(|bytes| bytes == zero.as_bytes());
        Self { rank, entries, step_at: found.expect("the digits of the step"), head, data_bytes }
    }

    /// The length of the file.
    pub fn bytes(&self) -> u64 {
        self.head.len() as u64 + self.data_bytes
    }

    /// Its entries, in order.
    pub fn entries(&self) -> &[TensorRun] {
        &self.entries
    }

    /// The header for a step.
    fn head(&self, step: u64) -> Vec<u8> {
        let mut head = self.head.clone();
        let digits = format!("{step:0STEP_DIGITS$}");
        head[self.step_at..self.step_at + STEP_DIGITS].copy_from_slice(digits.as_bytes());
        head
    }
}

/// Writes the file of one rank. If it is dropped early, a part of the file stays behind, and the next save removes it.
pub struct ShardWriter<'a> {
    disk: &'a dyn Disk,
    partial: PathBuf,
    rank: usize,
    /// Whether training waits until the file is there.
    is_awaited: bool,
    path: PathBuf,
    sink: Box<dyn Sink>,
    /// Bytes of the whole file.
    total: u64,
    /// Bytes received so far.
    done: u64,
    /// Small pieces that wait to be written.
    waiting: Vec<u8>,
    hasher: blake3::Hasher,
    chunks: Vec<String>,
}

impl<'a> ShardWriter<'a> {
    /// Makes the file of a step in the folder `partial`.
    ///
    /// # Errors
    /// Z0392.
    pub fn begin(disk: &'a dyn Disk, partial: &Path, shard: &Shard, step: u64) -> Result<Self, CheckpointError> {
        let path = partial.join(shard_name(shard.rank));
        let sink = disk.create(&path).map_err(CheckpointError::unwritable(&path))?;
        let mut writer = Self {
            disk,
            partial: partial.to_owned(),
            rank: shard.rank,
            is_awaited: false,
            path,
            sink,
            total: shard.bytes(),
            done: 0,
            waiting: Vec::new(),
            hasher: blake3::Hasher::new(),
            chunks: Vec::with_capacity(shard.bytes().div_ceil(CHUNK_BYTES as u64) as usize),
        };
        writer.write(&shard.head(step))?;
        Ok(writer)
    }

    /// This writer, for a file that training waits for: the disk is asked to begin with the first bytes. If training
    /// continues instead, ranks need the processors more.
    #[must_use]
    pub fn awaited(self) -> Self {
        Self { is_awaited: true, ..self }
    }

    /// Writes the next bytes of the entries. Large pieces go to the disk without being copied here.
    ///
    /// # Errors
    /// Z0392.
    ///
    /// # Panics
    /// If there are more bytes than the entries have.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), CheckpointError> {
        assert!(self.done + bytes.len() as u64 <= self.total, "more bytes than the entries have");
        while !bytes.is_empty() {
            let left_in_chunk = CHUNK_BYTES - (self.done % CHUNK_BYTES as u64) as usize;
            // At most a chunk at a time, so that it is still in the cache when it is written after hashing.
            let (now, later) = bytes.split_at(bytes.len().min(left_in_chunk));
            self.hasher.update(now);
            self.done += now.len() as u64;
            if self.done.is_multiple_of(CHUNK_BYTES as u64) {
                self.end_chunk();
            }
            self.pass_on(now)?;
            if self.is_awaited && self.done.is_multiple_of(START_BYTES) {
                self.sink.start_sync();
            }
            bytes = later;
        }
        Ok(())
    }

    fn pass_on(&mut self, bytes: &[u8]) -> Result<(), CheckpointError> {
        if bytes.len() < PIECE_BYTES {
            self.waiting.extend_from_slice(bytes);
            return if self.waiting.len() < PIECE_BYTES { Ok(()) } else { self.flush() };
        }
        self.flush()?;
        self.sink.write(bytes).map_err(CheckpointError::unwritable(&self.path))
    }

    fn flush(&mut self) -> Result<(), CheckpointError> {
        if !self.waiting.is_empty() {
            self.sink.write(&self.waiting).map_err(CheckpointError::unwritable(&self.path))?;
            self.waiting.clear();
        }
        Ok(())
    }

    fn end_chunk(&mut self) {
        self.chunks.push(self.hasher.finalize().to_hex().to_string());
        self.hasher.reset();
    }

    /// Ends the file, which is then on its disk, with its sums beside it.
    ///
    /// # Errors
    /// Z0392.
    ///
    /// # Panics
    /// If bytes are missing.
    pub fn finish(mut self) -> Result<(), CheckpointError> {
        assert_eq!(self.done, self.total, "bytes of entries are missing");
        if !self.total.is_multiple_of(CHUNK_BYTES as u64) {
            self.end_chunk();
        }
        self.flush()?;
        self.sink.sync().map_err(CheckpointError::unwritable(&self.path))?;
        let sums = FileSums { name: shard_name(self.rank), bytes: self.total, chunks: self.chunks };
        write_whole(self.disk, &self.partial.join(sums_name(self.rank)), &seal(&sums))
    }
}

/// Writes a file that lies beside the tensors of an export, and returns its sums.
pub(super) fn write_beside(disk: &dyn Disk, folder: &Path, file: &BesideFile) -> Result<FileSums, CheckpointError> {
    write_whole(disk, &folder.join(&file.name), &file.content)?;
    let chunks = file.content.chunks(CHUNK_BYTES).map(|chunk| blake3::hash(chunk).to_hex().to_string());
    Ok(FileSums { name: file.name.clone(), bytes: file.content.len() as u64, chunks: chunks.collect() })
}

/// Writes a small file, and waits until it is on its disk.
pub(super) fn write_whole(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let written = disk.create(path).and_then(|mut sink| {
        sink.write(bytes)?;
        sink.sync()
    });
    written.map_err(CheckpointError::unwritable(path))
}

/// The rank and the step that the header of a file names.
pub(super) fn told(header: &[u8]) -> Option<(usize, u64)> {
    let Value::Object(header) = serde_json::from_slice(header).ok()? else { return None };
    let told: &Map<String, Value> = header.get("__metadata__")?.as_object()?;
    let text = |key: &str| told.get(key).and_then(Value::as_str);
    let is_ours = text("format") == Some(FORMAT_NAME);
    is_ours.then(|| Some((text("rank")?.parse().ok()?, text("step")?.parse().ok()?)))?
}
