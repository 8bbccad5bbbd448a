//! Layers: all that there are. A layer is a type, never a value: it owns nothing.
//!
//! The heads of an [`Attention`] are a type, too:
//!
//! ```
//! use zero_runtime::prelude::*;
//!
//! /// Eight heads of 16 features, of which pairs share a head of keys and values.
//! struct Shared;
//! impl Heads for Shared {
//!     const HEADS: usize = 8;
//!     const KEY_HEADS: usize = 4;
//!     const HEAD_DIM: usize = 16;
//!     const ROTARY: Option<Rotary> = Some(Rotary { base: 10_000.0, scaling: Scaling::None });
//! }
//!
//! type Mixer = (RmsNorm<96>, Attention<96, Shared>);
//! ```

pub use zero_core::device::{Rotary, Scaling};
pub use zero_core::layer::{
    Attention, Bias, CausalSelfAttention, Chain, Classifier, E5, E6, Embedding, Epsilon, EqualHeads, Gated, GeGlu,
    Gelu, Heads, InputNames, LayerNorm, Linear, LmHead, MseHead, Nonlinear, Projections, QueryKeyNorm, Relu, Residual,
    RmsNorm, Silu, SwiGlu, TokenEmbedding,
};
