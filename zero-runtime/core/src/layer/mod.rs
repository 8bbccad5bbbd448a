//! Layer: forward, and its vector-Jacobian product, over views. A layer is a type, never a value: it owns nothing, and
//! each call receives everything that it needs, at places that are constants of the plan.
//!
//! Each layer has a file. A layer that only calls the operations of a device computes on any device and in any width
//! that a plan asks for; a layer that reads elements itself names its device in its bounds.
//!
//! Where the next one goes: a layer is a file here, an impl of [`Layer`] (and of [`Entry`] if it can begin a model),
//! a name in `zero-runtime/src/layers.rs`, and a line in `tests/tests/layers/main.rs`, where `gradcheck` tests it. A layer in which tokens depend on other
//! tokens has a [`Layer::CACHE`] and a [`Layer::decode`], and counts [`Layer::ATTENDING`]. A matrix that Muon is to
//! update is added by [`Tensors::hidden`] and counted in [`Layer::MATRICES`]. An attention that differs in its heads is
//! an impl of [`Heads`] and nothing else; a property that its constants cannot express needs another constant.

mod activation;
mod attention;
mod chain;
mod code;
pub mod cost;
mod embedding;
mod gated;
mod head;
mod heads;
mod linear;
mod mse_head;
mod norm;
mod published;
mod tensors;
mod word;

pub use activation::{Gelu, Nonlinear, Relu, Silu};
pub use attention::Attention;
pub use chain::{Chain, Residual};
pub use code::{BackwardBytes, ForwardBytes, HeadCode, InitialScales, Logits, UnitCode};
pub use embedding::{Embedding, TokenEmbedding};
pub use gated::{Gated, GeGlu, SwiGlu};
pub use head::{Classifier, Head, LmHead, SharesWith};
pub use heads::{Bias, CausalSelfAttention, EqualHeads, Heads, InputNames, Projections, QueryKeyNorm};
pub use linear::Linear;
pub use mse_head::MseHead;
pub use norm::{E5, E6, Epsilon, LayerNorm, RmsNorm};
pub use published::{PublishedPart, TensorNames};
pub use tensors::{HiddenMatrix, Init, Tensor, Tensors};
pub use word::{TokenWords, Word, WordKind};
pub use zero_plan::OrthogonalCost;

pub use published::NamesMisfit;

use zero_plan::{Message, Origin};

use crate::device::{Device, Element, Kernels, Matrix, Nonlinearity, Then, Write};
use crate::view::{View, ViewMut};

/// What layers and their sizes depend on: the device, the width, and the shape of a micro-batch.
pub trait Shape: 'static {
    /// Where layers compute.
    type Device: Device;
    /// The element type of features, their gradients and parameters, as layers read and write them.
    type Compute: Element;
    /// Sequences in a micro-batch.
    const SEQUENCES: usize;
    /// Tokens in a sequence.
    const LENGTH: usize;
    /// Tokens, or rows, in a micro-batch.
    const TOKENS: usize = cost::product(&[Self::SEQUENCES, Self::LENGTH]);
    /// Where the spec sets these sizes, for build errors.
    const ORIGIN: Origin = Origin::UNKNOWN;
}

/// A value that flows between layers.
pub trait Activation: 'static {
    /// One element of data: an id, or a number.
    type Data: Word;
    /// One element as layers read and write it, if features are `C`.
    type Element<C: Element>: bytemuck::Pod;
    /// Elements for each token.
    const WIDTH: usize;
    /// Whether it is [`Loss`], which ends a model.
    const IS_LOSS: bool = false;
}

/// Token ids, (tokens), u32.
pub struct Tokens;
/// Feature vectors, (tokens, W), in the width that layers compute in.
pub struct Features<const W: usize>;
/// A loss for each token, (tokens), f32.
pub struct Loss;

impl Activation for Tokens {
    type Data = u32;
    type Element<C: Element> = u32;
    const WIDTH: usize = 1;
}
impl<const W: usize> Activation for Features<W> {
    type Data = f32;
    type Element<C: Element> = C;
    const WIDTH: usize = W;
}
impl Activation for Loss {
    type Data = f32;
    type Element<C: Element> = f32;
    const WIDTH: usize = 1;
    const IS_LOSS: bool = true;
}

/// One element of `X` as the layers of `S` read and write it.
pub type ElementOf<S, X> = <X as Activation>::Element<<S as Shape>::Compute>;

/// Bytes of a micro-batch of `X`.
pub const fn activation_bytes<S: Shape, X: Activation>() -> usize {
    cost::product(&[S::TOKENS, X::WIDTH, size_of::<ElementOf<S, X>>()])
}

/// A differentiable map from activations to activations, with parameters in one flat buffer.
///
/// Sizes are those of a whole micro-batch. Rows are independent except for attention within a sequence, and a call may
/// have fewer than `S::SEQUENCES` sequences, or shorter ones: the sizes are upper bounds, and `Context` has the actual
/// sizes.
///
/// The input is a parameter of the trait, so that an elementwise layer accepts any output of the layer before it.
#[diagnostic::on_unimplemented(
    message = "[Z0211] `{Self}` is not a layer that takes `{X}`",
    label = "takes another input, or is not a layer",
    note = "each layer's output is the next one's input; a struct of layers is a layer by `#[derive(Layer)]`",
    note = "`Tokens` are taken by the first field, `Loss` is given by a head and taken by nobody: it is the last field"
)]
pub trait Layer<S: Shape, X: Activation> {
    /// Its output.
    type Output: Activation;
    /// Number of its parameters.
    const PARAMS: usize;
    /// Bytes that forward keeps for backward, besides its input: sums of [`cost::bytes`].
    const SAVED: usize;
    /// Bytes of scratch for one call, forward or backward: sums of [`cost::bytes`].
    const WORKSPACE: usize;
    /// The memory and the operations that Muon needs to orthogonalize the matrices that [`Layer::tensors`] adds by
    /// [`Tensors::hidden`]: one [`cost::matrix`] for each, joined by [`OrthogonalCost::and`]. By default there are
    /// none, and AdamW updates all parameters, whatever the optimizer.
    const MATRICES: OrthogonalCost = OrthogonalCost::NONE;
    /// Floating-point operations of one forward call, by which pipelines are balanced; a multiply-add counts 2. The
    /// default is right for a layer that multiplies each token by all of its parameters, and does next to nothing else.
    const OPERATIONS: usize = cost::product(&[2, Self::PARAMS, S::TOKENS]);
    /// The part of [`Layer::OPERATIONS`] by which tokens attend to one another. On a GPU, this part takes longer than
    /// matrix products.
    const ATTENDING: usize = 0;

    /// A fault of its sizes, if there is one: a text that begins with a code and says what was expected and found. It
    /// stops the build of a model with such a layer and names the field, so a layer with a fault may have wrong sizes.
    const FAULT: Option<Message> = None;

    /// The nonlinearity that it applies to each element, if it does nothing else: the layer before it may then do that in
    /// its own pass over memory.
    const ACTIVATION: Option<Nonlinearity> = None;

    /// Whether it is a head whose `backward` also computes the losses, and leaves them in [`Backward::losses`].
    /// Training then does not call its `forward`, and `backward` finds nothing in `saved`. Only a layer with output
    /// [`Loss`] may set it (Z0215).
    const LOSSES_IN_BACKWARD: bool = false;

    /// Bytes that [`Layer::decode`] keeps of the earlier tokens of one sequence, up to `S::LENGTH`: a sum of
    /// [`cost::bytes`]. It has as many of these as sequences can be decoded at a time.
    const CACHE: usize = 0;

    /// Names the parameters, in the order of the flat buffer.
    fn tensors(out: &mut Tensors);
    /// Computes `y` and fills `saved`.
    fn forward(cx: &Context<S::Device>, pass: Forward<S, X, Self::Output>);
    /// Computes `dx` and `grads` from `dy`.
    fn backward(cx: &Context<S::Device>, pass: Backward<S, X, Self::Output>);

    /// `forward` for the next `cx.length` tokens of each of `cx.sequences` sequences: `y` is the output of `forward` over
    /// a whole sequence for these tokens. `cx.earlier` says how many tokens of a sequence were in earlier calls, and which
    /// part of `cache` (`cx.slots`, `CACHE`) is its own: that part is as the last of these calls left it, and has any
    /// content in the first. `saved` and `work` are scratch.
    ///
    /// No bit of a sequence depends on which others are decoded in the same calls.
    ///
    /// The default is right for a layer that treats each token by itself, whatever its position. A layer in which
    /// tokens depend on other tokens, or on their positions, has to implement this: `gradcheck` compares it with
    /// `forward`, and refuses a layer that does not.
    fn decode(cx: &Context<S::Device>, pass: Forward<S, X, Self::Output>, _cache: ViewMut<S::Device, u8>) {
        Self::forward(cx, pass);
    }

    /// `forward`, and then `then` applied to `y`. For layers that can do both in one pass over memory.
    fn forward_then(cx: &Context<S::Device>, mut pass: Forward<S, X, Self::Output>, then: Then<S::Device, S::Compute>) {
        let y = pass.y.reborrow();
        Self::forward(cx, Forward { y, work: pass.work, ..pass });
        then.apply(cx.device, pass.y.cast());
    }

    /// `backward`, and then `plus` (tokens, input width) added to `dx`. For layers that can do both in one pass over memory.
    fn backward_plus(
        cx: &Context<S::Device>,
        mut pass: Backward<S, X, Self::Output>,
        plus: View<S::Device, S::Compute>,
    ) {
        let mut dx = pass.dx.take();
        Self::backward(cx, Backward { dx: dx.as_mut().map(ViewMut::reborrow), ..pass });
        if let Some(dx) = dx {
            cx.device.add(dx.cast(), plus);
        }
    }
}

/// The fault of a layer that sets [`Layer::LOSSES_IN_BACKWARD`] although it is not a head.
pub const fn misplaced<S: Shape, X: Activation, L: Layer<S, X>>() -> Option<Message> {
    if L::Output::IS_LOSS || !L::LOSSES_IN_BACKWARD {
        return None;
    }
    let fault =
        Message::new().text("[Z0215] `LOSSES_IN_BACKWARD` is for heads, and this layer gives no `Loss`: training ");
    Some(fault.text("would not call its forward\n  fix: leave the constant out"))
}

/// An activation that is `X`: the output of a layer whose output must have the type of its input.
#[diagnostic::on_unimplemented(
    message = "[Z0143] this layer takes `{X}` but gives `{Self}`, and must give what it takes",
    label = "changes the width",
    note = "a residual connection adds its input to its output, and each element of an array takes what the one before it gives"
)]
pub trait SameAs<X>: Activation {}

impl<X: Activation> SameAs<X> for X {}

/// A layer that can begin a model, because it takes one kind of input only.
#[diagnostic::on_unimplemented(
    message = "[Z0142] `{Self}` cannot begin a model",
    label = "the first field must take one kind of input only, such as `Embedding` or `Linear`",
    note = "a layer of your own that takes one kind of input says so by `impl Entry`"
)]
pub trait Entry {
    /// Its input.
    type Input: Activation;
    /// The number of ids that it accepts, if it accepts ids: each id is less.
    const VOCABULARY: Option<usize> = None;
}

/// Arguments that all calls of a pass share.
pub struct Context<'a, D> {
    /// Where to compute.
    pub device: &'a D,
    /// Sequences in this call.
    pub sequences: usize,
    /// Tokens in each of them.
    pub length: usize,
    /// For each sequence of a call of [`Layer::decode`], what it goes on from; empty in all other calls.
    pub earlier: &'a [Earlier],
    /// Sequences that a cache of [`Layer::decode`] has room for.
    pub slots: usize,
    /// Targets, (tokens, target width), as data gives them: u32 if they are classes, otherwise f32. Empty if nothing is
    /// to be predicted.
    pub targets: View<'a, D, u8>,
}

/// What a sequence goes on from in a call of [`Layer::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// The part of each cache that belongs to it.
    pub slot: usize,
    /// Its tokens in earlier calls.
    pub tokens: usize,
}

impl<D> Context<'_, D> {
    /// Tokens in this call.
    pub fn tokens(&self) -> usize {
        self.sequences * self.length
    }

    /// For each sequence of a call of [`Layer::decode`], its first row, and what it goes on from.
    pub fn decoded(&self) -> impl Iterator<Item = (usize, Earlier)> {
        self.earlier.iter().enumerate().map(|(sequence, &earlier)| (sequence * self.length, earlier))
    }
}

impl<D: Device> Context<'_, D> {
    /// [`Kernels::linear`] of the rows of a call. Those of sequences that are decoded side by side have the bits that they
    /// would have alone.
    pub(super) fn linear<E: Element>(
        &self,
        mut y: ViewMut<D, E>,
        x: View<D, E>,
        weight: Matrix<D, E>,
        bias: Option<View<D, E>>,
        then: Then<D, E>,
    ) {
        if self.earlier.len() < 2 {
            return self.device.linear(y, x, weight, bias, then);
        }
        self.device.linear_apart(y.reborrow(), x, weight, bias);
        then.apply(self.device, y);
    }
}

/// Arguments of a forward call.
pub struct Forward<'a, S: Shape, X: Activation, Y: Activation = X> {
    /// (`PARAMS`)
    pub params: View<'a, S::Device, S::Compute>,
    /// (tokens, input width)
    pub x: View<'a, S::Device, ElementOf<S, X>>,
    /// (tokens, output width): overwritten.
    pub y: ViewMut<'a, S::Device, ElementOf<S, Y>>,
    /// (`SAVED`): overwritten.
    pub saved: ViewMut<'a, S::Device, u8>,
    /// (`WORKSPACE`): of any content.
    pub work: ViewMut<'a, S::Device, u8>,
}

/// Arguments of a backward call.
pub struct Backward<'a, S: Shape, X: Activation, Y: Activation = X> {
    /// (`PARAMS`)
    pub params: View<'a, S::Device, S::Compute>,
    /// (`PARAMS`), f32 in every compute width.
    pub grads: Grads<'a, S::Device>,
    /// (tokens, input width): the input of forward.
    pub x: View<'a, S::Device, ElementOf<S, X>>,
    /// (`SAVED`): the bytes that forward kept.
    pub saved: View<'a, S::Device, u8>,
    /// (tokens, output width). Empty if the layer has [`Layer::LOSSES_IN_BACKWARD`].
    pub dy: View<'a, S::Device, ElementOf<S, Y>>,
    /// (tokens): the gradient of each loss, to be overwritten with the loss. Empty unless the layer has
    /// [`Layer::LOSSES_IN_BACKWARD`].
    pub losses: ViewMut<'a, S::Device, f32>,
    /// (tokens, input width): overwritten. `None` if it is not needed.
    pub dx: Option<ViewMut<'a, S::Device, ElementOf<S, X>>>,
    /// (`WORKSPACE`): of any content.
    pub work: ViewMut<'a, S::Device, u8>,
}

/// The destination of gradients of parameters, and whether they overwrite it or are added to it.
pub struct Grads<'a, D> {
    view: ViewMut<'a, D, f32>,
    write: Write,
}

impl<'a, D: Device> Grads<'a, D> {
    /// Gradients to be written to `view`.
    pub fn new(view: ViewMut<'a, D, f32>, write: Write) -> Self {
        Self { view, write }
    }

    /// The gradients of the first `at` parameters, and of the rest.
    pub fn split_at(self, at: usize) -> (Self, Self) {
        let (head, tail) = self.view.split_at(at);
        (Self::new(head, self.write), Self::new(tail, self.write))
    }

    /// The destination, and how to write it.
    pub fn into_parts(self) -> (ViewMut<'a, D, f32>, Write) {
        (self.view, self.write)
    }

    /// Writes or adds gradients that were computed elsewhere.
    pub fn put(self, device: &D, from: View<D, f32>) {
        match self.write {
            Write::Set => device.copy(self.view, from),
            Write::Add => device.add(self.view, from),
        }
    }
}
