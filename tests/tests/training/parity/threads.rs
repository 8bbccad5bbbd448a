//! Threads: the number of a rank's threads must not change a result.

use std::num::NonZeroUsize;

use zero_core::device::Device;
use zero_core::layer::Shape;
use zero_core::model::{Model, Program};
use zero_cpu::Cpu;
use zero_engine::Engine;
use zero_plan::{Config, PlanBuf, Recompute, TransportKind, Width};
use zero_ranks::transport::{Shared, local};
use zero_tests::tiny::{InBothWidths, Tall, Tied, Untied};
use zero_tests::training::{CONFIG, HYPER, Outcome, Start, merged, mesh, noise, train_engine};

use super::{WIDTHS, run};

/// Trains with this many threads a rank, which share even the smallest work.
fn run_on_threads(program: &'static Program<Cpu>, config: Config, threads: usize) -> Outcome {
    let (threads, batch) = (NonZeroUsize::new(threads).expect("threads"), noise(config));
    let rank = |transport: Shared<Cpu>| {
        let train = |device: Cpu| {
            let engine = Engine::with_device(program, transport, device.eager());
            train_engine(engine, HYPER, 3, Start::Seed(7), &batch)
        };
        Cpu::ONE_THREAD.on_threads(threads, "test", train).expect("threads")
    };
    PlanBuf::new(program.plan.model, config, program.plan.units).with(|plan| {
        let ranks = local::run(plan, Result::is_err, rank).expect("the memory of a tiny model");
        merged(&config, ranks.into_iter().map(|rank| rank.expect("a run without faults")).collect())
    })
}

/// In both widths.
pub fn threads_agree<M>(config: Config)
where
    M: InBothWidths<Shape: Shape<Device = Cpu>, Narrow: Model<Shape: Shape<Device = Cpu>>>,
{
    for precision in WIDTHS {
        let config = Config { precision, ..config };
        let alone = run::<M>(config, 3);
        for threads in [1, 3] {
            let shared = match precision.compute {
                Width::F32 => run_on_threads(M::PROGRAM, config, threads),
                Width::BF16 => run_on_threads(M::Narrow::PROGRAM, config, threads),
            };
            assert!(shared.bits() == alone.bits(), "{threads} threads differ: {config:?}");
        }
    }
}

#[test]
fn threads_agree_bit_for_bit() {
    for transport in [TransportKind::Local, TransportKind::Shm] {
        for stage in 0..4 {
            threads_agree::<Untied>(Config { mesh: mesh(1, 1, 2), transport, ..CONFIG.at_stage(stage) });
        }
        let pipelined = Config { mesh: mesh(2, 1, 2), micro_batches: 4, transport, ..CONFIG.at_stage(3) };
        threads_agree::<Tied>(Config { recompute: Recompute::Every(2), ..pipelined });
    }
}

#[test]
fn threads_agree_where_matrix_products_are_shared() {
    threads_agree::<Tall>(Config { sequences: 40, ..CONFIG.at_stage(3) });
}
