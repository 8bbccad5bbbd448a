//! Embedding: token ids to features, with learned positions. Never gives a gradient to its input.

use super::size::{product, require_elements, sum};
use super::{Backward, Context, Entry, Features, Forward, Init, Layer, Shape, Tensors, Tokens, require};
use crate::device::Device;

/// (tokens) ids to (tokens, W): table (VOCAB, W) by id, plus positions (CONTEXT, W) by place in the sequence.
pub struct Embedding<const VOCAB: usize, const CONTEXT: usize, const W: usize>;

impl<S: Shape, const VOCAB: usize, const CONTEXT: usize, const W: usize> Layer<S, Tokens>
    for Embedding<VOCAB, CONTEXT, W>
{
    type Output = Features<W>;
    const PARAMS: usize = {
        require_elements("Embedding", "vocabulary", VOCAB);
        require_elements("Embedding", "context", CONTEXT);
        require_elements("Embedding", "width", W);
        require(
            S::LENGTH <= CONTEXT,
            "[Z0202] sequences are longer than the context of the embedding: raise CONTEXT or lower `length`",
        );
        product(&[sum(&[VOCAB, CONTEXT]), W])
    };
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;
    // A copy of one row and the addition of another: what is looked up is not multiplied.
    const OPERATIONS: usize = product(&[S::TOKENS, W]);

    fn tensors(out: &mut Tensors) {
        out.add("table", &[VOCAB, W], Init::Normal(0.02));
        out.add("positions", &[CONTEXT, W], Init::Normal(0.02));
    }

    fn forward(cx: &Context<S::Device>, pass: Forward<S::Device>) {
        let (table, positions) = pass.params.split_at(VOCAB * W);
        cx.device.embed(pass.x.ids(), table, positions, pass.y, cx.length);
    }

    fn backward(cx: &Context<S::Device>, pass: Backward<S::Device>) {
        let (grads, write) = pass.grads.into_parts();
        let (dtable, dpositions) = grads.split_at(VOCAB * W);
        cx.device.embed_backward(pass.x.ids(), pass.dy, dtable, dpositions, cx.length, write);
    }
}

impl<const VOCAB: usize, const CONTEXT: usize, const W: usize> Entry for Embedding<VOCAB, CONTEXT, W> {
    type Input = Tokens;
}
