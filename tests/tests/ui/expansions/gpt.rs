//! A transformer with a tied head: derived blocks, an array of them, and a spec that the attribute agrees with.
use zero_runtime::author::Tensors;
use zero_runtime::prelude::*;

const DIM: usize = 16;

#[derive(Layer)]
struct Block<const HEADS: usize> {
    #[residual]
    attention: (LayerNorm<DIM>, CausalSelfAttention<DIM, HEADS>),
    #[residual]
    mlp: (LayerNorm<DIM>, Linear<DIM, { 4 * DIM }>, Gelu, Linear<{ 4 * DIM }, DIM>),
}

#[zero(spec = "ui/specs/zero3.ron", stage = 3)]
struct Gpt {
    embed: Embedding<65, 256, DIM>,
    blocks: [Block<4>; 3],
    norm: LayerNorm<DIM>,
    #[tied(embed)]
    head: LmHead<DIM, 65>,
}

#[test]
fn a_transformer_agrees_with_its_spec() {
    assert_eq!((Gpt::PLAN.model, Gpt::PLAN.config.prefetch), ("Gpt", 2));
    let units: Vec<_> = Gpt::PLAN.units.iter().map(|unit| unit.to_string()).collect();
    assert_eq!(units, ["embed", "blocks[0]", "blocks[1]", "blocks[2]", "norm", "head"]);
    assert_eq!(Gpt::PLAN.units[5].source, 0);

    let mut tensors = Tensors::default();
    Gpt::PROGRAM.code[1].tensors(&mut tensors);
    let names: Vec<_> = tensors.into_list().into_iter().map(|tensor| tensor.name).collect();
    assert_eq!(names[..3], ["attention.0.weight", "attention.0.bias", "attention.1.qkv.weight"]);
    assert_eq!(names[names.len() - 2..], ["mlp.3.weight", "mlp.3.bias"]);
}
