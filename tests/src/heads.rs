//! Heads: attentions of every kind, on shapes with no more divisors than they need. Never computes.

use zero_runtime::layers::{Bias, Projections};
use zero_runtime::prelude::*;

/// Rotary positions without scaling.
const PLAIN: Rotary = Rotary { base: 100.0, scaling: Scaling::None };
/// The original length is so short that some of these few frequencies are scaled by a factor between the two extremes.
const LLAMA3: Rotary = Rotary {
    base: 100.0,
    scaling: Scaling::Llama3 {
        factor: 4.0,
        low_frequency_factor: 1.0,
        high_frequency_factor: 4.0,
        original_length: 12,
    },
};
const YARN: Rotary = Rotary {
    base: 100.0,
    scaling: Scaling::Yarn {
        factor: 4.0,
        original_length: 12,
        beta_fast: 2.0,
        beta_slow: 0.25,
        attention_factor: None,
        truncate: false,
    },
};

macro_rules! heads {
    ($($(#[$doc:meta])* $name:ident: $heads:literal, $key_heads:literal, $dim:literal { $($item:item)* })*) => {
        $(
            $(#[$doc])*
            pub struct $name;

            impl Heads for $name {
                const HEADS: usize = $heads;
                const KEY_HEADS: usize = $key_heads;
                const HEAD_DIM: usize = $dim;
                $($item)*
            }
        )*
    };
}

heads! {
    /// Pairs of heads share keys, and no width equals the input's.
    Grouped: 6, 3, 3 {}
    /// All heads share one head of keys, and every projection has a bias.
    OneKey: 3, 1, 5 { const BIAS: Bias = Bias::All; }
    /// Only queries, keys and values have a bias.
    Biased: 2, 1, 3 { const BIAS: Bias = Bias::Inputs; }
    /// One tensor for queries, keys and values.
    Fused: 2, 1, 3 {
        const BIAS: Bias = Bias::Inputs;
        const NAMES: Projections = Projections::fused("c_attn", "c_proj");
    }
    /// A token sees itself and its predecessor.
    Pairs: 2, 2, 3 { const WINDOW: Option<usize> = Some(2); }
    /// A token sees only itself.
    Alone: 2, 2, 3 { const WINDOW: Option<usize> = Some(1); }
    /// A window that is longer than any sequence.
    Wide: 2, 2, 3 { const WINDOW: Option<usize> = Some(70); }
    /// A norm of each head, whose width is odd.
    Normed: 3, 3, 3 { const NORM: QueryKeyNorm = QueryKeyNorm::EachHead(1e-6); }
    /// One norm of all heads.
    NormedWhole: 4, 2, 3 { const NORM: QueryKeyNorm = QueryKeyNorm::Whole(1e-5); }
    /// Turned by rotary positions.
    Turned: 3, 1, 6 { const ROTARY: Option<Rotary> = Some(PLAIN); }
    /// Turned by half the angles.
    TurnedLess: 2, 2, 2 {
        const ROTARY: Option<Rotary> = Some(Rotary { scaling: Scaling::Linear { factor: 2.0 }, ..PLAIN });
    }
    /// As Llama 3: heads share keys.
    Llama: 4, 2, 6 { const ROTARY: Option<Rotary> = Some(LLAMA3); }
    /// As Qwen 3: a norm of each head, and heads whose total width is not the input's.
    Qwen: 6, 3, 4 {
        const NORM: QueryKeyNorm = QueryKeyNorm::EachHead(1e-6);
        const ROTARY: Option<Rotary> = Some(PLAIN);
    }
    /// As OLMo 3: one norm of all heads, and a window.
    Olmo: 3, 3, 6 {
        const WINDOW: Option<usize> = Some(3);
        const NORM: QueryKeyNorm = QueryKeyNorm::Whole(1e-6);
        const ROTARY: Option<Rotary> = Some(YARN);
    }
    /// All options at once.
    All: 6, 2, 4 {
        const WINDOW: Option<usize> = Some(2);
        const BIAS: Bias = Bias::All;
        const NORM: QueryKeyNorm = QueryKeyNorm::EachHead(1e-5);
        const ROTARY: Option<Rotary> = Some(YARN);
    }
}
