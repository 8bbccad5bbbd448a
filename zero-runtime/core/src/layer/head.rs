//! Head: the last unit, which turns features into a loss. Never holds the logits of a whole micro-batch.

use zero_plan::Message;

use super::cost::{SOFTMAX, bytes, empty, product, sum};
use super::{
    Activation, Backward, Context, Embedding, Features, Forward, HeadCode, Init, Layer, Loss, Shape, Tensors,
    TokenEmbedding, Tokens,
};
use crate::checked::max;
use crate::device::{Device, Element, Kernels, Matrix, Write};
use crate::view::{View, ViewMut};

/// A layer that ends a model: it computes a loss, and can also compute predictions.
#[diagnostic::on_unimplemented(
    message = "[Z0211] `{Self}` is not a head",
    label = "gives no loss",
    note = "the last field of a model is its head: it takes what the field before it gives, as `LmHead` does, and gives a loss"
)]
pub trait Head<S: Shape> {
    /// The target of each token: [`Tokens`] if it is a class, [`Features`] if it is numbers.
    type Target: Activation;
    /// The unit of the loss, as reports print it.
    const UNIT: &'static str;
    /// Number of classes that targets can be: the vocabulary. 0 if targets are numbers.
    const CLASSES: usize;
    /// Numbers that it predicts for each token: the logits of all classes, unless it says otherwise.
    const OUTPUTS: usize = Self::CLASSES;
    /// The head's code, as the engine calls it. No impl may set another one.
    const CODE: HeadCode<S::Device> = HeadCode::of::<S, Self>();

    /// Computes `logits` (rows, OUTPUTS), or whatever else it predicts, from features `x` (rows, input width). No bit of a
    /// row depends on the other rows.
    fn logits(
        device: &S::Device,
        params: View<S::Device, S::Compute>,
        x: View<S::Device, S::Compute>,
        logits: ViewMut<S::Device, f32>,
    );
}

/// A layer whose parameters can be those at the start of `Owner`'s flat buffer.
#[diagnostic::on_unimplemented(
    message = "[Z0205] `{Self}` cannot share the parameters of `{Owner}`",
    label = "its parameters are not those of the field it is tied to",
    note = "`LmHead<W, VOCAB>` shares the weight of `Embedding<VOCAB, CONTEXT, W>` or `TokenEmbedding<VOCAB, W>`, where both widths and both vocabularies are equal"
)]
pub trait SharesWith<Owner> {}

impl<const W: usize, const VOCAB: usize, const CONTEXT: usize> SharesWith<Embedding<VOCAB, CONTEXT, W>>
    for LmHead<W, VOCAB>
{
}

impl<const W: usize, const VOCAB: usize> SharesWith<TokenEmbedding<VOCAB, W>> for LmHead<W, VOCAB> {}

/// (tokens, W) to a loss: logits by weight (VOCAB, W), and the cross-entropy of each token's target in nats.
///
/// Logits exist for a chunk of tokens at a time. Backward computes the loss from them as well, so that training
/// computes them once.
pub struct LmHead<const W: usize, const VOCAB: usize>;

/// The same head for features that are not those of tokens: (rows, W) to the cross-entropy of each row's class.
pub type Classifier<const W: usize, const CLASSES: usize> = LmHead<W, CLASSES>;

impl<const W: usize, const VOCAB: usize> LmHead<W, VOCAB> {
    /// Tokens whose logits exist at one time: as many as the device allows.
    const fn at_once<D: Device>() -> usize {
        max(D::LOGITS_ROWS_MIN, D::LOGITS / max(VOCAB, 1))
    }

    const fn chunk<D: Device>(tokens: usize) -> usize {
        if Self::at_once::<D>() < tokens { Self::at_once::<D>() } else { tokens }
    }
}

impl<S: Shape, const W: usize, const VOCAB: usize> Layer<S, Features<W>> for LmHead<W, VOCAB> {
    type Output = Loss;
    const PARAMS: usize = product(&[VOCAB, W]);
    const FAULT: Option<Message> = empty("LmHead", &[("width", W), ("vocabulary", VOCAB)]);
    const SAVED: usize = 0;
    const WORKSPACE: usize = bytes::<S::Compute>(product(&[Self::chunk::<S::Device>(S::TOKENS), VOCAB]));
    // The logits, and their softmax.
    const OPERATIONS: usize = sum(&[product(&[2, S::TOKENS, VOCAB, W]), product(&[S::TOKENS, VOCAB, SOFTMAX])]);
    const LOSSES_IN_BACKWARD: bool = true;

    fn tensors(out: &mut Tensors) {
        out.add("weight", &[VOCAB, W], Init::Normal((3.0 * W as f32).sqrt().recip()));
    }

    fn forward(cx: &Context<S::Device>, mut pass: Forward<S, Features<W>, Loss>) {
        let tokens = cx.tokens();
        let targets = cx.targets.cast();
        for start in (0..tokens).step_by(Self::at_once::<S::Device>()) {
            let rows = Self::chunk::<S::Device>(tokens - start);
            let mut logits = pass.work.reborrow().take::<S::Compute>(rows * VOCAB).0;
            logits_of(cx.device, W, pass.params, pass.x.part(start * W, rows * W), logits.reborrow());
            let loss = pass.y.reborrow().part(start, rows);
            cx.device.cross_entropy(logits.as_view(), targets.part(start, rows), loss);
        }
    }

    fn backward(cx: &Context<S::Device>, mut pass: Backward<S, Features<W>, Loss>) {
        let (tokens, targets) = (cx.tokens(), cx.targets.cast());
        let weight = || Matrix::new(pass.params, VOCAB, W);
        let (mut dweight, mut write) = pass.grads.into_parts();
        for start in (0..tokens).step_by(Self::at_once::<S::Device>()) {
            let rows = Self::chunk::<S::Device>(tokens - start);
            let mut logits = pass.work.reborrow().take::<S::Compute>(rows * VOCAB).0;
            let x = pass.x.part(start * W, rows * W);
            logits_of(cx.device, W, pass.params, x, logits.reborrow());
            let losses = pass.losses.reborrow().part(start, rows);
            cx.device.cross_entropy_backward(logits.reborrow(), targets.part(start, rows), losses);
            let dlogits = || Matrix::new(logits.as_view(), rows, VOCAB);
            if let Some(dx) = &mut pass.dx {
                let dx = dx.reborrow().part(start * W, rows * W);
                cx.device.matmul(dx, dlogits(), weight(), Write::Set);
            }
            cx.device.matmul(dweight.reborrow(), dlogits().transposed(), Matrix::new(x, rows, W), write);
            write = Write::Add;
        }
    }
}

impl<S: Shape, const W: usize, const VOCAB: usize> Head<S> for LmHead<W, VOCAB> {
    type Target = Tokens;
    const UNIT: &'static str = "nats";
    const CLASSES: usize = VOCAB;

    fn logits(
        device: &S::Device,
        params: View<S::Device, S::Compute>,
        x: View<S::Device, S::Compute>,
        logits: ViewMut<S::Device, f32>,
    ) {
        device.matmul_apart(logits, x, Matrix::new(params, VOCAB, W).transposed());
    }
}

/// `logits` (rows, classes) := `x` (rows, width) times the transpose of `weight` (classes, width).
fn logits_of<D: Device, E: Element>(
    device: &D,
    width: usize,
    weight: View<D, E>,
    x: View<D, E>,
    logits: ViewMut<D, E>,
) {
    let (rows, classes) = (x.len() / width, weight.len() / width);
    let weight = Matrix::new(weight, classes, width).transposed();
    device.matmul(logits, Matrix::new(x, rows, width), weight, Write::Set);
}
