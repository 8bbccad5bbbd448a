//! Tests of what layers say of their sizes. What they compute is checked where the layers are public.

use super::size::{EXP, SOFTMAX};
use super::*;
use crate::device::Cpu;

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

type Attention = Residual<(LayerNorm<HIDDEN>, CausalSelfAttention<HIDDEN, HEADS>)>;
type Mlp = Residual<(LayerNorm<HIDDEN>, Linear<HIDDEN, { 4 * HIDDEN }>, Gelu, Linear<{ 4 * HIDDEN }, HIDDEN>)>;
type Block = (Attention, Mlp);

fn operations<X: Activation, L: Layer<Small, X>>() -> usize {
    L::OPERATIONS
}

/// The products of a block's forward take the published operations (zero-bubble paper, arXiv 2401.10241, Table 1). The
/// rest grows with the elements alone.
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
    assert_eq!(operations::<Features<HIDDEN>, Block>(), products + biases + softmax + norms + gelu + residuals);
}

#[test]
fn operations_of_both_ends() {
    let tokens = Small::TOKENS;
    assert_eq!(operations::<Tokens, Embedding<100, 7, 8>>(), tokens * 8);
    assert_eq!(operations::<Features<8>, LmHead<8, 100>>(), 2 * tokens * 8 * 100 + tokens * 100 * SOFTMAX);
}

/// A layer that says nothing of its operations.
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
