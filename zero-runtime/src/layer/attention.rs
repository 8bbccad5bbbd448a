//! Causal self-attention with its projections. Never keeps a (length, length) matrix.

use super::size::{SOFTMAX, product, require_elements, sum};
use super::{Backward, Context, Entry, Features, Forward, Layer, Shape, Tensors, linear, require};
use crate::device::{AttentionShape, Device, HEAD_DIM_MAX, Then};

/// (tokens, W) to (tokens, W): a linear map to queries, keys and values (3 W), attention of each token to those before it
/// in HEADS heads of W / HEADS features, and a linear map (W).
pub struct CausalSelfAttention<const W: usize, const HEADS: usize>;

impl<const W: usize, const HEADS: usize> CausalSelfAttention<W, HEADS> {
    const HEAD: usize = {
        require(
            HEADS > 0 && W.is_multiple_of(HEADS),
            "[Z0203] the width of CausalSelfAttention is not a multiple of its heads: choose heads that divide it",
        );
        require(
            W / HEADS <= HEAD_DIM_MAX,
            "[Z0203] a head of CausalSelfAttention has more than 1024 features: add heads",
        );
        W / HEADS
    };
    const QKV_PARAMS: usize = linear::params(W, product(&[3, W]));

    fn shape<D>(cx: &Context<D>) -> AttentionShape {
        AttentionShape { sequences: cx.sequences, length: cx.length, heads: HEADS, head_dim: Self::HEAD }
    }
}

impl<S: Shape, const W: usize, const HEADS: usize> Layer<S, Features<W>> for CausalSelfAttention<W, HEADS> {
    type Output = Features<W>;
    const PARAMS: usize = {
        // Evaluated with the sizes of the model, and not only where the layer runs, so that a fault is one of its field.
        let _heads_divide = Self::HEAD;
        require_elements("CausalSelfAttention", "width", W);
        sum(&[Self::QKV_PARAMS, linear::params(W, W)])
    };
    // qkv (tokens, 3 W), what attention gives (tokens, W), log-sum-exp (tokens, HEADS)
    const SAVED: usize = product(&[S::TOKENS, sum(&[product(&[4, W]), HEADS])]);
    // Backward: gradients of what attention gives (tokens, W) and of qkv (tokens, 3 W).
    const WORKSPACE: usize = product(&[S::TOKENS, 4, W]);
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

    fn forward(cx: &Context<S::Device>, pass: Forward<S::Device>) {
        <Self as Layer<S, Features<W>>>::forward_then(cx, pass, Then::Nothing);
    }

    fn forward_then(cx: &Context<S::Device>, pass: Forward<S::Device>, then: Then<S::Device>) {
        let tokens = cx.tokens();
        let (params_qkv, params_out) = pass.params.split_at(Self::QKV_PARAMS);
        let (mut qkv, rest) = pass.saved.split_at(tokens * 3 * W);
        let (mut mixed, lse) = rest.split_at(tokens * W);
        let lse = lse.split_at(tokens * HEADS).0;
        linear::forward(cx, [W, 3 * W], params_qkv, pass.x, qkv.reborrow(), Then::Nothing);
        cx.device.attention(Self::shape(cx), qkv.as_view(), mixed.reborrow(), lse);
        linear::forward(cx, [W, W], params_out, mixed.as_view(), pass.y, then);
    }

    fn backward(cx: &Context<S::Device>, pass: Backward<S::Device>) {
        let tokens = cx.tokens();
        let (params_qkv, params_out) = pass.params.split_at(Self::QKV_PARAMS);
        let (grads_qkv, grads_out) = pass.grads.split_at(Self::QKV_PARAMS);
        let (qkv, rest) = pass.saved.split_at(tokens * 3 * W);
        let (mixed, lse) = rest.split_at(tokens * W);
        let lse = lse.split_at(tokens * HEADS).0;
        let (mut dmixed, work) = pass.work.split_at(tokens * W);
        let mut dqkv = work.split_at(tokens * 3 * W).0;
        linear::backward(cx, [W, W], params_out, grads_out, mixed, pass.dy, Some(dmixed.reborrow()));
        cx.device.attention_backward(Self::shape(cx), qkv, mixed, lse, dmixed.as_view(), dqkv.reborrow());
        linear::backward(cx, [W, 3 * W], params_qkv, grads_qkv, pass.x, dqkv.as_view(), pass.dx);
    }
}

impl<const W: usize, const HEADS: usize> Entry for CausalSelfAttention<W, HEADS> {
    type Input = Features<W>;
}
