//! Code: the functions of a layer that the engine calls, over bytes, so that one table can hold the functions of all
//! layers. Never knows a model.

use super::{Activation, Backward, Context, Forward, Grads, Head, Layer, PublishedPart, Shape, Tensors, TokenWords};
use crate::device::Device;
use crate::view::{View, ViewMut};

/// Arguments of a forward call, as the engine has them: as bytes, whose meaning only the layer knows.
pub struct ForwardBytes<'a, D> {
    /// [`Forward::params`]
    pub params: View<'a, D, u8>,
    /// [`Forward::x`]
    pub x: View<'a, D, u8>,
    /// [`Forward::y`]
    pub y: ViewMut<'a, D, u8>,
    /// [`Forward::saved`]
    pub saved: ViewMut<'a, D, u8>,
    /// [`Forward::work`]
    pub work: ViewMut<'a, D, u8>,
}

/// Arguments of a backward call, as the engine has them.
pub struct BackwardBytes<'a, D> {
    /// [`Backward::params`]
    pub params: View<'a, D, u8>,
    /// [`Backward::grads`]
    pub grads: Grads<'a, D>,
    /// [`Backward::x`]
    pub x: View<'a, D, u8>,
    /// [`Backward::saved`]
    pub saved: View<'a, D, u8>,
    /// [`Backward::dy`]
    pub dy: View<'a, D, u8>,
    /// [`Backward::losses`]
    pub losses: ViewMut<'a, D, f32>,
    /// [`Backward::dx`]
    pub dx: Option<ViewMut<'a, D, u8>>,
    /// [`Backward::work`]
    pub work: ViewMut<'a, D, u8>,
}

/// The functions that the engine calls for a unit.
pub struct UnitCode<D> {
    /// [`Layer::forward`]
    pub forward: fn(&Context<D>, ForwardBytes<D>),
    /// [`Layer::decode`]
    pub decode: fn(&Context<D>, ForwardBytes<D>, ViewMut<D, u8>),
    /// [`Layer::backward`]
    pub backward: fn(&Context<D>, BackwardBytes<D>),
    /// [`Layer::tensors`]
    pub of_layer: fn(&mut Tensors),
    /// The field's name, and `{}` for the index of an element.
    pub own: [&'static str; 2],
    /// `#[weights(...)]` on the field.
    pub weights: &'static [PublishedPart],
    /// `#[init(...)]` on the field.
    pub init: Option<InitialScales>,
}

/// The standard deviation of a field's matrices, and that of the last matrix if it differs.
pub type InitialScales = fn() -> (f32, Option<f32>);

impl<D: Device> UnitCode<D> {
    /// The code of a layer that takes `X`, in a field of this name; `is_array` if it has several elements.
    pub const fn of<S: Shape<Device = D>, X: Activation, L: Layer<S, X>>(field: &'static str, is_array: bool) -> Self {
        Self {
            forward: |cx, pass| {
                let ForwardBytes { params, x, y, saved, work } = pass;
                L::forward(cx, Forward { params: params.cast(), x: x.cast(), y: y.cast(), saved, work });
            },
            decode: |cx, pass, cache| {
                let ForwardBytes { params, x, y, saved, work } = pass;
                L::decode(cx, Forward { params: params.cast(), x: x.cast(), y: y.cast(), saved, work }, cache);
            },
            backward: |cx, pass| {
                let BackwardBytes { params, grads, x, saved, dy, losses, dx, work } = pass;
                let (params, x, dy, dx) = (params.cast(), x.cast(), dy.cast(), dx.map(ViewMut::cast));
                L::backward(cx, Backward { params, grads, x, saved, dy, losses, dx, work });
            },
            of_layer: L::tensors,
            own: [field, if is_array { "{}" } else { "" }],
            weights: &[],
            init: None,
        }
    }
}

impl<D> UnitCode<D> {
    /// Names the parameters of a unit, in the order of its flat buffer: by [`Layer::tensors`] and the attributes of the
    /// field.
    pub fn tensors(&self, out: &mut Tensors) {
        let own = if self.own[1].is_empty() { &self.own[..1] } else { &self.own[..] };
        out.unit(own, self.weights, |out| match self.init {
            Some(init) => {
                let (all, last) = init();
                out.initial(all, last, self.of_layer);
            }
            None => (self.of_layer)(out),
        });
    }
}

impl<D> Clone for UnitCode<D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for UnitCode<D> {}

/// Computes predictions from parameters and features, both as bytes.
pub type Logits<D> = fn(&D, View<D, u8>, View<D, u8>, ViewMut<D, f32>);

/// The code by which a head predicts.
pub struct HeadCode<D> {
    /// [`Head::CLASSES`]
    pub classes: usize,
    /// [`Head::OUTPUTS`]
    pub outputs: usize,
    /// [`Head::Target`]
    pub targets: TokenWords,
    /// [`Head::UNIT`]
    pub unit: &'static str,
    /// [`Head::logits`]
    pub logits: Logits<D>,
}

impl<D> Clone for HeadCode<D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D> Copy for HeadCode<D> {}

impl<D: Device> HeadCode<D> {
    /// The code of a head.
    pub const fn of<S: Shape<Device = D>, L: Head<S> + ?Sized>() -> Self {
        Self {
            classes: L::CLASSES,
            outputs: L::OUTPUTS,
            targets: TokenWords::of::<L::Target>(),
            unit: L::UNIT,
            logits: |device, params, x, logits| L::logits(device, params.cast(), x.cast(), logits),
        }
    }
}
