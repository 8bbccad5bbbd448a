//! Proof: shows that moves fill every wanted element once, with the right element. Counts how often each element is
//! there, and shares no code with the search for moves. Never corrects them.

use core::ops::Range;

use super::{Mismatch, Move, RunSide, RunSource, Wanted};

/// Shows that sources have every element of every tensor once, that wanted runs do not overlap, and that moves fill
/// each wanted element once, with exactly that element of its tensor, from within its source.
///
/// # Errors
/// The first of these that does not hold.
pub fn prove(lens: &[usize], sources: &[RunSource], wanted: &[Wanted], moves: &[Move]) -> Result<(), Mismatch> {
    covered(lens, sources)?;
    apart(lens, wanted)?;
    moves.iter().enumerate().try_for_each(|(index, &moved)| same(sources, wanted, index, moved))?;
    let mut counts = ElementCounts::default();
    wanted.iter().enumerate().for_each(|(i, run)| counts.add(i, 0..run.len, -1));
    moves.iter().for_each(|moved| counts.add(moved.wanted, moved.to..moved.to + moved.len, 1));
    match counts.first(|count| count != 0) {
        Some((wanted, elements, -1)) => Err(Mismatch::Unfilled { wanted, elements }),
        Some((wanted, elements, _)) => Err(Mismatch::Refilled { wanted, elements }),
        None => Ok(()),
    }
}

/// Checks that every element of every tensor is in one source.
fn covered(lens: &[usize], sources: &[RunSource]) -> Result<(), Mismatch> {
    let mut counts = ElementCounts::default();
    lens.iter().enumerate().for_each(|(tensor, &len)| counts.add(tensor, 0..len, -1));
    for (index, &RunSource { tensor, start, len, .. }) in sources.iter().enumerate() {
        counts.add(tensor, elements(lens, RunSide::Source, index, [tensor, start, len])?, 1);
    }
    match counts.first(|count| count != 0) {
        Some((tensor, elements, -1)) => Err(Mismatch::Missing { tensor, elements }),
        Some((tensor, elements, _)) => Err(Mismatch::Doubled { tensor, elements }),
        None => Ok(()),
    }
}

/// Checks that no element of a flat buffer is wanted twice, and that each is an element of a tensor.
fn apart(lens: &[usize], wanted: &[Wanted]) -> Result<(), Mismatch> {
    let mut counts = ElementCounts::default();
    for (index, &Wanted { tensor, start, len, unit, at }) in wanted.iter().enumerate() {
        elements(lens, RunSide::Wanted, index, [tensor, start, len])?;
        counts.add(unit, at..at.saturating_add(len), 1);
    }
    counts.first(|count| count > 1).map_or(Ok(()), |(unit, elements, _)| Err(Mismatch::Shared { unit, elements }))
}

/// The elements of a run, if its tensor has all of them.
fn elements(
    lens: &[usize],
    side: RunSide,
    index: usize,
    [tensor, start, len]: [usize; 3],
) -> Result<Range<usize>, Mismatch> {
    let tensor_len = lens.get(tensor).copied();
    match tensor_len {
        Some(whole) if len <= whole && start <= whole - len => Ok(start..start + len),
        _ => Err(Mismatch::Beyond { side, index, tensor, start, len, tensor_len }),
    }
}

/// Checks that both sides have the elements of a move, and that these are the same elements of the same tensor. Both
/// sides are known to lie within their tensors.
fn same(sources: &[RunSource], wanted: &[Wanted], index: usize, moved: Move) -> Result<(), Mismatch> {
    let outside = Mismatch::Outside { index, moved };
    let (Some(source), Some(run)) = (sources.get(moved.source), wanted.get(moved.wanted)) else {
        return Err(outside);
    };
    let has = |whole: usize, first: usize| moved.len > 0 && first <= whole && moved.len <= whole - first;
    if !has(source.len, moved.from) || !has(run.len, moved.to) {
        return Err(outside);
    }
    let (read, filled) = ((source.tensor, source.start + moved.from), (run.tensor, run.start + moved.to));
    if read == filled { Ok(()) } else { Err(Mismatch::Other { index, wanted: filled, read }) }
}

/// How often each element of several lines occurs, as the places where the number rises and falls.
#[derive(Default)]
struct ElementCounts {
    steps: Vec<(usize, usize, i64)>,
}

impl ElementCounts {
    /// Adds elements of a line, this many times.
    fn add(&mut self, line: usize, elements: Range<usize>, times: i64) {
        if !elements.is_empty() {
            self.steps.extend([(line, elements.start, times), (line, elements.end, -times)]);
        }
    }

    /// The first elements whose number is wrong by `is_wrong`: their line, their range, and their number.
    fn first(mut self, is_wrong: impl Fn(i64) -> bool) -> Option<(usize, Range<usize>, i64)> {
        self.steps.sort_unstable();
        let mut count = 0;
        for pair in self.steps.windows(2) {
            let [(line, start, times), (_, end, _)] = [pair[0], pair[1]];
            // A line ends with a count of zero, so a range between two lines is never wrong.
            count += times;
            if start != end && is_wrong(count) {
                return Some((line, start..end, count));
            }
        }
        None
    }
}
