//! Elements: the numbers of one state of all tensors, read in pieces from wherever the files of a checkpoint have them. Never
//! gives one whose hash was not checked, and holds no more than a chunk.

use crate::device::Element;
use crate::plan::State;
use crate::plan::config::Width;
use crate::plan::reshard::{Mismatch, Move, Source, Wanted, intersection, prove};

use super::entry::state_name;
use super::error::CheckpointError;
use super::manifest::CHUNK_BYTES;
use super::open::Checkpoint;
use super::verify::Chunk;
use crate::device::bf16;

/// The elements of a state.
#[derive(Debug)]
pub struct Elements<'a> {
    checkpoint: &'a Checkpoint,
    sources: Vec<(Source, Width)>,
    /// What makes each tensor whole, by tensor and element.
    moves: Vec<Move>,
    /// The chunk that was read last.
    chunk: Option<Chunk>,
    bytes: Vec<u8>,
    piece: Vec<u8>,
}

impl<'a> Elements<'a> {
    /// The elements of a state of a checkpoint.
    ///
    /// # Errors
    /// Z0389 if its files do not have each element once.
    pub fn new(checkpoint: &'a Checkpoint, state: State) -> Result<Self, CheckpointError> {
        let sources = checkpoint.sources(state);
        let lens = checkpoint.lens();
        let plain: Vec<Source> = sources.iter().map(|&(source, _)| source).collect();
        let whole = |(tensor, &len): (usize, &usize)| Wanted { tensor, start: 0, len, unit: tensor, at: 0 };
        let wanted: Vec<Wanted> = lens.iter().enumerate().map(whole).collect();
        let moves = intersection(&lens, &plain, &wanted)
            .and_then(|moves| prove(&lens, &plain, &wanted, &moves).map(|()| moves))
            .map_err(|mismatch| checkpoint.mismatch(state, &mismatch))?;
        Ok(Self { checkpoint, sources, moves, chunk: None, bytes: Vec::new(), piece: Vec::new() })
    }

    /// The elements of the master copy, where there is one, and otherwise of the parameters, which were rounded from it.
    ///
    /// # Errors
    /// Those of [`Elements::new`].
    pub fn of_parameters(checkpoint: &'a Checkpoint) -> Result<Self, CheckpointError> {
        Self::new(checkpoint, checkpoint.best_parameters())
    }

    /// What the elements of a tensor are stored in; of several widths, the first.
    pub fn width(&self, tensor: usize) -> Option<Width> {
        self.sources.iter().find(|(source, _)| source.tensor == tensor).map(|&(_, width)| width)
    }

    /// Fills `values` with the elements of a tensor from `start` on.
    ///
    /// # Errors
    /// Z0385, or Z0387 if they were changed since they were written.
    ///
    /// # Panics
    /// If the tensor has not as many.
    pub fn read(&mut self, tensor: usize, start: usize, values: &mut [f32]) -> Result<(), CheckpointError> {
        let end = start + values.len();
        assert!(end <= self.checkpoint.manifest.tensors[tensor].elements(), "beyond the tensor");
        let mut done = start;
        let first = self.moves.partition_point(|it| (it.wanted, it.to + it.len) <= (tensor, start));
        let mut next = first;
        while done < end {
            let Move { to, source, from, len, .. } = self.moves[next];
            let (source, width) = self.sources[source];
            let skipped = done - to;
            let count = (len - skipped).min(end - done);
            let offset = source.offset_bytes + ((from + skipped) * width.bytes()) as u64;
            self.read_bytes(source.file, offset, count * width.bytes())?;
            widen(&self.piece, width, &mut values[done - start..done - start + count]);
            done += count;
            next += 1;
        }
        Ok(())
    }

    /// Fills `piece` with bytes of a file, of which every chunk is checked.
    fn read_bytes(&mut self, file: usize, offset: u64, len: usize) -> Result<(), CheckpointError> {
        self.piece.clear();
        for chunk in self.checkpoint.chunks_of(file, offset..offset + len as u64) {
            if self.chunk != Some(chunk) {
                self.chunk = None;
                self.checkpoint.read_chunk(chunk, &mut self.bytes)?;
                self.chunk = Some(chunk);
            }
            let begins = (chunk.index * CHUNK_BYTES) as u64;
            let from = offset.saturating_sub(begins) as usize;
            let to = ((offset + len as u64 - begins) as usize).min(self.bytes.len());
            self.piece.extend_from_slice(&self.bytes[from..to]);
        }
        Ok(())
    }
}

fn widen(bytes: &[u8], width: Width, values: &mut [f32]) {
    match width {
        Width::F32 => {
            values.iter_mut().zip(bytes.as_chunks().0).for_each(|(value, &bytes)| *value = f32::from_le_bytes(bytes));
        }
        Width::BF16 => values
            .iter_mut()
            .zip(bytes.as_chunks().0)
            .for_each(|(value, &bytes)| *value = bf16::from_le_bytes(bytes).widen()),
    }
}

impl Checkpoint {
    /// The error for files that do not have each element of a state once.
    pub fn mismatch(&self, state: State, mismatch: &Mismatch) -> CheckpointError {
        let name = |&tensor: &usize| self.manifest.tensors.get(tensor).map_or("", |it| it.name.as_str()).to_owned();
        let of = match mismatch {
            Mismatch::Beyond { tensor, .. } | Mismatch::Missing { tensor, .. } | Mismatch::Doubled { tensor, .. } => {
                format!(" of `{}`", name(tensor))
            }
            _ => String::new(),
        };
        CheckpointError::malformed(
            &self.path,
            format!("has not each element of {}{of} once: {mismatch}", state_name(state)),
        )
    }
}
