//! Embedding: token ids to features, with learned positions or without. Never gives a gradient to its input.

use zero_plan::{Message, Origin};

use super::cost::{empty, product, sum};
use super::{Backward, Context, Entry, Features, Forward, Init, Layer, Shape, Tensors, Tokens};
use crate::checked::either;
use crate::device::Kernels;
use crate::view::ViewMut;

/// (tokens) ids to (tokens, W): weight (VOCAB, W) by id, plus positions (CONTEXT, W) by place in the sequence.
pub struct Embedding<const VOCAB: usize, const CONTEXT: usize, const W: usize>;

impl<S: Shape, const VOCAB: usize, const CONTEXT: usize, const W: usize> Layer<S, Tokens>
    for Embedding<VOCAB, CONTEXT, W>
{
    type Output = Features<W>;
    const PARAMS: usize = product(&[sum(&[VOCAB, CONTEXT]), W]);
    const FAULT: Option<Message> = {
        let is_empty = empty("Embedding", &[("vocabulary", VOCAB), ("context", CONTEXT), ("width", W)]);
        if S::LENGTH > CONTEXT { either(is_empty, Some(too_short(CONTEXT, S::LENGTH, &S::ORIGIN))) } else { is_empty }
    };
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;
    // A copy of one row and the addition of another: a lookup multiplies nothing.
    const OPERATIONS: usize = product(&[S::TOKENS, W]);

    fn tensors(out: &mut Tensors) {
        out.embedding("weight", &[VOCAB, W], Init::Normal(0.02));
        out.embedding("positions", &[CONTEXT, W], Init::Normal(0.02));
    }

    fn forward(cx: &Context<S::Device>, pass: Forward<S, Tokens, Features<W>>) {
        let (table, positions) = pass.params.split_at(VOCAB * W);
        cx.device.embed(pass.x, table, Some(positions), pass.y, cx.length);
    }

    fn decode(cx: &Context<S::Device>, pass: Forward<S, Tokens, Features<W>>, _cache: ViewMut<S::Device, u8>) {
        let (table, positions) = pass.params.split_at(VOCAB * W);
        let mut y = pass.y;
        for (row, earlier) in cx.decoded() {
            let positions = positions.part(earlier.tokens * W, cx.length * W);
            let (x, y) = (pass.x.part(row, cx.length), y.reborrow().part(row * W, cx.length * W));
            cx.device.embed(x, table, Some(positions), y, cx.length);
        }
    }

    fn backward(cx: &Context<S::Device>, pass: Backward<S, Tokens, Features<W>>) {
        let (grads, write) = pass.grads.into_parts();
        let (dtable, dpositions) = grads.split_at(VOCAB * W);
        cx.device.embed_backward(pass.x, pass.dy, dtable, Some(dpositions), cx.length, write);
    }
}

impl<const VOCAB: usize, const CONTEXT: usize, const W: usize> Entry for Embedding<VOCAB, CONTEXT, W> {
    type Input = Tokens;
    const VOCABULARY: Option<usize> = Some(VOCAB);
}

/// (tokens) ids to (tokens, W): weight (VOCAB, W) by id. For models whose layers handle positions.
pub struct TokenEmbedding<const VOCAB: usize, const W: usize>;

impl<S: Shape, const VOCAB: usize, const W: usize> Layer<S, Tokens> for TokenEmbedding<VOCAB, W> {
    type Output = Features<W>;
    const PARAMS: usize = product(&[VOCAB, W]);
    const FAULT: Option<Message> = empty("TokenEmbedding", &[("vocabulary", VOCAB), ("width", W)]);
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;
    // A copy of one row.
    const OPERATIONS: usize = product(&[S::TOKENS, W]);

    fn tensors(out: &mut Tensors) {
        out.embedding("weight", &[VOCAB, W], Init::Normal(0.02));
    }

    fn forward(cx: &Context<S::Device>, pass: Forward<S, Tokens, Features<W>>) {
        cx.device.embed(pass.x, pass.params, None, pass.y, cx.length);
    }

    fn backward(cx: &Context<S::Device>, pass: Backward<S, Tokens, Features<W>>) {
        let (dweight, write) = pass.grads.into_parts();
        cx.device.embed_backward(pass.x, pass.dy, dweight, None, cx.length, write);
    }
}

impl<const VOCAB: usize, const W: usize> Entry for TokenEmbedding<VOCAB, W> {
    type Input = Tokens;
    const VOCABULARY: Option<usize> = Some(VOCAB);
}

/// The fault of a context that is shorter than a sequence.
const fn too_short(context: usize, length: usize, origin: &Origin) -> Message {
    let message =
        Message::new().text("[Z0202] sequences of ").number(length).text(" tokens, but the context of Embedding is ");
    let message = origin.tell_number(message.number(context), "batch.length", length);
    let message = origin.section(message.text("\n  fix: "), "batch");
    let message = origin.end(origin.key(message, "length").number(context));
    message.text(" or less, or a context of ").number(length)
}
