//! Sequences: a dataset whose elements are words, whatever they mean, so that a run need not know its type. Never copies
//! one.

use super::{Contents, DataError, Dataset, Draw, Ids};
use zero_core::layer::Activation;

/// A [`Dataset`] as a run uses it: an element is a u32, or the bits of an f32.
pub trait Sequences: Sync {
    /// [`Dataset::training`]
    fn training_words(&self, draw: Draw, input: &mut [u32], targets: &mut [u32]);

    /// [`Dataset::held_out`]
    fn held_out_words(&self, index: usize, input: &mut [u32], targets: &mut [u32]);

    /// [`Dataset::held_out_count`]
    fn held_out_count(&self) -> usize;

    /// [`Dataset::resident_bytes`]
    fn resident_bytes(&self) -> usize;

    /// [`Dataset::require_unchanged`]
    fn require_unchanged(&self) -> Result<(), DataError>;

    /// [`Dataset::contents`]
    fn contents(&self) -> Option<Contents>;

    /// [`Dataset::ids`]
    fn ids(&self) -> Ids<'_>;
}

/// Words as elements of an activation.
fn elements<X: Activation>(words: &mut [u32]) -> &mut [X::Data] {
    bytemuck::cast_slice_mut(words)
}

impl<D: Dataset> Sequences for D {
    fn training_words(&self, draw: Draw, input: &mut [u32], targets: &mut [u32]) {
        self.training(draw, elements::<D::Input>(input), elements::<D::Target>(targets));
    }

    fn held_out_words(&self, index: usize, input: &mut [u32], targets: &mut [u32]) {
        self.held_out(index, elements::<D::Input>(input), elements::<D::Target>(targets));
    }

    fn held_out_count(&self) -> usize {
        Dataset::held_out_count(self)
    }

    fn resident_bytes(&self) -> usize {
        Dataset::resident_bytes(self)
    }

    fn require_unchanged(&self) -> Result<(), DataError> {
        Dataset::require_unchanged(self)
    }

    fn contents(&self) -> Option<Contents> {
        Dataset::contents(self)
    }

    fn ids(&self) -> Ids<'_> {
        Dataset::ids(self)
    }
}
