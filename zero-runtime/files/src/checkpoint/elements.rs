//! Elements: the numbers of one state of all tensors, read in pieces from wherever the files of a checkpoint have them.
//! Never returns a number whose hash was not checked, here or just before, and holds no more than a chunk.

use std::collections::BTreeSet;

use zero_core::device::{Element, bf16};
use zero_plan::Width;
use zero_plan::place::State;
use zero_plan::reshard::{Mismatch, Move, RunSource, Wanted, intersection, prove};

use super::entry::state_name;
use super::error::CheckpointError;
use super::manifest::CHUNK_BYTES;
use super::open::Checkpoint;
use super::verify::HashedChunk;

/// The elements of a state that a caller wants, each from the only place in the files that has it.
#[derive(Debug)]
pub struct Elements<'a> {
    checkpoint: &'a Checkpoint,
    sources: Vec<(RunSource, Width)>,
    /// The wanted runs, sorted by unit and place in its flat buffer.
    wanted: Vec<Wanted>,
    /// The moves that fill each wanted run, sorted by the run's number and by element.
    moves: Vec<Move>,
    /// Whether the chunks are known to be unchanged.
    is_verified: bool,
    /// The chunk that was read last.
    chunk: Option<HashedChunk>,
    bytes: Vec<u8>,
    piece: Vec<u8>,
}

impl<'a> Elements<'a> {
    /// Finds the wanted elements of a state, and proves before any is read that each is read from the place where it is
    /// stored.
    ///
    /// # Errors
    /// Z0389 if its files do not have each element once.
    pub fn new(checkpoint: &'a Checkpoint, state: State, mut wanted: Vec<Wanted>) -> Result<Self, CheckpointError> {
        let sources = checkpoint.sources(state);
        let (lens, plain) = (checkpoint.lens(), sources.iter().map(|&(source, _)| source).collect::<Vec<_>>());
        wanted.sort_by_key(|wanted| (wanted.unit, wanted.at));
        let moves = intersection(&lens, &plain, &wanted)
            .and_then(|moves| prove(&lens, &plain, &wanted, &moves).map(|()| moves))
            .map_err(|mismatch| checkpoint.mismatch(state, &mismatch))?;
        Ok(Self {
            checkpoint,
            sources,
            wanted,
            moves,
            is_verified: false,
            chunk: None,
            bytes: Vec::new(),
            piece: Vec::new(),
        })
    }

    /// These elements, for a caller that has just verified [`Elements::chunks`], so that no hash is computed twice.
    pub(super) fn of_verified(self) -> Self {
        Self { is_verified: true, ..self }
    }

    /// All elements of a state, each tensor as a unit of its own.
    ///
    /// # Errors
    /// Those of [`Elements::new`].
    pub fn all(checkpoint: &'a Checkpoint, state: State) -> Result<Self, CheckpointError> {
        let whole = |(tensor, len)| Wanted { tensor, start: 0, len, unit: tensor, at: 0 };
        Self::new(checkpoint, state, checkpoint.lens().into_iter().enumerate().map(whole).collect())
    }

    /// The width of the elements of a tensor; if there are several, the first.
    pub fn width(&self, tensor: usize) -> Option<Width> {
        self.sources.iter().find(|(source, _)| source.tensor == tensor).map(|&(_, width)| width)
    }

    /// The chunks that [`Elements::read`] reads, each once.
    pub fn chunks(&self) -> BTreeSet<HashedChunk> {
        let of_move = |it: &Move| {
            let (source, width) = &self.sources[it.source];
            let start = source.offset_bytes + (it.from * width.bytes()) as u64;
            self.checkpoint.chunks_of(source.file, start..start + (it.len * width.bytes()) as u64)
        };
        self.moves.iter().flat_map(of_move).collect()
    }

    /// Fills `values` with the wanted elements of the flat buffer of `unit`, from element `at` on.
    ///
    /// # Errors
    /// Z0385, or Z0387 if bytes were changed since they were written.
    ///
    /// # Panics
    /// If some of these elements were not asked for.
    pub fn read(&mut self, unit: usize, at: usize, values: &mut [f32]) -> Result<(), CheckpointError> {
        let end = at + values.len();
        let (mut done, mut next) =
            (at, self.wanted.partition_point(|wanted| (wanted.unit, wanted.at + wanted.len) <= (unit, at)));
        while done < end {
            let wanted = self.wanted[next];
            assert!(wanted.unit == unit && wanted.at <= done, "element {done} of unit {unit} was not asked for");
            let until = end.min(wanted.at + wanted.len);
            self.read_run(next, done - wanted.at, &mut values[done - at..until - at])?;
            done = until;
            next += 1;
        }
        Ok(())
    }

    /// Fills `values` with elements of one wanted run, from its element `to` on.
    fn read_run(&mut self, wanted: usize, to: usize, values: &mut [f32]) -> Result<(), CheckpointError> {
        let mut next = self.moves.partition_point(|it| (it.wanted, it.to + it.len) <= (wanted, to));
        let mut done = 0;
        while done < values.len() {
            let Move { to: first, source, from, len, .. } = self.moves[next];
            let (source, width) = self.sources[source];
            let skipped = to + done - first;
            let count = (len - skipped).min(values.len() - done);
            let offset = source.offset_bytes + ((from + skipped) * width.bytes()) as u64;
            self.read_piece(source.file, offset, width, &mut values[done..done + count])?;
            done += count;
            next += 1;
        }
        Ok(())
    }

    /// Fills `values` with the numbers that begin at byte `offset` of a file.
    fn read_piece(
        &mut self,
        file: usize,
        offset: u64,
        width: Width,
        values: &mut [f32],
    ) -> Result<(), CheckpointError> {
        let len = values.len() * width.bytes();
        match (self.is_verified, width) {
            (true, Width::F32) if cfg!(target_endian = "little") => {
                return self.checkpoint.read(file, offset, bytemuck::cast_slice_mut(values));
            }
            (true, _) => {
                self.piece.resize(len, 0);
                self.checkpoint.read(file, offset, &mut self.piece)?;
            }
            (false, _) => self.read_checked(file, offset, len)?,
        }
        widen(&self.piece, width, values);
        Ok(())
    }

    /// Fills `piece` with bytes of a file, after checking each chunk that they lie in.
    fn read_checked(&mut self, file: usize, offset: u64, len: usize) -> Result<(), CheckpointError> {
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
            format!("does not have each element of {}{of} once: {mismatch}", state_name(state)),
        )
    }
}
