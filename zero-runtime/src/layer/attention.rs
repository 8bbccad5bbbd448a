//! Causal self-attention with its projections. Never keeps a (length, length) matrix.

use zero_plan::message::Message;

use super::size::{SOFTMAX, bytes, either, empty, product, sum};
use super::{Backward, Context, Entry, Features, Forward, Layer, Shape, Tensors, linear};
use crate::device::{AttentionShape, Device, Matrix, Strided, Then};
use crate::view::ViewMut;

/// (tokens, W) to (tokens, W): a linear map to queries, keys and values (3 W), attention of each token to those before it
/// in HEADS heads of W / HEADS features, and a linear map (W).
pub struct CausalSelfAttention<const W: usize, const HEADS: usize>;

impl<const W: usize, const HEADS: usize> CausalSelfAttention<W, HEADS> {
    const HEAD: usize = match W.checked_div(HEADS) {
        Some(width) => width,
        None => 0,
    };
    const QKV_PARAMS: usize = linear::params(W, product(&[3, W]));

    fn shape<D>(cx: &Context<D>) -> AttentionShape {
        AttentionShape {
            sequences: cx.sequences,
            length: cx.length,
            before: cx.before,
            heads: HEADS,
            key_heads: HEADS,
            head_dim: Self::HEAD,
            window: None,
        }
    }
}

impl<S: Shape, const W: usize, const HEADS: usize> Layer<S, Features<W>> for CausalSelfAttention<W, HEADS> {
    type Output = Features<W>;
    const PARAMS: usize = sum(&[Self::QKV_PARAMS, linear::params(W, W)]);
    const FAULT: Option<Message> = either(
        empty("CausalSelfAttention", &[("width", W), ("heads", HEADS)]),
        indivisible(W, HEADS, S::Device::HEAD_DIM_MAX),
    );
    // qkv (tokens, 3 W), what attention gives (tokens, W), log-sum-exp (tokens, HEADS)
    const SAVED: usize = sum(&[
        bytes::<S::Compute>(product(&[S::TOKENS, 3, W])),
        bytes::<S::Compute>(product(&[S::TOKENS, W])),
        bytes::<f32>(product(&[S::TOKENS, HEADS])),
    ]);
    // Backward: gradients of what attention gives (tokens, W) and of qkv (tokens, 3 W).
    const WORKSPACE: usize =
        sum(&[bytes::<S::Compute>(product(&[S::TOKENS, W])), bytes::<S::Compute>(product(&[S::TOKENS, 3, W]))]);
    // Keys (LENGTH, W), then values (LENGTH, W).
    const CACHE: usize = product(&[2, bytes::<S::Compute>(product(&[S::LENGTH, W]))]);
    // The projections; queries by keys and scores by values, 2 LENGTH W a token each; the softmax of the scores. Not halved
    // for the scores that the causal mask hides: published counts are not either (Narayanan et al., 2021, appendix).
    const OPERATIONS: usize = sum(&[
        product(&[2, <Self as Layer<S, Features<W>>>::PARAMS, S::TOKENS]),
        product(&[4, S::TOKENS, S::LENGTH, W]),
        product(&[S::TOKENS, HEADS, S::LENGTH, SOFTMAX]),
    ]);

    fn tensors(out: &mut Tensors) {
        out.scope("qkv", |out| linear::tensors(W, 3 * W, out));
        out.scope("out", |out| linear::tensors(W, W, out));
    }

    fn forward(cx: &Context<S::Device>, pass: Forward<S, Features<W>>) {
        <Self as Layer<S, Features<W>>>::forward_then(cx, pass, Then::Nothing);
    }

    fn forward_then(cx: &Context<S::Device>, pass: Forward<S, Features<W>>, then: Then<S::Device, S::Compute>) {
        let tokens = cx.tokens();
        let (params_qkv, params_out) = pass.params.split_at(Self::QKV_PARAMS);
        let (mut qkv, rest) = pass.saved.take::<S::Compute>(tokens * 3 * W);
        let (mut mixed, rest) = rest.take::<S::Compute>(tokens * W);
        let lse = rest.take::<f32>(tokens * HEADS).0;
        linear::forward(cx, [W, 3 * W], params_qkv, pass.x, qkv.reborrow(), Then::Nothing);
        let shape = Self::shape(cx);
        let [q, k, v] = shape.parts(qkv.as_view());
        cx.device.attention(shape, q, k, v, mixed.reborrow(), lse);
        linear::forward(cx, [W, W], params_out, mixed.as_view(), pass.y, then);
    }

    fn decode(cx: &Context<S::Device>, pass: Forward<S, Features<W>>, cache: ViewMut<S::Device, u8>) {
        let (tokens, held) = (cx.tokens(), cx.before * W);
        let (params_qkv, params_out) = pass.params.split_at(Self::QKV_PARAMS);
        let (weight, bias) = params_qkv.split_at(3 * W * W);
        let (mut keys, rest) = cache.take::<S::Compute>(S::LENGTH * W);
        let mut values = rest.take::<S::Compute>(S::LENGTH * W).0;
        let (mut queries, rest) = pass.saved.take::<S::Compute>(tokens * W);
        let (mut mixed, rest) = rest.take::<S::Compute>(tokens * W);
        let lse = rest.take::<f32>(tokens * HEADS).0;
        // Keys and values go where they stay.
        let new = [&mut keys, &mut values].map(|cached| cached.reborrow().part(held, tokens * W));
        for (i, y) in [queries.reborrow()].into_iter().chain(new).enumerate() {
            let weight = Matrix::new(weight.part(i * W * W, W * W), W, W);
            cx.device.linear(y, pass.x, weight, Some(bias.part(i * W, W)), Then::Nothing);
        }
        let [k, v] =
            [keys.as_view(), values.as_view()].map(|cached| Strided::new(cached.part(0, held + tokens * W), W));
        cx.device.attention(Self::shape(cx), Strided::new(queries.as_view(), W), k, v, mixed.reborrow(), lse);
        linear::forward(cx, [W, W], params_out, mixed.as_view(), pass.y, Then::Nothing);
    }

    fn backward(cx: &Context<S::Device>, pass: Backward<S, Features<W>>) {
        let tokens = cx.tokens();
        let (params_qkv, params_out) = pass.params.split_at(Self::QKV_PARAMS);
        let (grads_qkv, grads_out) = pass.grads.split_at(Self::QKV_PARAMS);
        let (qkv, rest) = pass.saved.take::<S::Compute>(tokens * 3 * W);
        let (mixed, rest) = rest.take::<S::Compute>(tokens * W);
        let lse = rest.take::<f32>(tokens * HEADS).0;
        let (mut dmixed, work) = pass.work.take::<S::Compute>(tokens * W);
        let mut dqkv = work.take::<S::Compute>(tokens * 3 * W).0;
        linear::backward(cx, [W, W], params_out, grads_out, mixed, pass.dy, Some(dmixed.reborrow()));
        let shape = Self::shape(cx);
        let [q, k, v] = shape.parts(qkv);
        cx.device.attention_backward(shape, q, k, v, mixed, lse, dmixed.as_view(), dqkv.reborrow());
        linear::backward(cx, [W, 3 * W], params_qkv, grads_qkv, pass.x, dqkv.as_view(), pass.dx);
    }
}

impl<const W: usize, const HEADS: usize> Entry for CausalSelfAttention<W, HEADS> {
    type Input = Features<W>;
}

/// The fault of features that heads cannot share, or of which each would have more than `most`.
const fn indivisible(width: usize, heads: usize, most: usize) -> Option<Message> {
    let message = Message::new().text("[Z0203] the width of CausalSelfAttention is ").number(width);
    let message = message.text(", and its number of heads is ").number(heads);
    if heads > 0 && !width.is_multiple_of(heads) {
        let message = message.text(", which does not divide that");
        return Some(message.text("\n  fix: choose a number of heads that does"));
    }
    if heads > 0 && width / heads > most {
        let message = message.text(": ").number(width / heads).text(" features for each, and a head has at most ");
        let message = message.number(most);
        return Some(message.text("\n  fix: ").number(width.div_ceil(most)).text(" heads or more"));
    }
    None
}
