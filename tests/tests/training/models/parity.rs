//! Parity: every kind of layout trains each architecture to the bits of plain data parallelism, in both widths.

use zero_core::model::{Model, Program};
use zero_plan::{Config, Mesh, Order, Recompute, TransportKind};
use zero_runtime::device::Device;
use zero_tests::training::{CONFIG, HYPER, STEPS, Start, mesh, noise, train};

use super::sized::*;

/// Layouts of four data-parallel ranks, or of two on a pipeline.
fn layouts(plain: Config) -> Vec<(Config, usize)> {
    let of = |mesh: Mesh, stage| Config { mesh, ..plain.at_stage(stage) };
    let mut layouts: Vec<(Config, usize)> = (0..4).map(|stage| (of(mesh(1, 1, 4), stage), 4)).collect();
    layouts.extend((1..4).map(|stage| (of(mesh(1, 2, 2), stage), 4)));
    layouts.push((Config { transport: TransportKind::Shm, prefetch: 2, ..of(mesh(1, 1, 4), 3) }, 4));
    layouts.push((Config { recompute: Recompute::Fields(&["blocks"]), ..of(mesh(1, 1, 4), 2) }, 4));
    layouts.push((Config { transport: TransportKind::Shm, ..of(mesh(2, 1, 4), 3) }, 4));
    layouts.push((Config { order: Order::GPipe, recompute: Recompute::Every(1), ..of(mesh(2, 2, 2), 1) }, 4));
    layouts
}

fn trains_alike<D: Device>(program: &'static Program<D>) {
    let plain =
        Config { sequences: 2, length: 31, micro_batches: 2, precision: program.plan.config.precision, ..CONFIG };
    let reference = |ranks| {
        let config = Config { mesh: Mesh::of_zero(ranks), ..plain.at_stage(0) };
        train(program, config, HYPER, STEPS, Start::Seed(3), &noise(config)).bits()
    };
    let expected = reference(4);
    for (config, ranks) in layouts(plain) {
        assert_eq!(ranks, config.mesh.data_ranks());
        let found = train(program, config, HYPER, STEPS, Start::Seed(3), &noise(config)).bits();
        assert!(found == expected, "other bits: {config:?}");
    }
}

macro_rules! train_alike {
    ($($module:ident)*) => {
        $(
            #[test]
            fn $module() {
                trains_alike($module::Model::PROGRAM);
            }
        )*
    };
}

train_alike!(
    gpt2_tiny gpt2_tiny_bf16
    llama_tiny llama_tiny_bf16 llama_tiny_tied llama_tiny_tied_bf16
    qwen3_tiny qwen3_tiny_bf16 qwen3_tiny_untied qwen3_tiny_untied_bf16
    olmo3_tiny olmo3_tiny_bf16
);
