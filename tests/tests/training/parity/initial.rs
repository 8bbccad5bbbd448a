//! Initial parameters: each is drawn from the seed and its own place in the model, so no two units are initially equal.

use zero_core::layer::{Init, Tensors};
use zero_core::model::Model;
use zero_core::random::normal;
use zero_plan::Config;
use zero_tests::tiny::Untied;
use zero_tests::training::{CONFIG, HYPER, Start, mesh, noise, train};

/// The parameters of each unit before the first step.
fn first(seed: u64, config: Config) -> Vec<Vec<f32>> {
    train(Untied::PROGRAM, config, HYPER, 0, Start::Seed(seed), &noise(config)).parameters
}

#[test]
fn parameters_begin_as_seed_and_place_say() {
    let seed = 7;
    let mut expected = Vec::new();
    let mut place = 0;
    for unit in Untied::PLAN.units {
        let mut tensors = Tensors::default();
        Untied::PROGRAM.code[unit.position].tensors(&mut tensors);
        let mut flat = Vec::new();
        for tensor in tensors.into_list() {
            for _ in 0..tensor.len() {
                flat.push(match tensor.init {
                    Init::Zeros => 0.0,
                    Init::Ones => 1.0,
                    Init::Normal(deviation) => deviation * normal(seed, place),
                });
                place += 1;
            }
        }
        expected.push(flat);
    }
    for config in [CONFIG, Config { mesh: mesh(2, 1, 2), stage: 3, ..CONFIG }] {
        assert!(first(seed, config) == expected, "{config:?}");
    }
}

#[test]
fn equal_units_begin_with_other_values() {
    let [units, other_seed] = [7, 8].map(|seed| first(seed, CONFIG));
    let blocks: Vec<_> = (0..units.len()).filter(|&unit| Untied::PLAN.units[unit].position == 1).collect();
    let &[one, other] = &blocks[..] else { panic!("two blocks") };
    // Gains and biases are initially equal: most parameters of each block are weights.
    let different = |one: &[f32], other: &[f32]| one.iter().zip(other).filter(|(one, other)| one != other).count();
    let most = units[one].len() * 9 / 10;
    assert!(different(&units[one], &units[other]) > most);
    assert!(different(&units[one], &other_seed[one]) > most);
}
