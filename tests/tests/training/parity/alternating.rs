//! Alternating: units that take turns in an array train like units that are written one by one.

use zero_core::model::Program;
use zero_plan::{Config, Recompute, Split};
use zero_runtime::author::Device;
use zero_runtime::prelude::*;
use zero_tests::training::{CONFIG, HYPER, Start, mesh, noise, train};

/// The layers that take turns. Each has sizes of its own.
type Wide = (LayerNorm<24>, Linear<24, 40>, Gelu);
type Narrow = Linear<40, 24>;

#[zero(stage = 0, ranks = 1, sequences = 2, length = 11)]
struct InTurns {
    embed: Embedding<29, 12, 24>,
    #[alternating]
    blocks: [(Wide, Narrow); 2],
    head: LmHead<24, 29>,
}

#[zero(stage = 0, ranks = 1, sequences = 2, length = 11)]
struct OneByOne {
    embed: Embedding<29, 12, 24>,
    a: Wide,
    b: Narrow,
    c: Wide,
    d: Narrow,
    head: LmHead<24, 29>,
}

fn bits<D: Device>(program: &'static Program<D>, config: Config) -> (Vec<u64>, Vec<u64>, Vec<u32>) {
    train(program, config, HYPER, 3, Start::Seed(7), &noise(config)).bits()
}

#[test]
fn layers_that_take_turns_are_units_of_their_own() {
    let expected = bits(OneByOne::PROGRAM, Config { micro_batches: 4, ..CONFIG });
    let recompute = Recompute::Fields(&["blocks"]);
    let split = Split::Units(&[2, 4]);
    for config in [
        CONFIG,
        Config { recompute, ..CONFIG.at_stage(1) },
        Config { stage: 3, recompute, mesh: mesh(2, 1, 1), split, ..CONFIG },
        Config { stage: 2, mesh: mesh(2, 1, 1), ..CONFIG },
    ] {
        let config = Config { micro_batches: 4, ..config };
        assert!(bits(InTurns::PROGRAM, config) == expected, "{config:?}");
    }
}
