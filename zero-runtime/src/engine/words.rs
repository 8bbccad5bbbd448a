//! Words: the few numbers of a step that its ops read and write on the device, so that none of them asks the host. Never
//! says what they mean.
#![allow(unsafe_code)]
#![expect(clippy::undocumented_unsafe_blocks, reason = "one argument for all views, below")]

use zero_plan::footprint::{STEP_WORDS, words_bytes};

use crate::arena::Arena;
use crate::device::{Device, HyperBlock, ReportBlock};
use crate::view::{View, ViewMut};

const REPORT: usize = size_of::<HyperBlock>();
const OWN: usize = REPORT + size_of::<ReportBlock>();
const _: () = assert!(OWN == STEP_WORDS * size_of::<f64>(), "the plan has other words of a step");

// SAFETY of all views: within the words of the arena, by the sums of `words_bytes`; every bit pattern is a value of what they
// hold; they are this rank's alone and used by one op after another, with no two views of one part in an op but to read.
impl<D: Device> Arena<'_, D> {
    /// What the host says about a step.
    pub(super) fn hyper(&self) -> View<'_, D, HyperBlock> {
        unsafe { View::from_raw(self.words_start().cast(), 1) }
    }

    /// The same, to write.
    pub(super) fn hyper_mut(&self) -> ViewMut<'_, D, HyperBlock> {
        unsafe { ViewMut::from_raw(self.words_start().cast(), 1) }
    }

    /// What a step came to.
    pub(super) fn report(&self) -> View<'_, D, ReportBlock> {
        unsafe { View::from_raw(self.words_start().wrapping_add(REPORT).cast(), 1) }
    }

    /// The same, to write.
    pub(super) fn report_mut(&self) -> ViewMut<'_, D, ReportBlock> {
        unsafe { ViewMut::from_raw(self.words_start().wrapping_add(REPORT).cast(), 1) }
    }

    /// The first `len` words of this rank for the others: the sum of its losses, then the squares of each unit.
    pub(super) fn own_words(&self, len: usize) -> View<'_, D, f64> {
        let own = self.own_words_mut(len);
        unsafe { View::from_raw(own.address(), len) }
    }

    /// The same, to write.
    pub(super) fn own_words_mut(&self, len: usize) -> ViewMut<'_, D, f64> {
        assert!(len <= self.plan().agreed_values(), "{len} words");
        unsafe { ViewMut::from_raw(self.words_start().wrapping_add(OWN).cast(), len) }
    }

    /// `len` words of each rank, in their order.
    pub(super) fn all_words(&self, len: usize) -> View<'_, D, f64> {
        let all = self.all_words_mut(len);
        unsafe { View::from_raw(all.address(), all.len()) }
    }

    /// The same, to write.
    pub(super) fn all_words_mut(&self, len: usize) -> ViewMut<'_, D, f64> {
        let (agreed, ranks) = (self.plan().agreed_values(), self.plan().config.mesh.ranks());
        assert!(len <= agreed, "{len} words");
        let start = words_bytes(agreed, 0);
        unsafe { ViewMut::from_raw(self.words_start().wrapping_add(start).cast(), ranks * len) }
    }
}
