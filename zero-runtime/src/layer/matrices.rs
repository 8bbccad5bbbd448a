//! Matrices: what it takes to orthogonalize the matrices of a layer, in constants. Never orthogonalizes one.

use super::max;
use crate::orthogonal::{operations, room_bytes};

/// What [`crate::orthogonal::orthogonalize`] takes for the matrices of a layer that Muon updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrices {
    /// Bytes of the room in which one after another is orthogonalized: as much as the one needs that needs most.
    pub room_bytes: usize,
    /// Floating-point operations of orthogonalizing each of them once, a multiply-add counted as 2.
    pub operations: usize,
}

impl Matrices {
    /// No matrix: AdamW updates all of the layer.
    pub const NONE: Self = Self { room_bytes: 0, operations: 0 };

    /// One (rows, columns) matrix, where layers compute in `E`.
    ///
    /// # Panics
    /// Z0210 where a `usize` cannot hold its sizes, which in a constant is a build error.
    #[track_caller]
    pub const fn of<E>(shape: [usize; 2]) -> Self {
        Self { room_bytes: room_bytes::<E>(shape), operations: operations(shape) }
    }

    /// These and others.
    pub const fn and(self, others: Self) -> Self {
        Self {
            room_bytes: max(self.room_bytes, others.room_bytes),
            operations: self.operations.saturating_add(others.operations),
        }
    }
}
