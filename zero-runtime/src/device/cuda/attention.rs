//! Attention: causal attention of tokens to those before them. Never waits for the device.

use super::Cuda;
use crate::device::{AttentionShape, Element, Strided};
use crate::view::{View, ViewMut};

/// The most features of a head.
pub(super) const HEAD_DIM_MAX: usize = 128;

pub(super) fn attention<E: Element>(
    cuda: &Cuda,
    _shape: AttentionShape,
    _q: Strided<Cuda, E>,
    _k: Strided<Cuda, E>,
    _v: Strided<Cuda, E>,
    _out: ViewMut<Cuda, E>,
    _lse: ViewMut<Cuda, f32>,
) {
    cuda.missing("attention");
}

#[allow(clippy::too_many_arguments, reason = "one argument for each tensor of the formula")]
pub(super) fn attention_backward<E: Element>(
    cuda: &Cuda,
    _shape: AttentionShape,
    _q: Strided<Cuda, E>,
    _k: Strided<Cuda, E>,
    _v: Strided<Cuda, E>,
    _out: View<Cuda, E>,
    _lse: View<Cuda, f32>,
    _dout: View<Cuda, E>,
    _dqkv: ViewMut<Cuda, E>,
) {
    cuda.missing("attention_backward");
}
