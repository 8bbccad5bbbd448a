//! Trains the tied tiny model on ranks that are processes, under a plan that its arguments choose, and prints what came of
//! it to the bit: for comparing with ranks that are threads.
//!
//! `parity_rank STAGE RANKS PREFETCH MICRO_BATCHES`

use std::process::ExitCode;

use zero_plan::{Config, Mesh, PlanBuf, Transport};
use zero_runtime::launch::{self, Role};
use zero_runtime::model::Model;
use zero_runtime::transport::shm;
use zero_tests::tiny::Tied;
use zero_tests::training::{CONFIG, HYPER, Start, noise, train_rank};

fn main() -> ExitCode {
    let arguments: Vec<usize> = std::env::args().skip(1).map(|text| text.parse().expect("a number")).collect();
    let &[stage, ranks, prefetch, micro_batches] = arguments.as_slice() else {
        panic!("expected STAGE RANKS PREFETCH MICRO_BATCHES");
    };
    let config = Config {
        mesh: Mesh::of_zero(ranks),
        stage: stage as u8,
        prefetch,
        micro_batches,
        transport: Transport::Shm,
        ..CONFIG
    };
    let plan = PlanBuf::new(Tied::PLAN.model, config, Tied::PLAN.units);
    let stages = plan.stages();
    let plan = plan.as_plan(&stages);
    match launch::role(ranks).expect("an environment without contradictions") {
        Role::Launcher => launch::launch(ranks),
        Role::Rank(place) => {
            let (transport, watch) = shm::join(&plan, &place, 0).expect("peers");
            let outcome = train_rank::<Tied, _>(transport, HYPER, 3, Start::Seed(7), &noise(config))
                .expect("a run without faults");
            watch.goodbye();
            if place.rank == 0 {
                println!("{:?}", outcome.bits());
            }
            ExitCode::SUCCESS
        }
    }
}
