//! Layers of impossible sizes: what a build says of them. Never builds one.

use zero_runtime::prelude::*;

use crate::Small;

macro_rules! heads {
    ($name:ident: $heads:literal, $key_heads:literal, $dim:literal { $($item:item)* }) => {
        struct $name;
        impl Heads for $name {
            const HEADS: usize = $heads;
            const KEY_HEADS: usize = $key_heads;
            const HEAD_DIM: usize = $dim;
            $($item)*
        }
    };
}

/// The fault of a layer, or of its heads.
fn fault<L: Layer<Small, Features<8>>>() -> String {
    L::FAULT.expect("a fault").as_str().to_owned()
}

#[test]
fn z0203_heads_that_do_not_share() {
    heads! { Unequal: 6, 4, 2 {} }
    heads! { Wide: 3, 1, 1028 {} }
    heads! { More: 2, 4, 2 {} }
    let said = fault::<Attention<8, Unequal>>();
    assert!(said.starts_with("[Z0203] Attention has 6 heads, which cannot share 4 heads of keys and values equally"));
    assert!(fault::<Attention<8, More>>().starts_with("[Z0203] Attention has 2 heads, which cannot share 4 heads"));
    let said = fault::<Attention<8, Wide>>();
    assert!(said.starts_with("[Z0203] a head of Attention has 1028 features, and can have 1024 at most"), "{said}");
    assert!(said.ends_with("share them among 4 heads or more"), "{said}");
    let said = fault::<CausalSelfAttention<8, 3>>();
    assert!(said.starts_with("[Z0203] the width of CausalSelfAttention is 8, which is not a multiple"), "{said}");
}

#[test]
fn z0207_heads_of_nothing() {
    heads! { NoKeys: 2, 0, 2 {} }
    heads! { Empty: 2, 2, 0 {} }
    assert!(fault::<Attention<8, NoKeys>>().starts_with("[Z0207] the key heads of Attention is 0,"));
    assert!(fault::<Attention<8, Empty>>().starts_with("[Z0207] the width of a head of Attention is 0,"));
    assert!(fault::<CausalSelfAttention<8, 0>>().starts_with("[Z0207] the heads of Attention is 0,"));
    assert!(fault::<SwiGlu<8, 0>>().starts_with("[Z0207] the output width of Gated is 0,"));
}

const PLAIN: Rotary = Rotary { base: 10_000.0, scaling: Scaling::None };

#[test]
fn z0225_odd_heads_that_are_to_turn() {
    heads! { Odd: 2, 2, 7 { const ROTARY: Option<Rotary> = Some(PLAIN); } }
    assert!(
        fault::<Attention<8, Odd>>().starts_with("[Z0225] a head of Attention has 7 features, but rotary positions")
    );
}

#[test]
fn z0226_window_of_nothing() {
    heads! { Blind: 2, 2, 4 { const WINDOW: Option<usize> = Some(0); } }
    assert!(fault::<Attention<8, Blind>>().starts_with("[Z0226] the window of Attention is 0 tokens,"));
}

#[test]
fn z0227_positions_without_frequencies() {
    heads! { Still: 2, 2, 4 { const ROTARY: Option<Rotary> = Some(Rotary { base: 1.0, ..PLAIN }); } }
    let said = fault::<Attention<8, Still>>();
    assert!(said.starts_with("[Z0227] the rotary positions of Attention have no frequencies: `base` is not above 1"));
}
