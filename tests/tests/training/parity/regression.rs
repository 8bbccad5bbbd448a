//! Regression: a model whose targets are numbers trains like any other, and its loss is correct.

use zero_core::random::uniform;
use zero_engine::{Engine, Hyper};
use zero_plan::{Config, PlanBuf};
use zero_ranks::transport::{Shared, local};
use zero_runtime::prelude::*;
use zero_tests::training::{CONFIG, HYPER, mesh};

const INPUTS: usize = 3;
/// More for each token than its inputs, and more than fit in a cache line.
const OUTPUTS: usize = 21;

macro_rules! numbers {
    ($name:ident, $compute:ident) => {
        #[zero(stage = 0, ranks = 1, sequences = 2, length = 11, compute = $compute)]
        struct $name {
            hidden: (Linear<INPUTS, 16>, Silu),
            between: [(RmsNorm<16>, Linear<16, 16>, Silu); 2],
            out: Linear<16, OUTPUTS>,
            head: MseHead<OUTPUTS>,
        }
    };
}

numbers!(Numbers, F32);
numbers!(NumbersInBf16, BF16);

/// Micro-batch (step, data rank, micro-batch) of `config`, cut from one global batch.
fn batch(config: &Config, step: u64, rank: usize, micro_batch: usize, inputs: &mut [u32], targets: &mut [u32]) {
    let (inputs, targets): (&mut [f32], &mut [f32]) =
        (bytemuck::cast_slice_mut(inputs), bytemuck::cast_slice_mut(targets));
    let tokens = inputs.len() / INPUTS;
    let first = (micro_batch * config.mesh.data_ranks() + rank) * tokens;
    for (token, (input, target)) in inputs.chunks_exact_mut(INPUTS).zip(targets.chunks_exact_mut(OUTPUTS)).enumerate() {
        let number = |i: usize| 2.0 * uniform(step, ((first + token) * INPUTS + i) as u64) as f32 - 1.0;
        input.iter_mut().enumerate().for_each(|(i, x)| *x = number(i));
        target.iter_mut().enumerate().for_each(|(i, t)| *t = (0.1 * i as f32 * input[i % INPUTS]).sin() + 0.5);
    }
}

/// Bits of the losses, and of the first rank's parameters at the end.
fn train<M: Model<Input = Features<INPUTS>, Target = Features<OUTPUTS>>>(
    config: Config,
    hyper: Hyper,
    steps: u64,
) -> (Vec<u64>, Vec<Vec<u32>>) {
    let config = Config { precision: M::PLAN.config.precision, ..config };
    let ranks = PlanBuf::new("", config, M::PLAN.units).with(|plan| {
        assert_eq!(plan.check(), Ok(()), "{config:?}");
        local::run(
            plan,
            |_| false,
            |transport| {
                let mut engine = Engine::new(M::PROGRAM, transport);
                let data_rank = engine.arena().coordinates().data_rank(&config.mesh);
                engine.initialize(7);
                let step = |step: u64| {
                    let report = engine.step(&hyper, |micro_batch, inputs, targets| {
                        batch(&config, step, data_rank, micro_batch, inputs, targets);
                    });
                    report.expect("a step without faults").loss.to_bits()
                };
                let losses = (0..steps).map(step).collect::<Vec<_>>();
                let bits = |flat: Vec<f32>| flat.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                let parameters =
                    (0..plan.units.len()).map(|unit| bits(engine.parameters(unit).unwrap().unwrap_or_default()));
                (losses, parameters.collect::<Vec<_>>())
            },
        )
    });
    let mut ranks = ranks.expect("the memory of a tiny model");
    let mut all = ranks.remove(0);
    for (losses, parameters) in ranks {
        assert_eq!(losses, all.0);
        // Each pipeline stage has its own.
        for (unit, other) in all.1.iter_mut().zip(parameters).filter(|(unit, _)| unit.is_empty()) {
            *unit = other;
        }
    }
    all
}

fn stages_and_meshes_agree<M: Model<Input = Features<INPUTS>, Target = Features<OUTPUTS>>>() -> Vec<u64> {
    let plain = train::<M>(Config { mesh: mesh(1, 1, 2), micro_batches: 4, ..CONFIG.at_stage(0) }, HYPER, 3);
    assert!(plain.1.iter().flatten().any(|&bits| bits != 0));
    for (pipeline, replica, zero, stage) in [(1, 1, 2, 1), (1, 2, 1, 2), (1, 1, 2, 3), (2, 1, 2, 3), (4, 2, 1, 0)] {
        let config = Config { mesh: mesh(pipeline, replica, zero), micro_batches: 4, ..CONFIG.at_stage(stage) };
        assert!(train::<M>(config, HYPER, 3) == plain, "{config:?} differs");
    }
    plain.0
}

/// In bf16, inputs are converted from f32 in the workspace. Losses are those of f32 within some roundings to 8 bits.
#[test]
fn stages_and_meshes_agree_bit_for_bit() {
    let (wide, narrow) = (stages_and_meshes_agree::<Numbers>(), stages_and_meshes_agree::<NumbersInBf16>());
    for (wide, narrow) in wide.into_iter().map(f64::from_bits).zip(narrow.into_iter().map(f64::from_bits)) {
        assert!(wide != narrow && (wide - narrow).abs() < 1e-2 * wide, "losses {wide} and {narrow}");
    }
}

/// The loss against its formula in f64, over the model's prediction for each token, which depends on no other token.
#[test]
fn the_loss_is_the_mean_squared_error_of_the_predictions() {
    let config = CONFIG.at_stage(0);
    let (mut inputs, mut targets) = (vec![0; config.tokens() * INPUTS], vec![0; config.tokens() * OUTPUTS]);
    batch(&config, 5, 0, 0, &mut inputs, &mut targets);
    let main = |transport: Shared<'_, Cpu>| {
        let mut engine = Engine::new(Numbers::PROGRAM, transport);
        engine.initialize(7);
        let mut sum = 0.0;
        for (input, targets) in inputs.chunks(INPUTS).zip(targets.chunks(OUTPUTS)) {
            let mut outputs = vec![0.0; Numbers::PROGRAM.head.outputs];
            engine.predict(input, &mut outputs).expect("no rank has ended");
            sum += outputs
                .iter()
                .zip(targets)
                .map(|(y, t)| (f64::from(*y) - f64::from(f32::from_bits(*t))).powi(2))
                .sum::<f64>();
        }
        let loss = engine.evaluate(|_, inputs, targets| batch(&config, 5, 0, 0, inputs, targets));
        (loss.expect("a finite loss"), sum / targets.len() as f64)
    };
    let found = PlanBuf::new("", config, Numbers::PLAN.units).with(|plan| local::run(plan, |_| false, main));
    let (loss, expected) = found.expect("the memory of a tiny model")[0];
    assert!((loss - expected).abs() < 1e-6 * expected && expected > 0.01, "{loss}, not {expected}");
    assert_eq!((Numbers::PROGRAM.head.unit, Numbers::PROGRAM.head.classes), ("mean squared error", 0));
}

#[test]
fn it_learns() {
    let hyper = Hyper { lr: 1e-2, weight_decay: 0.0, clip: None, ..HYPER };
    let (losses, _) = train::<Numbers>(CONFIG.at_stage(0), hyper, 60);
    let loss = |step: usize| f64::from_bits(losses[step]);
    assert!(loss(59) < 0.1 * loss(0), "from {} to {}", loss(0), loss(59));
}
