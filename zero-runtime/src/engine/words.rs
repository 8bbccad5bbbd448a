//! Words: the few numbers of a step that its ops read and write on the device, so that none of them asks the host.
//! Never interprets them.
#![allow(unsafe_code)]

use zero_plan::footprint::{STEP_WORDS, words_bytes};

use crate::arena::Arena;
use crate::device::{Device, HyperBlock, ReportBlock};
use crate::view::{View, ViewMut};

const REPORT: usize = size_of::<HyperBlock>();
const OWN: usize = REPORT + size_of::<ReportBlock>();
const _: () = assert!(OWN == STEP_WORDS * size_of::<f64>(), "the plan has other words of a step");

impl<D: Device> Arena<'_, D> {
    /// The host's settings for a step.
    pub(super) fn hyper(&self) -> View<'_, D, HyperBlock> {
        self.words(0, 1)
    }

    /// The same, to write.
    pub(super) fn hyper_mut(&self) -> ViewMut<'_, D, HyperBlock> {
        self.words_mut(0, 1)
    }

    /// The report of a step.
    pub(super) fn report(&self) -> View<'_, D, ReportBlock> {
        self.words(REPORT, 1)
    }

    /// The same, to write.
    pub(super) fn report_mut(&self) -> ViewMut<'_, D, ReportBlock> {
        self.words_mut(REPORT, 1)
    }

    /// The first `len` words of this rank for the others: the sum of its losses, then the squares of each unit.
    pub(super) fn own_words(&self, len: usize) -> View<'_, D, f64> {
        self.words(OWN, self.agreed(len))
    }

    /// The same, to write.
    pub(super) fn own_words_mut(&self, len: usize) -> ViewMut<'_, D, f64> {
        self.words_mut(OWN, self.agreed(len))
    }

    /// `len` words of each rank, in their order.
    pub(super) fn all_words(&self, len: usize) -> View<'_, D, f64> {
        self.words(self.all(), self.plan().config.mesh.ranks() * self.agreed(len))
    }

    /// The same, to write.
    pub(super) fn all_words_mut(&self, len: usize) -> ViewMut<'_, D, f64> {
        self.words_mut(self.all(), self.plan().config.mesh.ranks() * self.agreed(len))
    }

    /// Checks that a rank has `len` words: no more than ranks agree on.
    fn agreed(&self, len: usize) -> usize {
        assert!(len <= self.plan().agreed_values(), "{len} words");
        len
    }

    /// The byte at which the words of all ranks begin.
    fn all(&self) -> usize {
        words_bytes(self.plan().agreed_values(), 0)
    }

    /// `len` values that begin at byte `start` of the words.
    fn words<T>(&self, start: usize, len: usize) -> View<'_, D, T> {
        let start = self.first_of::<T>(start, len).cast_const();
        // SAFETY: they lie within the words, whose bytes are a value of every type that is asked for. They are this
        // rank's alone, and used by one op after another, none of which has two views of one part unless both only
        // read.
        unsafe { View::from_raw(start, len) }
    }

    /// The same, to write.
    fn words_mut<T>(&self, start: usize, len: usize) -> ViewMut<'_, D, T> {
        let start = self.first_of::<T>(start, len);
        // SAFETY: as in `words`.
        unsafe { ViewMut::from_raw(start, len) }
    }

    /// The address of the first of `len` values, which begin at byte `start` of the words.
    fn first_of<T>(&self, start: usize, len: usize) -> *mut T {
        let bytes = words_bytes(self.plan().agreed_values(), self.plan().config.mesh.ranks());
        assert!(start + len * size_of::<T>() <= bytes, "{len} values at byte {start} of {bytes} bytes of words");
        self.words_start().wrapping_add(start).cast()
    }
}
