//! Reshard: finds the elements of files that become the elements of a rank, for any two plans that cut them. It is an
//! intersection of runs, with a proof that shares no code with it. Never reads a byte, never asks a plan.

mod proof;
#[cfg(test)]
mod tests;

use core::fmt;
use core::ops::Range;

pub use proof::prove;

/// A run of elements of a tensor, and its place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RunSource {
    /// The tensor, by its number.
    pub tensor: usize,
    /// The first element of the tensor's own flat order.
    pub start: usize,
    /// Number of elements.
    pub len: usize,
    /// The file that has them, by its number.
    pub file: usize,
    /// Where the first element begins in the file, in bytes.
    pub offset_bytes: u64,
}

/// A run of elements of a tensor that a rank stores, from element `at` of the flat buffer of `unit` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wanted {
    /// The tensor, by its number.
    pub tensor: usize,
    /// The first element of the tensor's own flat order.
    pub start: usize,
    /// Number of elements.
    pub len: usize,
    /// The unit under which they are stored.
    pub unit: usize,
    /// The element of the unit's flat buffer that the first element becomes.
    pub at: usize,
}

/// Fills `len` elements of the wanted run `wanted`, from its element `to` on, with those of the source `source`, from
/// its element `from` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Move {
    /// Index of the wanted run that is filled.
    pub wanted: usize,
    /// The first element that is filled, counted from the start of the run.
    pub to: usize,
    /// Index of the source that is read.
    pub source: usize,
    /// The first element that is read, counted from the start of the source.
    pub from: usize,
    /// Number of elements.
    pub len: usize,
}

/// Why elements cannot be moved, or why moves do not fill the wanted elements. Tensors are identified by number,
/// because their names are not known here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// A run of elements that its tensor does not have.
    Beyond {
        /// Whether a source or a wanted run has them.
        side: RunSide,
        /// Its index.
        index: usize,
        /// The tensor.
        tensor: usize,
        /// The first element of the run.
        start: usize,
        /// Number of elements of the run.
        len: usize,
        /// Number of elements of the tensor; none if there is no such tensor.
        tensor_len: Option<usize>,
    },
    /// Elements of a tensor that no source has.
    Missing {
        /// The tensor.
        tensor: usize,
        /// The elements.
        elements: Range<usize>,
    },
    /// Elements of a tensor that several sources have.
    Doubled {
        /// The tensor.
        tensor: usize,
        /// The elements.
        elements: Range<usize>,
    },
    /// Elements of the flat buffer of a unit that are wanted as several elements of tensors.
    Shared {
        /// The unit.
        unit: usize,
        /// The elements.
        elements: Range<usize>,
    },
    /// A move of no elements, or of elements that its source or its wanted run does not have.
    Outside {
        /// Index of the move.
        index: usize,
        /// The move.
        moved: Move,
    },
    /// A move that fills elements with other elements.
    Other {
        /// Index of the move.
        index: usize,
        /// The tensor and the element that it fills.
        wanted: (usize, usize),
        /// The tensor and the element that it reads.
        read: (usize, usize),
    },
    /// Wanted elements that no move fills.
    Unfilled {
        /// Index of the wanted run.
        wanted: usize,
        /// The elements, counted from its start.
        elements: Range<usize>,
    },
    /// Wanted elements that several moves fill.
    Refilled {
        /// Index of the wanted run.
        wanted: usize,
        /// The elements, counted from its start.
        elements: Range<usize>,
    },
}

/// One of the two sets of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunSide {
    /// The runs that exist.
    Source,
    /// The runs that are wanted.
    Wanted,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Beyond { side, index, tensor, start, len, tensor_len } => {
                let side = match side {
                    RunSide::Source => "source",
                    RunSide::Wanted => "wanted run",
                };
                write!(f, "{side} {index} is {len} elements of tensor {tensor} from element {start} on, and ")?;
                match tensor_len {
                    Some(tensor_len) => write!(f, "the tensor has {tensor_len}"),
                    None => f.write_str("there is no such tensor"),
                }
            }
            Self::Missing { tensor, elements } => write!(f, "no source has elements {elements:?} of tensor {tensor}"),
            Self::Doubled { tensor, elements } => {
                write!(f, "several sources have elements {elements:?} of tensor {tensor}")
            }
            Self::Shared { unit, elements } => {
                write!(f, "elements {elements:?} of unit {unit} would be several elements of tensors")
            }
            Self::Outside { index, moved: Move { wanted, to, source, from, len } } => {
                write!(f, "move {index} takes {len} elements from {from} of source {source} to {to} of wanted run ")?;
                write!(f, "{wanted}, which do not both have them")
            }
            Self::Other { index, wanted, read } => {
                write!(f, "move {index} fills element {} of tensor {} with element ", wanted.1, wanted.0)?;
                write!(f, "{} of tensor {}", read.1, read.0)
            }
            Self::Unfilled { wanted, elements } => {
                write!(f, "no move fills elements {elements:?} of wanted run {wanted}")
            }
            Self::Refilled { wanted, elements } => {
                write!(f, "several moves fill elements {elements:?} of wanted run {wanted}")
            }
        }
    }
}

impl core::error::Error for Mismatch {}

/// Finds the elements of sources that each wanted run consists of, sorted by wanted run and element. `lens` has the
/// number of elements of each tensor. Runs without elements are ignored.
///
/// # Errors
/// A run that its tensor does not have, and elements of any tensor that sources do not have, or have twice. [`prove`]
/// checks whether wanted runs overlap.
pub fn intersection(lens: &[usize], sources: &[RunSource], wanted: &[Wanted]) -> Result<Vec<Move>, Mismatch> {
    for (index, run) in sources.iter().enumerate() {
        within(lens, RunSide::Source, index, (run.tensor, run.start, run.len))?;
    }
    let mut sorted: Vec<usize> = (0..sources.len()).filter(|&i| sources[i].len > 0).collect();
    sorted.sort_unstable_by_key(|&i| (sources[i].tensor, sources[i].start));
    follow(lens, sources, &sorted)?;
    let mut moves = Vec::with_capacity(wanted.len());
    for (index, run) in wanted.iter().enumerate() {
        within(lens, RunSide::Wanted, index, (run.tensor, run.start, run.len))?;
        // The last source that begins no later than the run, as sources follow one another.
        let after = sorted.partition_point(|&i| (sources[i].tensor, sources[i].start) <= (run.tensor, run.start));
        let (mut next, mut to) = (after.saturating_sub(1), 0);
        while to < run.len {
            let source = sorted[next];
            let from = run.start + to - sources[source].start;
            let len = (sources[source].len - from).min(run.len - to);
            moves.push(Move { wanted: index, to, source, from, len });
            to += len;
            next += 1;
        }
    }
    Ok(moves)
}

/// Refuses a run of elements that its tensor does not have.
fn within(
    lens: &[usize],
    side: RunSide,
    index: usize,
    (tensor, start, len): (usize, usize, usize),
) -> Result<(), Mismatch> {
    let tensor_len = lens.get(tensor).copied();
    if tensor_len.is_some_and(|whole| start.checked_add(len).is_some_and(|end| end <= whole)) {
        return Ok(());
    }
    Err(Mismatch::Beyond { side, index, tensor, start, len, tensor_len })
}

/// Refuses sorted sources that do not cover every tensor, one after another, from its first element to its last.
fn follow(lens: &[usize], sources: &[RunSource], sorted: &[usize]) -> Result<(), Mismatch> {
    let mut rest = sorted.iter().map(|&i| &sources[i]).peekable();
    for (tensor, &len) in lens.iter().enumerate() {
        let mut end = 0;
        while let Some(source) = rest.next_if(|source| source.tensor == tensor) {
            if source.start > end {
                return Err(Mismatch::Missing { tensor, elements: end..source.start });
            }
            if source.start < end {
                let common = source.start..end.min(source.start + source.len);
                return Err(Mismatch::Doubled { tensor, elements: common });
            }
            end += source.len;
        }
        if end < len {
            return Err(Mismatch::Missing { tensor, elements: end..len });
        }
    }
    Ok(())
}
