//! Launches: the number of kernels that a layer of a transformer queues, which predictions of steps on GPUs use.

use zero_core::model::Program;
use zero_engine::Engine;
use zero_plan::{Config, PlanBuf};
use zero_ranks::transport::local;
use zero_runtime::author::Device;
use zero_runtime::prelude::*;
use zero_study::simulate::{LAYER_KERNELS, PassKernels};
use zero_tests::pretend;
use zero_tests::training::{HYPER, noise};

const DIM: usize = 64;
const VOCAB: usize = 65;

#[derive(Layer)]
struct Block {
    #[residual]
    attention: (LayerNorm<DIM>, CausalSelfAttention<DIM, 2>),
    #[residual]
    mlp: (LayerNorm<DIM>, Linear<DIM, { 4 * DIM }>, Gelu, Linear<{ 4 * DIM }, DIM>),
}

macro_rules! model {
    ($name:ident, $layers:literal) => {
        #[zero(stage = 0, ranks = 1, sequences = 2, length = 32, compute = F32, device = Cuda)]
        struct $name {
            embed: Embedding<VOCAB, 32, DIM>,
            blocks: [Block; $layers],
            norm: LayerNorm<DIM>,
            head: LmHead<DIM, VOCAB>,
        }
    };
}

model!(Two, 2);
model!(Three, 3);

/// Kernels, copies and products that this thread has queued. Fills are not counted: the engine of a debug build fills the outputs
/// of layers, and layers fill nothing.
fn queued() -> u64 {
    ["cuLaunchKernel", "pretend_enqueue", "cuMemcpyAsync"].map(pretend::count).iter().sum()
}

/// The numbers that an evaluation and a step queue.
fn of<D: Device>(program: &'static Program<D>) -> [u64; 2] {
    let config = Config { memory_bytes: None, ..program.plan.config };
    let batch = noise(config);
    let counted = PlanBuf::new(program.plan.model, config, program.plan.units).with(|plan| {
        local::run(
            plan,
            |_| false,
            |transport| {
                let mut engine = Engine::new(program, transport);
                engine.run_eagerly(true);
                engine.initialize(5);
                let mut counted = [0; 2];
                for step in 0..2 {
                    let before = queued();
                    engine.evaluate(|part, ids, targets| batch(step, 0, part, ids, targets)).expect("an evaluation");
                    let between = queued();
                    engine.step(&HYPER, |part, ids, targets| batch(step, 0, part, ids, targets)).expect("a step");
                    counted = [between - before, queued() - between];
                }
                counted
            },
        )
    });
    counted.expect("the memory of a tiny model")[0]
}

#[test]
fn a_layer_queues_as_many_kernels_as_predictions_count() {
    if pretend::is_done_apart() || !pretend::is_cuda() || pretend::is_hardware() {
        return;
    }
    let (two, three) = (of(Two::PROGRAM), of(Three::PROGRAM));
    let [forward, step] = [three[0] - two[0], three[1] - two[1]];
    let PassKernels { forward: predicted, backward } = LAYER_KERNELS;
    assert_eq!(forward, predicted as u64);
    // Its gradients are settled, their squares are summed, and its parameters are updated.
    let others = step - forward - backward as u64;
    assert!((1..=4).contains(&others), "{others} beside the {backward} of a backward");
}
