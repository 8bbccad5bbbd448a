//! Memory: the op that last wrote each byte of every rank's arena, and the ops that have read it since. Never decides
//! the order of ops: it asks a clock.

use std::collections::BTreeMap;

use super::clock::{KnownDone, OpNumber};
use crate::layout::Kind;
use crate::place::Access;
use crate::plan::Plan;

/// A stretch of a region whose bytes have all seen the same accesses.
#[derive(Clone)]
struct TouchedPiece {
    end: usize,
    written: Option<OpNumber>,
    /// The last reader of each stream since then.
    reads: Vec<OpNumber>,
}

/// The pieces of each region of each rank, by their starts.
pub(super) struct TouchedMemory(Vec<BTreeMap<usize, TouchedPiece>>);

/// An op that accessed a byte, and is not known to be done.
pub(super) struct Unordered {
    pub earlier: OpNumber,
    pub wrote: bool,
}

impl TouchedMemory {
    pub fn new(plan: &Plan) -> Self {
        Self(vec![BTreeMap::new(); plan.config.mesh.ranks() * Kind::ALL.len()])
    }

    /// Makes an access of the op `now`, which begins when everything that `clock` knows is done.
    pub fn access(&mut self, plan: &Plan, now: OpNumber, clock: &KnownDone, access: &Access) -> Result<(), Unordered> {
        let (start, end) = (access.place.offset_bytes, access.place.end_bytes());
        let pieces = &mut self.0[region_of(plan, access)];
        cut(pieces, start);
        cut(pieces, end);
        let mut covered = start;
        while covered < end {
            let next = pieces.range(covered..end).next().map(|(&at, _)| at);
            if next != Some(covered) {
                // No op has accessed these bytes before.
                let piece = TouchedPiece { end: next.unwrap_or(end), written: None, reads: Vec::new() };
                pieces.insert(covered, piece);
            }
            let piece = pieces.get_mut(&covered).expect("a piece that was found, or made");
            piece.access(now, clock, access.writes)?;
            covered = piece.end;
        }
        Ok(())
    }
}

/// The number of the region of an access. Memory that ranks hold in common is one region.
fn region_of(plan: &Plan, access: &Access) -> usize {
    let (at, region) = (access.at, access.place.region);
    let is_common = plan.places(at).memory.region(region).home.is_common();
    let holder = if is_common { plan.places(at).first_in_common() } else { at };
    plan.config.mesh.rank(holder) * Kind::ALL.len() + region as usize
}

/// Splits the piece that extends across `at`, if there is one.
fn cut(pieces: &mut BTreeMap<usize, TouchedPiece>, at: usize) {
    let Some((_, across)) = pieces.range_mut(..at).next_back().filter(|(_, piece)| piece.end > at) else { return };
    let behind = across.clone();
    across.end = at;
    pieces.insert(at, behind);
}

impl TouchedPiece {
    fn access(&mut self, now: OpNumber, clock: &KnownDone, writes: bool) -> Result<(), Unordered> {
        if let Some(earlier) = self.written.filter(|&earlier| !clock.knows(earlier)) {
            return Err(Unordered { earlier, wrote: true });
        }
        if !writes {
            // The last reader in a stream is after all earlier readers there.
            self.reads.retain(|read| read.chain != now.chain);
            self.reads.push(now);
            return Ok(());
        }
        if let Some(&earlier) = self.reads.iter().find(|&&earlier| !clock.knows(earlier)) {
            return Err(Unordered { earlier, wrote: false });
        }
        self.reads.clear();
        self.written = Some(now);
        Ok(())
    }
}
