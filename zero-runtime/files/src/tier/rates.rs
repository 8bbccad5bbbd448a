//! Rates: times the reads and writes of all ranks of a host at once, as their states would travel in a run: in pieces,
//! directly, through a window in memory. Never keeps a state.
#![allow(unsafe_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use zero_core::device::Segment;
use zero_core::random::mix;
use zero_core::tier::{After, Direction, Tier, Transfer};
use zero_plan::TierBytes;
use zero_plan::lines::BLOCK_BYTES;

use super::{DiskTier, StateFolder, TierError};

/// Bytes of a piece: the default of `offload.piece`.
const PIECE_BYTES: usize = 4 << 20;
/// Pieces of all ranks together, 256 MiB, unless each then had fewer than [`PIECES_MIN`].
const PIECES: usize = 64;
const PIECES_MIN: usize = 16;
/// Slots of the window: one piece is fetched and one is stored, while one waits.
const SLOTS: usize = 3;
/// Reads of one block, one after another.
const BLOCKS: usize = 64;
/// How long a rank that ends waits for the transfer that its thread is in.
const LAST_TRANSFER: Duration = Duration::from_secs(10);

/// What all ranks together move in a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TimedPass {
    /// Each rank reads its file once.
    Read,
    /// Each rank writes its file once.
    Write,
    /// Each rank reads its file, and writes each piece back while it reads others, as an update does.
    Both,
}

/// A rank of a host, with a file of its own.
struct TimedRank {
    tier: DiskTier,
    /// The window. It is memory of the kind that ranks have, in large pages: a disk takes half as long to fill these as small ones,
    /// or less.
    memory: Arc<Segment>,
    /// Orders given so far, by [`Direction`].
    given: [u64; 2],
}

/// Ranks of a host that read and write in one folder.
pub struct TimedRanks {
    path: PathBuf,
    ranks: Vec<TimedRank>,
    pieces: usize,
}

impl TimedRanks {
    /// Makes the file of each rank in a folder, and writes it once, because the first writes to a file are slower.
    ///
    /// # Errors
    /// [`TierError`], if ranks could not keep states there.
    pub fn new(path: &Path, ranks: usize) -> Result<Self, TierError> {
        let pieces = (PIECES / ranks.max(1)).max(PIECES_MIN);
        StateFolder::open(path)?.require_room(ranks * pieces * PIECE_BYTES)?;
        let rank = |rank| TimedRank::new(path, rank, pieces);
        let ranks = (0..ranks).map(rank).collect::<Result<Vec<_>, _>>()?;
        let mut timed = Self { path: path.to_owned(), ranks, pieces };
        timed.pass(TimedPass::Write)?;
        Ok(timed)
    }

    /// Bytes that all ranks together read and write in a pass.
    pub fn bytes(&self, pass: TimedPass) -> usize {
        let files = self.ranks.len() * self.pieces * PIECE_BYTES;
        if pass == TimedPass::Both { 2 * files } else { files }
    }

    /// Seconds of a pass of all ranks.
    ///
    /// # Errors
    /// [`TierError`], if a read or a write fails.
    pub fn pass(&mut self, pass: TimedPass) -> Result<f64, TierError> {
        let (pieces, start) = (self.pieces, Instant::now());
        self.ranks.iter_mut().for_each(|rank| rank.give(pass, pieces));
        self.wait()?;
        Ok(start.elapsed().as_secs_f64())
    }

    /// Seconds that one rank needs to read one block.
    ///
    /// # Errors
    /// [`TierError`], if a read fails.
    pub fn block_s(&mut self) -> Result<f64, TierError> {
        let start = Instant::now();
        let pieces = self.pieces;
        let first = self.ranks.iter_mut().take(1);
        first.for_each(|rank| {
            (0..BLOCKS).for_each(|block| rank.order(Direction::Fetch, block % pieces, BLOCK_BYTES, 0))
        });
        self.wait()?;
        Ok(start.elapsed().as_secs_f64() / BLOCKS as f64)
    }

    /// Waits until everything that was ordered is done.
    fn wait(&mut self) -> Result<(), TierError> {
        for TimedRank { tier, given, .. } in &mut self.ranks {
            for direction in Direction::ALL {
                while !tier.is_done(direction, given[direction as usize], Duration::from_secs(1)) {
                    if let Some(failed) = tier.failed() {
                        return Err(TierError::Folder { path: self.path.clone(), what: failed.failure.what });
                    }
                }
            }
        }
        Ok(())
    }

    /// Bytes that have been read and written so far, counted when they had arrived.
    pub fn moved(&self) -> TierBytes {
        let moved = self.ranks.iter().map(|rank| rank.tier.moved());
        moved.fold(TierBytes::default(), |all, it| TierBytes {
            read: all.read + it.read,
            written: all.written + it.written,
        })
    }
}

impl TimedRank {
    fn new(path: &Path, rank: usize, pieces: usize) -> Result<Self, TierError> {
        let tier = StateFolder::open(path)?.allocate(pieces * PIECE_BYTES, rank)?;
        let memory = Segment::private(SLOTS * PIECE_BYTES)
            .map_err(|error| TierError::Folder { path: path.to_owned(), what: error.to_string() })?;
        // Data that a file system cannot compress.
        for word in 0..memory.len() / size_of::<u64>() {
            // SAFETY: a word of this memory, whose start is that of a page, and which nobody else has.
            unsafe { memory.ptr().cast::<u64>().add(word).write(mix(rank as u64, word as u64)) };
        }
        Ok(Self { tier, memory: Arc::new(memory), given: [0; 2] })
    }

    fn give(&mut self, pass: TimedPass, pieces: usize) {
        let [fetched, stored] = self.given;
        for piece in 0..pieces {
            let number = piece as u64 + 1;
            match pass {
                TimedPass::Read => self.order(Direction::Fetch, piece, PIECE_BYTES, 0),
                TimedPass::Write => self.order(Direction::Store, piece, PIECE_BYTES, 0),
                TimedPass::Both => {
                    // A slot is free once the piece is stored that was there before.
                    let free = number.checked_sub(SLOTS as u64).filter(|before| *before > 0);
                    self.order(Direction::Fetch, piece, PIECE_BYTES, free.map_or(0, |before| stored + before));
                    self.order(Direction::Store, piece, PIECE_BYTES, fetched + number);
                }
            }
        }
    }

    /// Orders the first `len` bytes of a piece, after this many orders of the other direction.
    fn order(&mut self, direction: Direction, piece: usize, len: usize, after: u64) {
        let memory = self.memory.ptr().wrapping_add(piece % SLOTS * PIECE_BYTES);
        let transfer = Transfer { offset: piece * PIECE_BYTES, memory, len };
        // SAFETY: the window has room for `SLOTS` pieces, and stays until the threads of the tier have
        // ended, as `drop` sees to. Nothing else reads or writes it. Orders of one direction follow one another; a pass in both
        // directions stores a slot after its fetch and fetches into it after its store; and a pass ends before the next begins.
        unsafe { self.tier.order(direction, &[transfer], After::Orders(after)) };
        self.given[direction as usize] += 1;
    }
}

impl Drop for TimedRank {
    fn drop(&mut self) {
        if !self.tier.quit(LAST_TRANSFER) {
            // A thread that hangs in a transfer may still write there.
            core::mem::forget(Arc::clone(&self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ranks_read_and_write_their_files_and_leave_nothing() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
        let mut ranks = match TimedRanks::new(folder.path(), 2) {
            Ok(ranks) => ranks,
            Err(error @ (TierError::NotDirect { .. } | TierError::Memory { .. })) => {
                return eprintln!("SKIPPED: the disk is not measured: {error}");
            }
            Err(error) => panic!("{error}"),
        };
        let file = 64 * PIECE_BYTES;
        assert_eq!(ranks.moved(), TierBytes { read: 0, written: file });
        for (pass, read, written) in
            [(TimedPass::Read, file, 0), (TimedPass::Write, 0, file), (TimedPass::Both, file, file)]
        {
            let before = ranks.moved();
            let seconds = ranks.pass(pass).expect("a pass");
            let TierBytes { read: all_read, written: all_written } = ranks.moved();
            assert_eq!((all_read - before.read, all_written - before.written), (read, written), "{pass:?}");
            assert!(seconds > 0.0 && ranks.bytes(pass) == read + written, "{pass:?}");
        }
        let before = ranks.moved().read;
        assert!(ranks.block_s().expect("reads") > 0.0);
        assert_eq!(ranks.moved().read - before, BLOCKS * BLOCK_BYTES);
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "the files have names");
    }

    #[test]
    fn a_folder_in_memory_is_not_measured() {
        let error = TimedRanks::new(Path::new("/dev/shm"), 1).err().expect("a folder in memory");
        assert!(matches!(error, TierError::Memory { .. }), "{error}");
    }
}
