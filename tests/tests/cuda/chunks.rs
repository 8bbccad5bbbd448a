//! Chunks: a head whose logits do not all exist at one time trains as on the processor, which has other chunks.

use zero_core::model::Program;
use zero_runtime::author::Device;
use zero_runtime::prelude::*;
use zero_tests::pretend;
use zero_tests::training::{HYPER, Outcome, Start, noise, train};

const WIDTH: usize = 8;
/// With this many classes or more, a GPU has the logits of 1024 tokens at one time.
const VOCAB: usize = 1 << 17;
/// Two chunks, of which the second one is smaller.
const LENGTH: usize = 1024 + 76;

macro_rules! model {
    ($name:ident $(, $option:ident = $value:ident)*) => {
        #[zero(stage = 0, ranks = 1, sequences = 1, length = 1100 $(, $option = $value)*)]
        struct $name {
            embed: TokenEmbedding<VOCAB, WIDTH>,
            head: LmHead<WIDTH, VOCAB>,
        }
    };
}

model!(OnProcessor);
model!(OnGpu, device = Cuda);

fn trained<D: Device>(program: &'static Program<D>) -> Outcome {
    let config = program.plan.config;
    assert_eq!(config.length, LENGTH);
    train(program, config, HYPER, 2, Start::Seed(7), &noise(config))
}

#[test]
fn a_head_trains_in_chunks_of_logits() {
    if pretend::is_done_apart() || !pretend::is_cuda() {
        return;
    }
    let (found, expected) = (trained(OnGpu::PROGRAM), trained(OnProcessor::PROGRAM));
    for (what, found, expected) in [("loss", &found.losses, &expected.losses), ("norm", &found.norms, &expected.norms)]
    {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-4 * expected, "{what}: {found}, on the processor {expected}");
        }
    }
    for (unit, (found, expected)) in found.gradients.iter().zip(&expected.gradients).enumerate() {
        let most = expected.iter().fold(0.0_f32, |most, one| most.max(one.abs()));
        let off = found.iter().zip(expected).fold(0.0_f32, |off, (a, b)| off.max((a - b).abs()));
        assert!(most > 0.0 && off <= 1e-4 * most, "unit {unit}: off by {off}, of at most {most}");
    }
}
