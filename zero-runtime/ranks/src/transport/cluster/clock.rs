//! Clock: measures how far the clock of each host is from that of rank 0's host, by round trips between its first rank and
//! rank 0. Never sets a clock, and never interpolates between two measurements.
//!
//! A rank that asks another one for its clock knows that the clock was read after the question was sent and before the
//! answer arrived. If it was read halfway, the difference is exact; otherwise the error is at most half of the round trip.
//! So the shortest of several round trips counts (F. Cristian, "Probabilistic clock synchronization", Distributed
//! Computing 3, 1989; the clock filter of RFC 5905 does the same).
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::time::Duration;

use zero_plan::postings::CLOCK_TAG;

use super::mpi::Mpi;
use crate::transport::ClockLook;
use zero_core::device::Failure;
use zero_core::time::now_ns;

/// The tag of questions about clocks, and of their answers.
const TAG: c_int = CLOCK_TAG as c_int;

/// Number of round trips: among this many, one is likely to meet hardly any other traffic.
const ROUND_TRIPS: usize = 40;

/// The shortest possible sleep between two polls.
const BRIEF: Duration = Duration::from_micros(1);

/// Why a clock could not be read.
#[derive(Debug)]
pub(super) enum Unread {
    /// A rank has not answered.
    Silent(usize),
    /// A call of MPI has failed.
    Failed(Failure),
}

impl From<Failure> for Unread {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A question and its answer, in nanoseconds of two clocks.
#[derive(Clone, Copy, Debug)]
struct RoundTrip {
    /// By the clock here.
    asked_ns: u64,
    /// By the clock there.
    answer_ns: u64,
    /// By the clock here.
    heard_ns: u64,
}

impl RoundTrip {
    fn ns(&self) -> u64 {
        self.heard_ns - self.asked_ns
    }

    fn look(&self) -> ClockLook {
        let at_ns = self.asked_ns + self.ns() / 2;
        // The half of an odd number is rounded down.
        ClockLook {
            at_ns,
            offset_ns: self.answer_ns.wrapping_sub(at_ns).cast_signed(),
            error_ns: self.ns().div_ceil(2),
        }
    }
}

/// The offset according to the shortest of some round trips.
fn look(trips: &[RoundTrip]) -> ClockLook {
    trips.iter().min_by_key(|trip| trip.ns()).expect("a round trip").look()
}

/// Compares the clock of this rank, the first of `ranks_per_host` of its host, with that of rank 0, which answers all
/// such ranks one after another. Gives up when `goes_on` returns false.
pub(super) fn compare(mpi: &Mpi, ranks_per_host: usize, goes_on: &dyn Fn() -> bool) -> Result<ClockLook, Unread> {
    if mpi.rank > 0 {
        let ask = |trip| {
            let asked_ns = now_ns();
            carry(mpi, true, 0, asked_ns, rest(trip), goes_on)?;
            let answer_ns = carry(mpi, false, 0, 0, rest(trip), goes_on)?;
            Ok(RoundTrip { asked_ns, answer_ns, heard_ns: now_ns() })
        };
        let trips: Result<Vec<RoundTrip>, Unread> = (0..ROUND_TRIPS).map(ask).collect();
        return Ok(look(&trips?));
    }
    for first in (ranks_per_host..mpi.size).step_by(ranks_per_host) {
        for trip in 0..ROUND_TRIPS {
            carry(mpi, false, first, 0, rest(trip), goes_on)?;
            carry(mpi, true, first, now_ns(), rest(trip), goes_on)?;
        }
    }
    Ok(ClockLook { at_ns: now_ns(), ..ClockLook::default() })
}

/// Waits a moment before the next poll. Yielding is faster if there are enough processors; if there are not, a rank that
/// sleeps is woken sooner. So every other round trip sleeps.
fn rest(trip: usize) -> fn() {
    if trip.is_multiple_of(2) { std::thread::yield_now } else { || std::thread::sleep(BRIEF) }
}

/// Sends a word, or receives one and returns it.
fn carry(
    mpi: &Mpi,
    is_sent: bool,
    peer: usize,
    word: u64,
    rest: fn(),
    goes_on: &dyn Fn() -> bool,
) -> Result<u64, Unread> {
    let bytes = word.to_le_bytes();
    // It is never freed if the request does not end.
    let room = Box::into_raw(Box::new(bytes));
    // SAFETY: the room lives until the request has come to its end, and nobody else knows of it.
    let mut request = unsafe {
        if is_sent {
            mpi.send(room.cast(), bytes.len(), peer, TAG)
        } else {
            mpi.receive(room.cast(), bytes.len(), peer, TAG)
        }
    }?;
    while !mpi.has_ended(&mut request)? {
        if !goes_on() {
            return Err(Unread::Silent(peer));
        }
        rest();
    }
    // SAFETY: it was a box, and the library no longer uses it.
    Ok(u64::from_le_bytes(*unsafe { Box::from_raw(room) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round trip that begins at `asked_ns`, to a clock that is ahead by `ahead_ns`.
    fn trip(asked_ns: u64, ahead_ns: i64, there_ns: u64, back_ns: u64) -> RoundTrip {
        let answer_ns = (asked_ns + there_ns).wrapping_add_signed(ahead_ns);
        RoundTrip { asked_ns, answer_ns, heard_ns: asked_ns + there_ns + back_ns }
    }

    #[test]
    fn the_shortest_round_trip_tells_the_offset_within_half_of_it() {
        let hour: i64 = 3_600_000_000_000;
        for ahead_ns in [0, 1, -1, 5, hour, -hour] {
            for (there_ns, back_ns) in [(100, 100), (200, 0), (0, 200), (101, 100), (0, 1), (13, 87)] {
                let start = 2 * hour.unsigned_abs();
                let trips = [
                    trip(start, ahead_ns, 90_000, 10),
                    trip(start + 200_000, ahead_ns, there_ns, back_ns),
                    trip(start + 400_000, ahead_ns, 10, 5000),
                ];
                let look = look(&trips);
                assert_eq!(look.error_ns, (there_ns + back_ns).div_ceil(2), "{look:?}");
                assert!(look.offset_ns.abs_diff(ahead_ns) <= look.error_ns, "{ahead_ns}: {look:?}");
                assert!((start + 200_000..=start + 200_201).contains(&look.at_ns), "{look:?}");
                if there_ns == back_ns {
                    assert_eq!(look.offset_ns, ahead_ns);
                }
            }
        }
    }
}
