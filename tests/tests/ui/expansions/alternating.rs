//! Layers that take turns in an array: each is a unit of its own.
use zero_core::model::published;
use zero_runtime::author::{Init, Tensors};
use zero_runtime::layers::Classifier;
use zero_runtime::prelude::*;

#[zero(stage = 3, recompute = Fields(["blocks"]))]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    #[weights("h.{}")]
    #[alternating]
    blocks: [(Linear<8, 16>, (Gelu, Linear<16, 16>), Linear<16, 8>); 2],
    norm: LayerNorm<8>,
    #[tied(embed)]
    head: LmHead<8, 65>,
}

/// An array at the beginning.
#[zero(stage = 0)]
struct Mlp {
    #[alternating]
    #[init(0.5)]
    layers: [(Linear<8, 16>, Linear<16, 8>); 2],
    head: Classifier<8, 65>,
}

#[test]
fn layers_that_take_turns_are_units() {
    let units = Gpt::PLAN.units;
    let names: Vec<_> = units.iter().map(|unit| unit.to_string()).collect();
    let blocks = (0..6).map(|i| format!("blocks[{i}]"));
    assert_eq!(
        names,
        ["embed".to_owned()].into_iter().chain(blocks).chain(["norm", "head"].map(str::to_owned)).collect::<Vec<_>>()
    );
    assert_eq!(units.iter().map(|unit| unit.position).collect::<Vec<_>>(), [0, 1, 2, 3, 1, 2, 3, 4, 5]);
    assert_eq!(units[1..7].iter().map(|unit| unit.params).collect::<Vec<_>>(), [144, 272, 136, 144, 272, 136]);
    assert_eq!(units[8].source, 0);
    for (unit, expected) in [(4, "h.3.weight"), (5, "h.4.1.weight"), (6, "h.5.weight")] {
        let mut tensors = Tensors::default();
        Gpt::PROGRAM.code[units[unit].position].tensors(&mut tensors);
        assert_eq!(published(&units[unit], &tensors.into_list()[0]), expected);
    }

    assert_eq!(Mlp::PLAN.units.iter().map(|unit| unit.position).collect::<Vec<_>>(), [0, 1, 0, 1, 2]);
    for code in &Mlp::PROGRAM.code[..2] {
        let mut tensors = Tensors::default();
        code.tensors(&mut tensors);
        assert_eq!(tensors.into_list()[0].init, Init::Normal(0.5));
    }
}
