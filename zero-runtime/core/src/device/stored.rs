//! Stored: views of numbers in one of two widths, which the plan chooses. Never converts.

use zero_plan::Width;

use super::element::{Element, bf16};
use crate::view::{View, ViewMut};

/// Numbers that may be read.
pub enum Stored<'a, D> {
    /// Stored as f32.
    F32(View<'a, D, f32>),
    /// Stored as bf16.
    BF16(View<'a, D, bf16>),
}

/// Numbers that may be written.
pub enum StoredMut<'a, D> {
    /// Stored as f32.
    F32(ViewMut<'a, D, f32>),
    /// Stored as bf16.
    BF16(ViewMut<'a, D, bf16>),
}

/// Evaluates the same expression on the view, whatever its width.
macro_rules! each {
    ($stored:expr, $view:ident => $result:expr) => {
        match $stored {
            Self::F32($view) => $result,
            Self::BF16($view) => $result,
        }
    };
}

impl<D> Clone for Stored<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for Stored<'_, D> {}

impl<'a, D> Stored<'a, D> {
    /// Numbers of this width.
    pub fn of(width: Width, bytes: View<'a, D, u8>) -> Self {
        match width {
            Width::F32 => Self::F32(bytes.cast()),
            Width::BF16 => Self::BF16(bytes.cast()),
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        each!(self, view => view.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `at` elements, and the rest.
    pub fn split_at(self, at: usize) -> (Self, Self) {
        each!(self, view => {
            let (first, rest) = view.split_at(at);
            (first.into(), rest.into())
        })
    }

    /// `len` elements from `start`.
    pub fn part(self, start: usize, len: usize) -> Self {
        each!(self, view => view.part(start, len).into())
    }
}

impl<'a, D> StoredMut<'a, D> {
    /// Numbers of this width.
    pub fn of(width: Width, bytes: ViewMut<'a, D, u8>) -> Self {
        match width {
            Width::F32 => Self::F32(bytes.cast()),
            Width::BF16 => Self::BF16(bytes.cast()),
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        each!(self, view => view.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same elements for a shorter time.
    pub fn reborrow(&mut self) -> StoredMut<'_, D> {
        each!(self, view => view.reborrow().into())
    }

    /// The same elements, to read.
    pub fn as_stored(&self) -> Stored<'_, D> {
        each!(self, view => view.as_view().into())
    }

    /// The first `at` elements, and the rest.
    pub fn split_at(self, at: usize) -> (Self, Self) {
        each!(self, view => {
            let (first, rest) = view.split_at(at);
            (first.into(), rest.into())
        })
    }

    /// `len` elements from `start`.
    pub fn part(self, start: usize, len: usize) -> Self {
        each!(self, view => view.part(start, len).into())
    }
}

impl<'a, D, E: Element> From<View<'a, D, E>> for Stored<'a, D> {
    fn from(view: View<'a, D, E>) -> Self {
        Self::of(E::WIDTH, view.cast())
    }
}

impl<'a, D, E: Element> From<ViewMut<'a, D, E>> for StoredMut<'a, D> {
    fn from(view: ViewMut<'a, D, E>) -> Self {
        Self::of(E::WIDTH, view.cast())
    }
}

/// The parameters that an optimizer updates: those that layers read, and the master copy if that is separate.
pub struct Weights<'a, D> {
    /// The parameters that layers read.
    pub params: StoredMut<'a, D>,
    /// The master copy, if there is one: it is updated in place of `params`, which are then its rounded values.
    pub master: Option<StoredMut<'a, D>>,
}

impl<D> Weights<'_, D> {
    /// The first `at` elements, and the rest.
    pub fn split_at(self, at: usize) -> (Self, Self) {
        let (params, rest) = self.params.split_at(at);
        let (master, rest_of_master) = self.master.map(|master| master.split_at(at)).unzip();
        (Self { params, master }, Self { params: rest, master: rest_of_master })
    }
}

impl<'a, D, W: Into<StoredMut<'a, D>>> From<W> for Weights<'a, D> {
    fn from(params: W) -> Self {
        Self { params: params.into(), master: None }
    }
}
