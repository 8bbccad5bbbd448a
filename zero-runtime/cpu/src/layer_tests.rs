//! Tests of the sizes that layers declare. Their results are tested where the layers are public.

use zero_core::device::{Rotary, Scaling};
use zero_core::layer::cost::{self, EXP, SOFTMAX};
use zero_core::layer::*;

use crate::Cpu;

const HIDDEN: usize = 24;
const HEADS: usize = 3;

/// b = 5 sequences of s = 7 tokens.
struct Small;

impl Shape for Small {
    type Device = Cpu;
    type Compute = f32;
    const SEQUENCES: usize = 5;
    const LENGTH: usize = 7;
}

type Mixer = Residual<(LayerNorm<HIDDEN>, CausalSelfAttention<HIDDEN, HEADS>)>;
type Mlp = Residual<(LayerNorm<HIDDEN>, Linear<HIDDEN, { 4 * HIDDEN }>, Gelu, Linear<{ 4 * HIDDEN }, HIDDEN>)>;
type Block = (Mixer, Mlp);

fn operations<X: Activation, L: Layer<Small, X>>() -> usize {
    L::OPERATIONS
}

fn attending<X: Activation, L: Layer<Small, X>>() -> usize {
    L::ATTENDING
}

/// The products of a block's forward need the published number of operations (zero-bubble paper, arXiv 2401.10241,
/// Table 1). The other operations grow with the number of elements alone.
#[test]
fn operations_of_a_transformer_block_are_the_published_ones() {
    let (b, s, h) = (Small::SEQUENCES, Small::LENGTH, HIDDEN);
    let products = b * s * h * (24 * h + 4 * s);
    assert_eq!(products, 507_360);
    let biases = 2 * b * s * (3 * h + h + 4 * h + h);
    let softmax = b * s * s * HEADS * SOFTMAX;
    let norms = 2 * b * s * h * 8;
    let gelu = b * s * 4 * h * (EXP + 8);
    let residuals = 2 * b * s * h;
    assert_eq!(attending::<Features<HIDDEN>, Block>(), 4 * b * s * s * h + softmax);
    assert_eq!(operations::<Features<HIDDEN>, Block>(), products + biases + softmax + norms + gelu + residuals);
}

#[test]
fn operations_of_both_ends() {
    let tokens = Small::TOKENS;
    assert_eq!(operations::<Tokens, Embedding<100, 7, 8>>(), tokens * 8);
    assert_eq!(operations::<Features<8>, LmHead<8, 100>>(), 2 * tokens * 8 * 100 + tokens * 100 * SOFTMAX);
}

/// 32 sequences of 1024 tokens, in f32.
struct Long;

impl Shape for Long {
    type Device = Cpu;
    type Compute = f32;
    const SEQUENCES: usize = 32;
    const LENGTH: usize = 1024;
}

/// Rows of logits that a head has at one time, from that many tokens.
fn rows_of_logits<const VOCAB: usize>() -> usize {
    <LmHead<8, VOCAB> as Layer<Long, Features<8>>>::WORKSPACE / (VOCAB * size_of::<f32>())
}

#[test]
fn a_head_has_a_chunk_of_logits_at_one_time() {
    assert_eq!(rows_of_logits::<256>(), 1024);
    assert_eq!(rows_of_logits::<50_304>(), 64);
}

/// A layer that does not declare its operations.
struct Silent;

impl Layer<Small, Features<3>> for Silent {
    type Output = Features<3>;
    const PARAMS: usize = 11;
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;

    fn tensors(_: &mut Tensors) {}
    fn forward(_: &Context<Cpu>, _: Forward<Small, Features<3>>) {}
    fn backward(_: &Context<Cpu>, _: Backward<Small, Features<3>>) {}
}

#[test]
fn by_default_each_token_meets_each_parameter_once() {
    assert_eq!(operations::<Features<3>, Silent>(), 2 * 11 * 35);
    assert_eq!(operations::<Features<3>, (Silent, Silent)>(), 2 * 2 * 11 * 35);
}

/// Pairs of heads share keys; queries are wider than the input. It has every option except biases.
struct Everything;

impl Heads for Everything {
    const HEADS: usize = 6;
    const KEY_HEADS: usize = 3;
    const HEAD_DIM: usize = 10;
    const WINDOW: Option<usize> = Some(4);
    const NORM: QueryKeyNorm = QueryKeyNorm::EachHead(1e-6);
    const ROTARY: Option<Rotary> = Some(Rotary { base: 100.0, scaling: Scaling::None });
}

/// (tokens, 120) by (120, 24) and (tokens, 60) by (60, 24); 4 keys a token, not 7.
#[test]
fn operations_of_an_attention_are_those_that_it_does() {
    let tokens = Small::TOKENS;
    let projections = 2 * tokens * (120 + 60) * HIDDEN;
    let scores = 4 * tokens * 4 * 60 + tokens * 6 * 4 * SOFTMAX;
    let (norms, turns) = (4 * tokens * 90, 3 * tokens * 90);
    let found = operations::<Features<HIDDEN>, Attention<HIDDEN, Everything>>();
    assert_eq!(found, projections + scores + norms + turns);
    assert_eq!(attending::<Features<HIDDEN>, Attention<HIDDEN, Everything>>(), scores);
    assert_eq!(operations::<Features<3>, SwiGlu<3, 5>>(), 2 * tokens * 3 * 10 + tokens * 5 * (EXP + 4));
}

/// Only values that backward reads again are saved, each in whole lines of 64 bytes.
#[test]
fn an_attention_saves_what_it_reads_again() {
    let lines = |elements: usize| (4 * elements).next_multiple_of(64);
    let tokens = Small::TOKENS;
    let (rows, mixed, lse) = (lines(tokens * 120), lines(tokens * 60), lines(tokens * 6));
    let (normed, scales, table) = (lines(tokens * 90), lines(tokens * 9), lines(7 * 10));
    let saved = <Attention<HIDDEN, Everything> as Layer<Small, Features<HIDDEN>>>::SAVED;
    assert_eq!(saved, rows + mixed + lse + normed + scales + table);
    let saved = <CausalSelfAttention<HIDDEN, HEADS> as Layer<Small, Features<HIDDEN>>>::SAVED;
    assert_eq!(saved, lines(tokens * 3 * HIDDEN) + lines(tokens * HIDDEN) + lines(tokens * HEADS));
    assert_eq!(<SwiGlu<3, 5> as Layer<Small, Features<3>>>::SAVED, lines(tokens * 10));
}

/// The matrices of a layer that computes in f32, as it declares them, and as its tensors list them.
fn matrices<X: Activation, L: Layer<Small, X>>() -> (OrthogonalCost, Vec<[usize; 2]>) {
    let mut tensors = Tensors::default();
    L::tensors(&mut tensors);
    let list = tensors.into_list();
    let shapes = list.iter().flat_map(Tensor::hidden_matrices).map(|matrix| [matrix.rows, matrix.columns]).collect();
    (L::MATRICES, shapes)
}

fn of_shapes(shapes: &[[usize; 2]]) -> (OrthogonalCost, Vec<[usize; 2]>) {
    let all = shapes.iter().fold(OrthogonalCost::NONE, |all, &shape| all.and(cost::matrix::<f32>(shape)));
    (all, shapes.to_vec())
}

#[test]
fn matrices_of_hidden_layers_are_counted_each_by_itself() {
    let attention = [[60, 24], [30, 24], [30, 24], [24, 60]];
    assert_eq!(matrices::<Features<HIDDEN>, Attention<HIDDEN, Everything>>(), of_shapes(&attention));
    let fused = matrices::<Features<HIDDEN>, CausalSelfAttention<HIDDEN, HEADS>>();
    assert_eq!(fused, of_shapes(&[[HIDDEN, HIDDEN]; 4]));
    assert_eq!(matrices::<Features<3>, SwiGlu<3, 5>>(), of_shapes(&[[5, 3], [5, 3]]));
    let chain = matrices::<Features<3>, (Silent, RmsNorm<3>, Residual<Linear<3, 3>>, Silu, Linear<3, 7, false>)>();
    assert_eq!(chain, of_shapes(&[[3, 3], [7, 3]]));
    assert_eq!(matrices::<Tokens, Embedding<9, 8, 3>>(), of_shapes(&[]));
    assert_eq!(matrices::<Features<3>, LmHead<3, 9>>(), of_shapes(&[]));
}

/// The room is the largest of all matrices' rooms, the operations are the sum.
#[test]
fn matrices_take_turns_in_one_room() {
    let [small, large] = [[2, 3], [64, 64]].map(cost::matrix::<f32>);
    let operations = small.operations + large.operations;
    let both = OrthogonalCost { operations, ..large };
    assert_eq!([small.and(large), large.and(small)], [both; 2]);
    assert_eq!(OrthogonalCost::NONE.and(small), small);
    let operations = 5 * 3 * 2 * 64 * 64 * 64;
    assert_eq!(large, OrthogonalCost { room_bytes: 4 * 64 * 64 * 4 + 64, operations, operations_max: operations });
}
