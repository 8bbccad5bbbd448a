//! Causal self-attention with its projections. Never keeps a (length, length) matrix.

use std::marker::PhantomData;

use zero_plan::Message;

use super::cost::{attending, bytes, empty, matrix, product, sum};
use super::heads::{Bias, Heads, InputNames, QueryKeyNorm, fault};
use super::linear::{LinearMap, initial};
use super::{Backward, Context, Entry, Features, Forward, Grads, Init, Layer, OrthogonalCost, Shape, Tensors};
use crate::checked::either;
use crate::device::{AttentionShape, Device, Element, Kernels, Matrix, Strided, StridedMut, Then};
use crate::view::{View, ViewMut};

/// (tokens, W) to (tokens, W): a linear map to queries, keys and values; a norm of queries and keys, and their rotation
/// by positions, if `H` has them; attention of each token to itself and earlier tokens; and a linear map, the output
/// projection.
///
/// Its flat buffer has the weights (HEADS HEAD_DIM, W) of queries and (KEY_HEADS HEAD_DIM, W) of keys and of values,
/// then their biases; the weight (W, HEADS HEAD_DIM) of the output projection, then its bias; and the weights of the
/// norms.
pub struct Attention<const W: usize, H>(PhantomData<H>);

/// A norm of queries and keys, each in equal parts.
struct Norm {
    epsilon: f32,
    query_parts: usize,
    key_parts: usize,
}

impl<const W: usize, H: Heads> Attention<W, H> {
    const QUERIES: usize = product(&[H::HEADS, H::HEAD_DIM]);
    const KEYS: usize = product(&[H::KEY_HEADS, H::HEAD_DIM]);
    /// Queries, keys and values of a token.
    const ROW: usize = sum(&[Self::QUERIES, Self::KEYS, Self::KEYS]);
    const INPUTS: LinearMap = LinearMap { input: W, output: Self::ROW, bias: !matches!(H::BIAS, Bias::None) };
    const OUT: LinearMap = LinearMap { input: Self::QUERIES, output: W, bias: matches!(H::BIAS, Bias::All) };
    const NORM: Option<Norm> = match H::NORM {
        QueryKeyNorm::None => None,
        QueryKeyNorm::EachHead(epsilon) => Some(Norm { epsilon, query_parts: H::HEADS, key_parts: H::KEY_HEADS }),
        QueryKeyNorm::Whole(epsilon) => Some(Norm { epsilon, query_parts: 1, key_parts: 1 }),
    };
    /// Weights of the norms of queries and of keys.
    const GAINS: [usize; 2] = match H::NORM {
        QueryKeyNorm::None => [0; 2],
        QueryKeyNorm::EachHead(_) => [H::HEAD_DIM; 2],
        QueryKeyNorm::Whole(_) => [Self::QUERIES, Self::KEYS],
    };
    /// Elements of a token that are normed: its queries and keys.
    const NORMED: usize = if Self::NORM.is_some() { sum(&[Self::QUERIES, Self::KEYS]) } else { 0 };
    /// Parts in which the queries and the keys of a token are normed.
    const PARTS: [usize; 2] = match Self::NORM {
        Some(Norm { query_parts, key_parts, .. }) => [query_parts, key_parts],
        None => [0; 2],
    };
    /// Cosines and sines of a position.
    const ANGLES: usize = if H::ROTARY.is_some() { H::HEAD_DIM } else { 0 };

    /// The most keys that a token attends to.
    const fn seen(length: usize) -> usize {
        match H::WINDOW {
            Some(window) if window < length => window,
            _ => length,
        }
    }

    fn shape<D>(cx: &Context<D>) -> AttentionShape {
        AttentionShape {
            sequences: cx.sequences,
            length: cx.length,
            before: 0,
            heads: H::HEADS,
            key_heads: H::KEY_HEADS,
            head_dim: H::HEAD_DIM,
            window: H::WINDOW,
        }
    }

    /// Computes part of the output of [`Self::INPUTS`]: `count` of the columns of queries, keys and values, from `first` on.
    fn project<D: Device, E: Element>(
        cx: &Context<D>,
        params: View<D, E>,
        [first, count]: [usize; 2],
        x: View<D, E>,
        y: ViewMut<D, E>,
    ) {
        let (weight, bias) = params.split_at(Self::ROW * W);
        let bias = Self::INPUTS.bias.then(|| bias.part(first, count));
        cx.linear(y, x, Matrix::new(weight.part(first * W, count * W), count, W), bias, Then::Nothing);
    }

    /// Norms the queries and keys of `qkv` into `normed`, if `H` has a norm. `inverse` keeps the scale of each part:
    /// those of all queries, then those of all keys.
    fn norm<D: Device, E: Element>(
        cx: &Context<D>,
        gains: View<D, E>,
        qkv: View<D, E>,
        normed: ViewMut<D, E>,
        inverse: ViewMut<D, f32>,
    ) {
        let Some(Norm { epsilon, query_parts, key_parts }) = Self::NORM else { return };
        let (query_gain, key_gain) = gains.split_at(Self::GAINS[0]);
        let (queries, mut normed) = (Strided::new(qkv, Self::ROW), StridedMut::new(normed, Self::NORMED));
        let (of_queries, of_keys) = inverse.split_at(cx.tokens() * query_parts);
        cx.device.rms_norm_heads(queries, query_parts, query_gain, normed.reborrow(), of_queries, epsilon);
        let keys = queries.after(Self::QUERIES);
        cx.device.rms_norm_heads(keys, key_parts, key_gain, normed.after(Self::QUERIES), of_keys, epsilon);
    }

    /// Turns the gradients in `dqkv` of the output of [`Self::norm`] into those of its input.
    fn norm_backward<D: Device, E: Element>(
        cx: &Context<D>,
        gains: View<D, E>,
        grads: Grads<D>,
        qkv: View<D, E>,
        dqkv: ViewMut<D, E>,
        inverse: View<D, f32>,
    ) {
        let Some(Norm { query_parts, key_parts, .. }) = Self::NORM else { return };
        let (query_gain, key_gain) = gains.split_at(Self::GAINS[0]);
        let (grads, write) = grads.into_parts();
        let (dquery_gain, dkey_gain) = grads.split_at(Self::GAINS[0]);
        let (queries, mut dqueries) = (Strided::new(qkv, Self::ROW), StridedMut::new(dqkv, Self::ROW));
        let (of_queries, of_keys) = inverse.split_at(cx.tokens() * query_parts);
        let to = dqueries.reborrow();
        cx.device.rms_norm_heads_backward(queries, query_parts, query_gain, of_queries, to, dquery_gain, write);
        let (keys, dkeys) = (queries.after(Self::QUERIES), dqueries.after(Self::QUERIES));
        cx.device.rms_norm_heads_backward(keys, key_parts, key_gain, of_keys, dkeys, dkey_gain, write);
    }

    /// Queries and keys as attention uses them, and values. Queries and keys come from `normed` if there is a norm, and
    /// from `qkv` otherwise.
    fn parts<'a, D: Device, E: Element>(
        shape: AttentionShape,
        qkv: View<'a, D, E>,
        normed: View<'a, D, E>,
    ) -> [Strided<'a, D, E>; 3] {
        let [queries, keys, values] = shape.parts(qkv);
        if Self::NORM.is_none() {
            return [queries, keys, values];
        }
        let queries = Strided::new(normed, Self::NORMED);
        [queries, queries.after(Self::QUERIES), values]
    }
}

impl<S: Shape, const W: usize, H: Heads> Layer<S, Features<W>> for Attention<W, H> {
    type Output = Features<W>;
    const PARAMS: usize = sum(&[Self::INPUTS.params(), Self::OUT.params(), Self::GAINS[0], Self::GAINS[1]]);
    const FAULT: Option<Message> = either(
        empty(
            "Attention",
            &[("width", W), ("heads", H::HEADS), ("key heads", H::KEY_HEADS), ("width of a head", H::HEAD_DIM)],
        ),
        fault::<H>(S::Device::HEAD_DIM_MAX),
    );
    // Queries, keys and values (tokens, ROW); the output of attention (tokens, QUERIES); log-sum-exp (tokens, HEADS);
    // normed queries and keys (tokens, NORMED), and their scales; cosines and sines (LENGTH, HEAD_DIM).
    const SAVED: usize = sum(&[
        bytes::<S::Compute>(product(&[S::TOKENS, Self::ROW])),
        bytes::<S::Compute>(product(&[S::TOKENS, Self::QUERIES])),
        bytes::<f32>(product(&[S::TOKENS, H::HEADS])),
        bytes::<S::Compute>(product(&[S::TOKENS, Self::NORMED])),
        bytes::<f32>(product(&[S::TOKENS, sum(&Self::PARTS)])),
        bytes::<f32>(product(&[S::LENGTH, Self::ANGLES])),
    ]);
    // Backward: gradients of the output of attention (tokens, QUERIES), and of queries, keys and values (tokens, ROW).
    const WORKSPACE: usize = sum(&[
        bytes::<S::Compute>(product(&[S::TOKENS, Self::QUERIES])),
        bytes::<S::Compute>(product(&[S::TOKENS, Self::ROW])),
    ]);
    // The projections to queries, to keys and to values, and the output projection.
    const MATRICES: OrthogonalCost = matrix::<S::Compute>([Self::QUERIES, W])
        .and(matrix::<S::Compute>([Self::KEYS, W]))
        .and(matrix::<S::Compute>([Self::KEYS, W]))
        .and(matrix::<S::Compute>([W, Self::QUERIES]));
    // Keys as attention uses them (LENGTH, KEYS), then values (LENGTH, KEYS). A window does not shorten them.
    const CACHE: usize = product(&[2, bytes::<S::Compute>(product(&[S::LENGTH, Self::KEYS]))]);
    // The projections; attention itself; 4 for each element that is normed, as in an RMS norm, and 3 for each that is
    // rotated.
    const OPERATIONS: usize = sum(&[
        product(&[2, S::TOKENS, sum(&[Self::INPUTS.params(), Self::OUT.params()])]),
        <Self as Layer<S, Features<W>>>::ATTENDING,
        product(&[4, S::TOKENS, Self::NORMED]),
        product(&[3, S::TOKENS, sum(&[H::HEADS, H::KEY_HEADS]), Self::ANGLES]),
    ]);
    const ATTENDING: usize = attending(S::TOKENS, Self::seen(S::LENGTH), H::HEADS, H::HEAD_DIM);

    fn tensors(out: &mut Tensors) {
        let rows = [Self::QUERIES, Self::KEYS, Self::KEYS];
        match H::NAMES.inputs {
            InputNames::Fused(name) => Self::INPUTS.tensors_of(name, &rows, out),
            InputNames::Separate(names) => {
                let parts = names.into_iter().zip(rows);
                for (name, rows) in parts.clone() {
                    out.scope(name, |out| out.hidden("weight", &[rows], W, initial(W)));
                }
                for (name, rows) in parts.filter(|_| Self::INPUTS.bias) {
                    out.scope(name, |out| out.add("bias", &[rows], Init::Zeros));
                }
            }
        }
        Self::OUT.tensors_of(H::NAMES.out, &[W], out);
        let norms = [H::NAMES.query_norm, H::NAMES.key_norm].into_iter().zip(Self::GAINS);
        for (name, width) in norms.filter(|_| Self::NORM.is_some()) {
            out.scope(name, |out| out.add("weight", &[width], Init::Ones));
        }
    }

    fn forward(cx: &Context<S::Device>, pass: Forward<S, Features<W>>) {
        <Self as Layer<S, Features<W>>>::forward_then(cx, pass, Then::Nothing);
    }

    fn forward_then(cx: &Context<S::Device>, pass: Forward<S, Features<W>>, then: Then<S::Device, S::Compute>) {
        let (tokens, shape) = (cx.tokens(), Self::shape(cx));
        let (params_in, rest) = pass.params.split_at(Self::INPUTS.params());
        let (params_out, gains) = rest.split_at(Self::OUT.params());
        let (mut qkv, rest) = pass.saved.take::<S::Compute>(tokens * Self::ROW);
        let (mut mixed, rest) = rest.take::<S::Compute>(tokens * Self::QUERIES);
        let (lse, rest) = rest.take::<f32>(tokens * H::HEADS);
        let (mut normed, rest) = rest.take::<S::Compute>(tokens * Self::NORMED);
        let (inverse, rest) = rest.take::<f32>(tokens * Self::PARTS.iter().sum::<usize>());
        Self::INPUTS.forward(cx, params_in, pass.x, qkv.reborrow(), Then::Nothing);
        Self::norm(cx, gains, qkv.as_view(), normed.reborrow(), inverse);
        if let Some(rotary) = &H::ROTARY {
            let mut table = rest.take::<f32>(cx.length * H::HEAD_DIM).0;
            cx.device.rotary_table(rotary, 0, H::HEAD_DIM, table.reborrow());
            let turned = match Self::NORM {
                Some(_) => StridedMut::new(normed.reborrow(), Self::NORMED),
                None => StridedMut::new(qkv.reborrow(), Self::ROW),
            };
            cx.device.rotate(turned, H::HEADS + H::KEY_HEADS, table.as_view(), cx.length, false);
        }
        let [queries, keys, values] = Self::parts(shape, qkv.as_view(), normed.as_view());
        cx.device.attention(shape, queries, keys, values, mixed.reborrow(), lse);
        Self::OUT.forward(cx, params_out, mixed.as_view(), pass.y, then);
    }

    fn decode(cx: &Context<S::Device>, mut pass: Forward<S, Features<W>>, mut cache: ViewMut<S::Device, u8>) {
        let tokens = cx.tokens();
        let (params_in, rest) = pass.params.split_at(Self::INPUTS.params());
        let (params_out, gains) = rest.split_at(Self::OUT.params());
        let (projected, rest) = pass.saved.take::<S::Compute>(tokens * Self::ROW);
        let (mut mixed, rest) = rest.take::<S::Compute>(tokens * Self::QUERIES);
        let (mut lse, rest) = rest.take::<f32>(tokens * H::HEADS);
        let (normed, rest) = rest.take::<S::Compute>(tokens * Self::NORMED);
        let (inverse, mut rest) = rest.take::<f32>(tokens * Self::PARTS.iter().sum::<usize>());
        let (mut queries, keys_and_values) = projected.split_at(tokens * Self::QUERIES);
        let (mut keys, mut values) = keys_and_values.split_at(tokens * Self::KEYS);
        Self::project(cx, params_in, [0, Self::QUERIES], pass.x, queries.reborrow());
        Self::project(cx, params_in, [Self::QUERIES, Self::KEYS], pass.x, keys.reborrow());
        Self::project(cx, params_in, [Self::QUERIES + Self::KEYS, Self::KEYS], pass.x, values.reborrow());
        if let Some(Norm { epsilon, query_parts, key_parts }) = Self::NORM {
            let (query_gain, key_gain) = gains.split_at(Self::GAINS[0]);
            let (of_queries, of_keys) = inverse.split_at(tokens * query_parts);
            let (mut normed_queries, mut normed_keys) = normed.split_at(tokens * Self::QUERIES);
            let (from, to) = (queries.as_view(), normed_queries.reborrow());
            let (from, to) = (Strided::new(from, Self::QUERIES), StridedMut::new(to, Self::QUERIES));
            cx.device.rms_norm_heads(from, query_parts, query_gain, to, of_queries, epsilon);
            let (from, to) = (keys.as_view(), normed_keys.reborrow());
            let (from, to) = (Strided::new(from, Self::KEYS), StridedMut::new(to, Self::KEYS));
            cx.device.rms_norm_heads(from, key_parts, key_gain, to, of_keys, epsilon);
            (queries, keys) = (normed_queries, normed_keys);
        }
        for (row, earlier) in cx.decoded() {
            let [mut queries, mut keys, values] =
                [(&mut queries, Self::QUERIES), (&mut keys, Self::KEYS), (&mut values, Self::KEYS)]
                    .map(|(all, width)| all.reborrow().part(row * width, cx.length * width));
            if let Some(rotary) = &H::ROTARY {
                let mut table = rest.reborrow().take::<f32>(cx.length * H::HEAD_DIM).0;
                cx.device.rotary_table(rotary, earlier.tokens, H::HEAD_DIM, table.reborrow());
                let turned = StridedMut::new(queries.reborrow(), Self::QUERIES);
                cx.device.rotate(turned, H::HEADS, table.as_view(), cx.length, false);
                let turned = StridedMut::new(keys.reborrow(), Self::KEYS);
                cx.device.rotate(turned, H::KEY_HEADS, table.as_view(), cx.length, false);
            }
            let bytes = <Self as Layer<S, Features<W>>>::CACHE;
            let (mut cached_keys, rest) =
                cache.reborrow().part(earlier.slot * bytes, bytes).take::<S::Compute>(S::LENGTH * Self::KEYS);
            let mut cached_values = rest.take::<S::Compute>(S::LENGTH * Self::KEYS).0;
            let seen = earlier.tokens + cx.length;
            let [keys, values] = [(&mut cached_keys, keys), (&mut cached_values, values)].map(|(cached, new)| {
                let to = cached.reborrow().part(earlier.tokens * Self::KEYS, cx.length * Self::KEYS);
                cx.device.copy(to, new.as_view());
                Strided::new(cached.as_view().part(0, seen * Self::KEYS), Self::KEYS)
            });
            let shape = AttentionShape { sequences: 1, before: earlier.tokens, ..Self::shape(cx) };
            let queries = Strided::new(queries.as_view(), Self::QUERIES);
            let mixed = mixed.reborrow().part(row * Self::QUERIES, cx.length * Self::QUERIES);
            let lse = lse.reborrow().part(row * H::HEADS, cx.length * H::HEADS);
            cx.device.attention(shape, queries, keys, values, mixed, lse);
        }
        Self::OUT.forward(cx, params_out, mixed.as_view(), pass.y.reborrow(), Then::Nothing);
    }

    fn backward(cx: &Context<S::Device>, pass: Backward<S, Features<W>>) {
        let (tokens, shape) = (cx.tokens(), Self::shape(cx));
        let (params_in, rest) = pass.params.split_at(Self::INPUTS.params());
        let (params_out, gains) = rest.split_at(Self::OUT.params());
        let (grads_in, rest) = pass.grads.split_at(Self::INPUTS.params());
        let (grads_out, grads_norm) = rest.split_at(Self::OUT.params());
        let (qkv, rest) = pass.saved.take::<S::Compute>(tokens * Self::ROW);
        let (mixed, rest) = rest.take::<S::Compute>(tokens * Self::QUERIES);
        let (lse, rest) = rest.take::<f32>(tokens * H::HEADS);
        let (normed, rest) = rest.take::<S::Compute>(tokens * Self::NORMED);
        let (inverse, rest) = rest.take::<f32>(tokens * Self::PARTS.iter().sum::<usize>());
        let (mut dmixed, work) = pass.work.take::<S::Compute>(tokens * Self::QUERIES);
        let mut dqkv = work.take::<S::Compute>(tokens * Self::ROW).0;
        Self::OUT.backward(cx, params_out, grads_out, mixed, pass.dy, Some(dmixed.reborrow()));
        let [queries, keys, values] = Self::parts(shape, qkv, normed);
        let (dmixed, to) = (dmixed.as_view(), dqkv.reborrow());
        cx.device.attention_backward(shape, queries, keys, values, mixed, lse, dmixed, to);
        if H::ROTARY.is_some() {
            let (table, to) =
                (rest.take::<f32>(cx.length * H::HEAD_DIM).0, StridedMut::new(dqkv.reborrow(), Self::ROW));
            cx.device.rotate(to, H::HEADS + H::KEY_HEADS, table, cx.length, true);
        }
        Self::norm_backward(cx, gains, grads_norm, qkv, dqkv.reborrow(), inverse);
        Self::INPUTS.backward(cx, params_in, grads_in, pass.x, dqkv.as_view(), pass.dx);
    }
}

impl<const W: usize, H: Heads> Entry for Attention<W, H> {
    type Input = Features<W>;
}
