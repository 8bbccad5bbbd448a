//! Precision: the width in which each kind of number is stored and sent. Never rounds a number.

use serde::{Deserialize, Serialize};

/// The type that numbers are stored and sent in. All sums are in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Width {
    /// IEEE single precision.
    #[default]
    F32,
    /// The upper half of it, rounded to nearest, ties to even.
    BF16,
}

impl Width {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Width::F32 => 4,
            Width::BF16 => 2,
        }
    }

    /// Its usual name.
    pub const fn name(self) -> &'static str {
        match self {
            Width::F32 => "f32",
            Width::BF16 => "bf16",
        }
    }

    /// Whether it is narrower than f32.
    pub const fn is_narrow(self) -> bool {
        matches!(self, Width::BF16)
    }
}

/// The width in which each kind of number is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct Precision {
    /// The width of activations, their gradients, saved values, and parameters as layers read them.
    pub compute: Width,
    /// Parameters as they are held and sent.
    pub params: Width,
    /// Gradients as they are held and sent.
    pub reduce: Width,
    /// Parameters as the optimizer updates them: a separate copy if this is not `params`.
    pub master: Width,
    /// The optimizer's two moments.
    pub moments: Width,
}

impl Precision {
    /// Whether the optimizer has its own copy of the parameters.
    pub const fn has_master_copy(&self) -> bool {
        self.master.bytes() != self.params.bytes()
    }

    /// Bytes of optimizer state for one parameter: the K of the ZeRO paper.
    pub const fn optimizer_bytes(&self) -> usize {
        let copy = if self.has_master_copy() { self.master.bytes() } else { 0 };
        copy + 2 * self.moments.bytes()
    }

    /// Bytes of everything that is kept of one parameter from one step to the next.
    pub const fn state_bytes(&self) -> usize {
        self.params.bytes() + self.optimizer_bytes()
    }
}
