//! A model as it is published: names, deviations, a configuration, and a head that is tied by a constant.
use zero_core::model::published;
use zero_runtime::author::{Init, Tensors};
use zero_runtime::prelude::*;

const DIM: usize = 16;
const LAYERS: usize = 3;
const IS_TIED: bool = false;

#[derive(Layer)]
struct Block<const HEADS: usize> {
    #[residual]
    #[weights("ln_1", transposed("attn"))]
    #[init(0.25, last = 1.0 / (2.0 * HEADS as f32))]
    attention: (LayerNorm<DIM>, CausalSelfAttention<DIM, HEADS>),
    #[residual]
    #[weights("ln_2", transposed("mlp.c_fc"), _, transposed("mlp.c_proj"))]
    mlp: (LayerNorm<DIM>, Linear<DIM, { 4 * DIM }>, Gelu, Linear<{ 4 * DIM }, DIM>),
}

#[zero(stage = 3)]
#[config({ "model_type": "gpt2", "n_embd": DIM, "layers": [1, null, { "deep": !IS_TIED }], "scale": 0.5, })]
struct Gpt {
    #[weights("wte.weight", "wpe.weight")]
    #[init(0.02)]
    embed: Embedding<65, 256, DIM>,
    #[weights("h.{}")]
    #[init(0.5, last = 0.125)]
    blocks: [Block<4>; LAYERS],
    #[weights("ln_f")]
    norm: LayerNorm<DIM>,
    #[tied(embed, if IS_TIED)]
    #[weights("lm_head")]
    head: LmHead<DIM, 65>,
}

#[test]
fn a_published_model_has_its_names_and_configuration() {
    let units = Gpt::PLAN.units;
    let tensors = |unit: usize| {
        let mut tensors = Tensors::default();
        Gpt::PROGRAM.code[units[unit].position].tensors(&mut tensors);
        tensors.into_list()
    };
    let names = |unit: usize| tensors(unit).iter().map(|tensor| published(&units[unit], tensor)).collect::<Vec<_>>();
    assert_eq!(names(0), ["wte.weight", "wpe.weight"]);
    let block = ["ln_1.weight", "ln_1.bias", "attn.qkv.weight", "attn.qkv.bias", "attn.out.weight", "attn.out.bias"];
    assert_eq!(names(2)[..6], block.map(|name| format!("h.1.{name}")));
    assert_eq!(
        names(2)[8..],
        ["h.1.mlp.c_fc.weight", "h.1.mlp.c_fc.bias", "h.1.mlp.c_proj.weight", "h.1.mlp.c_proj.bias"]
    );
    assert_eq!(names(4), ["ln_f.weight", "ln_f.bias"]);
    assert_eq!((names(5), units[5].source, units[5].params), (vec!["lm_head.weight".to_owned()], 5, 65 * DIM));

    let transposed: Vec<_> = tensors(1).into_iter().map(|tensor| tensor.weights.unwrap().transposed).collect();
    assert_eq!(transposed, [false, false, true, false, true, false, false, false, true, false, true, false]);
    let normal = |unit: usize| {
        let drawn = tensors(unit).into_iter().filter_map(|tensor| match tensor.init {
            Init::Normal(deviation) => Some(deviation),
            _ => None,
        });
        drawn.collect::<Vec<_>>()
    };
    assert_eq!((normal(0), normal(1)), (vec![0.02; 2], vec![0.25, 0.125, 0.5, 0.125]));

    let config = r#"{"layers":[1,null,{"deep":true}],"model_type":"gpt2","n_embd":16,"scale":0.5}"#;
    assert_eq!((Gpt::PROGRAM.config)().to_string(), config);
}
