//! Heads: the ways in which one attention differs from another. Never computes.

use zero_plan::Message;

use super::attention::Attention;
use super::cost::product;
use crate::device::Rotary;

/// The heads of an [`Attention`].
pub trait Heads: 'static {
    /// Heads of queries.
    const HEADS: usize;
    /// Heads of keys and values, a divisor of `HEADS`: equally many consecutive heads share each.
    const KEY_HEADS: usize = Self::HEADS;
    /// Features of a head.
    const HEAD_DIM: usize;
    /// The most tokens that a token sees, itself included: `sliding_window` of Hugging Face. By default it sees all
    /// tokens before it.
    const WINDOW: Option<usize> = None;
    /// Which projections have a bias.
    const BIAS: Bias = Bias::None;
    /// How queries and keys are normed, before rotation and attention.
    const NORM: QueryKeyNorm = QueryKeyNorm::None;
    /// How queries and keys are rotated by their positions, if at all.
    const ROTARY: Option<Rotary> = None;
    /// The names of its tensors.
    const NAMES: Projections = Projections::SEPARATE;
    /// A fault of these constants that the attention itself does not detect, if there is one: see `Layer::FAULT`.
    const FAULT: Option<Message> = None;
}

/// Which projections of an attention have a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    /// None.
    None,
    /// The projections of queries, keys and values.
    Inputs,
    /// These projections and the output projection.
    All,
}

/// How an attention norms queries and keys, by their root mean square.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueryKeyNorm {
    /// Not at all.
    None,
    /// Each head, by one weight (HEAD_DIM) for queries and one for keys, as Qwen 3 does. The number is added to the mean
    /// square.
    EachHead(f32),
    /// All heads of a token together, by weights (HEADS HEAD_DIM) and (KEY_HEADS HEAD_DIM), as OLMo 2 and 3 do. The number is
    /// added to the mean square.
    Whole(f32),
}

/// The names of the tensors of an attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Projections {
    /// Queries, keys and values.
    pub inputs: InputNames,
    /// The output projection.
    pub out: &'static str,
    /// The norm of queries.
    pub query_norm: &'static str,
    /// The norm of keys.
    pub key_norm: &'static str,
}

/// Whether the projections to queries, keys and values have a tensor each. Their rows lie one after another either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputNames {
    /// Each its own.
    Separate([&'static str; 3]),
    /// One for all.
    Fused(&'static str),
}

impl Projections {
    /// `q_proj`, `k_proj`, `v_proj`, `o_proj`, `q_norm` and `k_norm`, as in Llama, Qwen and OLMo.
    pub const SEPARATE: Self = Self {
        inputs: InputNames::Separate(["q_proj", "k_proj", "v_proj"]),
        out: "o_proj",
        query_norm: "q_norm",
        key_norm: "k_norm",
    };

    /// One tensor for queries, keys and values, and one for the output projection: `c_attn` and `c_proj` in GPT-2.
    pub const fn fused(inputs: &'static str, out: &'static str) -> Self {
        Self { inputs: InputNames::Fused(inputs), out, ..Self::SEPARATE }
    }
}

/// Causal self-attention in HEADS heads of W / HEADS features each, with biases: its tensors are `qkv` and `out`.
pub type CausalSelfAttention<const W: usize, const HEADS: usize> = Attention<W, EqualHeads<W, HEADS>>;

/// The heads of [`CausalSelfAttention`].
pub struct EqualHeads<const W: usize, const HEADS: usize>;

impl<const W: usize, const HEADS: usize> Heads for EqualHeads<W, HEADS> {
    const HEADS: usize = HEADS;
    const HEAD_DIM: usize = match W.checked_div(HEADS) {
        Some(width) => width,
        None => 0,
    };
    const BIAS: Bias = Bias::All;
    const NAMES: Projections = Projections::fused("qkv", "out");
    const FAULT: Option<Message> = indivisible(W, HEADS);
}

/// The fault of a width that is not a multiple of the number of heads.
const fn indivisible(width: usize, heads: usize) -> Option<Message> {
    if heads == 0 || width.is_multiple_of(heads) {
        return None;
    }
    let message = Message::new().text("[Z0203] the width of CausalSelfAttention is ").number(width);
    let message = message.text(", which is not a multiple of its ").number(heads);
    Some(message.text(" heads\n  fix: choose a number of heads that divides it"))
}

/// The fault of heads that can have at most `most` features, if there is one.
pub(super) const fn fault<H: Heads>(most: usize) -> Option<Message> {
    let (heads, key_heads, head_dim) = (H::HEADS, H::KEY_HEADS, H::HEAD_DIM);
    if H::FAULT.is_some() {
        return H::FAULT;
    }
    if !heads.is_multiple_of(key_heads) {
        let message = Message::new().text("[Z0203] Attention has ").number(heads).text(" heads, which cannot ");
        let message = message.text("share ").number(key_heads).text(" heads of keys and values equally");
        return Some(message.text("\n  fix: make `KEY_HEADS` a divisor of `HEADS`"));
    }
    if head_dim > most {
        let message = Message::new().text("[Z0203] a head of Attention has ").number(head_dim);
        let message = message.text(" features, and can have ").number(most).text(" at most\n  fix: share them among ");
        return Some(message.number(product(&[heads, head_dim]).div_ceil(most)).text(" heads or more"));
    }
    if let Some(0) = H::WINDOW {
        let message =
            Message::new().text("[Z0226] the window of Attention is 0 tokens, but a token sees at least itself");
        return Some(message.text("\n  fix: make `WINDOW` 1 or more, or `None` to see all tokens before"));
    }
    if let Some(rotary) = &H::ROTARY {
        return unturnable(rotary, head_dim);
    }
    None
}

/// The fault of rotary positions that cannot rotate heads.
const fn unturnable(rotary: &Rotary, head_dim: usize) -> Option<Message> {
    if !head_dim.is_multiple_of(2) {
        let message = Message::new().text("[Z0225] a head of Attention has ").number(head_dim);
        let message = message.text(" features, but rotary positions rotate pairs of them");
        return Some(message.text("\n  fix: make `HEAD_DIM` even, or `ROTARY` `None`"));
    }
    match rotary.flaw() {
        Some(flaw) => {
            let message =
                Message::new().text("[Z0227] the rotary positions of Attention have no frequencies: ").text(flaw);
            Some(message.text("\n  fix: take the numbers of `ROTARY` from the configuration of a published model"))
        }
        None => None,
    }
}
