//! Words: the few numbers of a step that its ops read and write on the device, so that no op involves the host. Never
//! interprets them.
#![allow(unsafe_code)]

use zero_plan::footprint::words_bytes;
use zero_plan::lines::STEP_WORDS;

use zero_core::arena::Arena;
use zero_core::device::{Device, HyperBlock, ReportBlock};
use zero_core::view::{View, ViewMut};

const REPORT: usize = size_of::<HyperBlock>();
const OWN: usize = REPORT + size_of::<ReportBlock>();
const _: () = assert!(OWN == STEP_WORDS * size_of::<f64>(), "the plan has other words of a step");

/// The words of a rank's step in its arena.
///
/// Only the engine uses them, by one op after another.
pub(super) trait StepWords<D> {
    /// The host's settings for a step.
    fn hyper(&self) -> View<'_, D, HyperBlock>;
    /// The same, to write.
    fn hyper_mut(&self) -> ViewMut<'_, D, HyperBlock>;
    /// The report of a step.
    fn report(&self) -> View<'_, D, ReportBlock>;
    /// The same, to write.
    fn report_mut(&self) -> ViewMut<'_, D, ReportBlock>;
    /// Both, as bytes.
    fn hyper_and_report(&self) -> View<'_, D, u8>;
    /// The first `len` words of this rank, for the other ranks: the sum of its losses, then the squares of each unit.
    fn own_words(&self, len: usize) -> View<'_, D, f64>;
    /// The same, to write.
    fn own_words_mut(&self, len: usize) -> ViewMut<'_, D, f64>;
    /// `len` words of each rank, in the order of ranks.
    fn all_words(&self, len: usize) -> View<'_, D, f64>;
    /// The same, to write.
    fn all_words_mut(&self, len: usize) -> ViewMut<'_, D, f64>;
}

impl<D: Device> StepWords<D> for Arena<'_, D> {
    fn hyper(&self) -> View<'_, D, HyperBlock> {
        words(self, 0, 1)
    }

    fn hyper_mut(&self) -> ViewMut<'_, D, HyperBlock> {
        words_mut(self, 0, 1)
    }

    fn report(&self) -> View<'_, D, ReportBlock> {
        words(self, REPORT, 1)
    }

    fn report_mut(&self) -> ViewMut<'_, D, ReportBlock> {
        words_mut(self, REPORT, 1)
    }

    fn hyper_and_report(&self) -> View<'_, D, u8> {
        words(self, 0, OWN)
    }

    fn own_words(&self, len: usize) -> View<'_, D, f64> {
        words(self, OWN, agreed(self, len))
    }

    fn own_words_mut(&self, len: usize) -> ViewMut<'_, D, f64> {
        words_mut(self, OWN, agreed(self, len))
    }

    fn all_words(&self, len: usize) -> View<'_, D, f64> {
        words(self, all(self), self.plan().config.mesh.ranks() * agreed(self, len))
    }

    fn all_words_mut(&self, len: usize) -> ViewMut<'_, D, f64> {
        words_mut(self, all(self), self.plan().config.mesh.ranks() * agreed(self, len))
    }
}

/// Checks that a rank has `len` words: no more than ranks exchange for an agreement.
fn agreed<D: Device>(arena: &Arena<D>, len: usize) -> usize {
    assert!(len <= arena.plan().agreed_values(), "{len} words");
    len
}

/// The byte at which the words of all ranks begin.
fn all<D: Device>(arena: &Arena<D>) -> usize {
    words_bytes(arena.plan().agreed_values(), 0)
}

/// `len` values that begin at byte `start` of the words.
fn words<'a, D: Device, T>(arena: &'a Arena<D>, start: usize, len: usize) -> View<'a, D, T> {
    let start = first_of::<D, T>(arena, start, len).cast_const();
    // SAFETY: they lie within the words, whose bytes are a value of every type that is asked for. Only this rank uses
    // them, by one op after another, and no op has two views of one part unless both only read.
    unsafe { View::from_raw(start, len) }
}

/// The same, to write.
fn words_mut<'a, D: Device, T>(arena: &'a Arena<D>, start: usize, len: usize) -> ViewMut<'a, D, T> {
    let start = first_of::<D, T>(arena, start, len);
    // SAFETY: as in `words`.
    unsafe { ViewMut::from_raw(start, len) }
}

/// The address of the first of `len` values, which begin at byte `start` of the words.
fn first_of<D: Device, T>(arena: &Arena<D>, start: usize, len: usize) -> *mut T {
    let bytes = words_bytes(arena.plan().agreed_values(), arena.plan().config.mesh.ranks());
    assert!(start + len * size_of::<T>() <= bytes, "{len} values at byte {start} of {bytes} bytes of words");
    arena.words_start().wrapping_add(start).cast()
}
