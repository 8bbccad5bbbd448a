//! Skew: late ranks, each at different times, change no result. Otherwise a missing wait could pass as one that is never needed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;

use zero_core::layer::Shape;
use zero_core::model::Model;
use zero_core::random::mix;
use zero_engine::Engine;
use zero_plan::{Config, Often, Order, PlanBuf, TransportKind};
use zero_ranks::transport::{Shared, local};
use zero_runtime::device::Cpu;
use zero_tests::tiny::{InBothWidths, Tied, Untied};
use zero_tests::training::{CONFIG, HYPER, Start, mesh, noise, train};

use super::meshes::plain;
use super::run;

/// Steps of a run: enough for late ranks of a step to meet early ranks of the next one.
const STEPS: u64 = 6;

/// Longer than a step of a tiny model takes on a rank that waits for no other.
const LATE_US_MAX: u64 = 2000;

fn equals_plain_when_late<M: InBothWidths<Shape: Shape<Device = Cpu>>>(config: &Config) {
    let expected = run::<M>(plain(config), STEPS).bits();
    let (noise, calls) = (noise(*config), AtomicU64::new(0));
    let late = train(M::PROGRAM, *config, HYPER, STEPS, Start::Seed(7), &|step, rank, micro_batch, ids, targets| {
        // The delay hits whichever rank asks next, so that no rank is always late.
        let draw = mix(step, calls.fetch_add(1, Ordering::Relaxed));
        if draw.is_multiple_of(3) {
            sleep(Duration::from_micros(draw / 3 % LATE_US_MAX));
        }
        noise(step, rank, micro_batch, ids, targets);
    });
    assert!(late.bits() == expected, "{config:?} depends on timing");
}

#[test]
fn ranks_that_are_late_change_nothing() {
    for (pipeline, replica, zero, order) in [
        (1, 1, 3, Order::OneFOneB),
        (1, 3, 1, Order::OneFOneB),
        (1, 2, 2, Order::OneFOneB),
        (2, 1, 2, Order::OneFOneB),
        (4, 1, 1, Order::GPipe),
        (2, 2, 2, Order::Interleaved { chunks: 2 }),
    ] {
        for reduce in [Often::PerMicroBatch, Often::PerStep] {
            for (stage, transport) in [
                (0, TransportKind::Local),
                (1, TransportKind::Shm),
                (2, TransportKind::Local),
                (3, TransportKind::Local),
                (3, TransportKind::Shm),
            ] {
                let mesh = mesh(pipeline, replica, zero);
                let config = Config { mesh, order, reduce, stage, transport, micro_batches: 4, ..CONFIG };
                equals_plain_when_late::<Tied>(&config);
                equals_plain_when_late::<Untied>(&Config { micro_batches: 2, ..config });
            }
        }
    }
}

/// Exchanges numbers, alternately few and many; the last to enter continues to the next exchange before the others have woken up.
fn exchange(transport: Shared<Cpu>, ranks: usize) {
    let mut engine = Engine::new(Untied::PROGRAM, transport);
    let own = engine.arena().rank();
    let most = engine.plan().agreed_values();
    for round in 0..300 {
        let len = [1, most, 3][round % 3];
        let number = |rank: usize, i: usize| ((round * ranks + rank) * most + i) as f64;
        if round / 2 % ranks == own {
            sleep(Duration::from_micros(200));
        }
        let mine: Vec<f64> = (0..len).map(|i| number(own, i)).collect();
        let all = engine.gather_numbers(&mine).expect("all ranks to go on");
        let expected = (0..ranks).flat_map(|rank| (0..len).map(move |i| (rank, i)));
        assert!(all.iter().copied().eq(expected.map(|(rank, i)| number(rank, i))), "round {round}: {all:?}");
    }
}

#[test]
fn ranks_exchange_the_numbers_of_one_round() {
    for ranks in [2, 3] {
        let config = Config { mesh: mesh(1, 1, ranks), ..CONFIG };
        PlanBuf::new("", config, Untied::PLAN.units)
            .with(|plan| local::run(plan, |_| false, |transport: Shared<'_, Cpu>| exchange(transport, ranks)))
            .expect("the memory of a tiny model");
    }
}
