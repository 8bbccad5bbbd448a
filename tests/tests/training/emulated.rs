//! Emulated: a slow link changes no result, and prefetch keeps the requested number of gathers in flight. The order of ops shows
//! this; benchmarks measure the saved time.

use bench::emulated::{Emulated, Link};
use zero_core::model::Model;
use zero_engine::Engine;
use zero_plan::{Config, Mesh, PlanBuf};
use zero_ranks::transport::{Transport, local};
use zero_tests::tiny::Untied;
use zero_tests::training::{CONFIG, HYPER, STEPS, Start, merged, mesh, noise, train, train_rank};

const SLOW: Link = Link { latency_us: 20.0, bandwidth_gb_per_s: 1.0 };

#[test]
fn a_slow_link_changes_no_result() {
    for config in [
        Config { mesh: Mesh::of_zero(2), ..CONFIG },
        Config { mesh: mesh(2, 2, 2), stage: 3, prefetch: 2, micro_batches: 2, ..CONFIG },
    ] {
        let batch = noise(config);
        let slow = PlanBuf::new("", config, Untied::PLAN.units).with(|plan| {
            let ranks = local::run(plan, Result::is_err, |transport| {
                train_rank(Untied::PROGRAM, Emulated::new(transport, SLOW), HYPER, STEPS, Start::Seed(7), &batch)
            });
            merged(&config, ranks.expect("memory").into_iter().map(|rank| rank.expect("no faults")).collect())
        });
        assert!(slow == train(Untied::PROGRAM, config, HYPER, STEPS, Start::Seed(7), &batch));
    }
}

#[test]
fn prefetch_keeps_as_many_gathers_in_flight() {
    let units = Untied::PLAN.units.len();
    for prefetch in 0..=units {
        let config = Config { mesh: Mesh::of_zero(2), stage: 3, prefetch, ..CONFIG };
        let in_flight = PlanBuf::new("", config, Untied::PLAN.units).with(|plan| {
            let ranks = local::run(
                plan,
                |_| false,
                |transport| {
                    let rank = transport.arena().rank();
                    let mut engine = Engine::new(Untied::PROGRAM, Emulated::new(transport, SLOW));
                    engine.initialize(7);
                    let batch = noise(config);
                    assert!(engine.step(&HYPER, |part, ids, targets| batch(0, rank, part, ids, targets)).is_ok());
                    engine.transport().gathers_in_flight_max()
                },
            );
            ranks.expect("memory")
        });
        // No unit has two gathers at a time, and one unit computes.
        assert_eq!(in_flight, [prefetch.min(units - 1); 2], "prefetch {prefetch}");
    }
}
