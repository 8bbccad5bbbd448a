//! Parity: what the stage, the transport, the buckets, the prefetch and the number of ranks must not change.

use std::process::Command;

use zero_plan::{Config, PlanBuf, Traffic, Transport};
use zero_runtime::engine::Hyper;
use zero_runtime::layer::Tokens;
use zero_runtime::model::Model;
use zero_tests::tiny::{Tied, Untied, Wide};
use zero_tests::training::{CONFIG, HYPER, Outcome, Start, noise, train};

fn run<M: Model<Input = Tokens>>(config: Config, steps: u64) -> Outcome {
    train::<M>(config, HYPER, steps, Start::Seed(7), &noise(config))
}

/// All configurations of a number of ranks and micro-batches.
fn configurations(ranks: usize, micro_batches: usize) -> Vec<Config> {
    let mut all = Vec::new();
    for transport in [Transport::Local, Transport::Shm] {
        for bucket_bytes in [1, 40_000, usize::MAX] {
            let config = Config { ranks, micro_batches, transport, bucket_bytes, ..CONFIG };
            all.extend([0, 1, 2].map(|stage| config.at_stage(stage)));
            all.extend([0, 1, 9].map(|prefetch| Config { stage: 3, prefetch, ..config }));
        }
    }
    all
}

fn stages_agree<M: Model<Input = Tokens>>() {
    for ranks in 1..=4 {
        for micro_batches in [1, 3] {
            let plain = run::<M>(Config { ranks, micro_batches, ..CONFIG }, 3);
            assert!(plain.norms.iter().all(|&norm| norm > 0.25), "every step clips: {:?}", plain.norms);
            for config in configurations(ranks, micro_batches) {
                assert!(run::<M>(config, 3).bits() == plain.bits(), "{config:?} differs from stage 0");
            }
        }
    }
}

#[test]
fn stages_agree_bit_for_bit() {
    stages_agree::<Untied>();
}

#[test]
fn stages_agree_bit_for_bit_with_tied_weights() {
    stages_agree::<Tied>();
}

/// The same on ranks that are processes.
#[test]
fn processes_agree_with_threads_bit_for_bit() {
    for (stage, ranks, prefetch, micro_batches) in
        [(0, 2, 1, 1), (1, 3, 1, 2), (2, 2, 1, 3), (3, 4, 2, 1), (3, 2, 0, 2)]
    {
        let arguments = [stage, ranks, prefetch, micro_batches].map(|number| number.to_string());
        let output = Command::new(env!("CARGO_BIN_EXE_parity_rank")).args(&arguments).output().expect("the binary");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let threads = run::<Tied>(Config { ranks, micro_batches, ..CONFIG }, 3);
        let found = String::from_utf8_lossy(&output.stdout);
        assert!(found.trim() == format!("{:?}", threads.bits()), "{arguments:?} differs from stage 0 on threads");
    }
}

#[test]
fn no_unit_divides_by_the_ranks() {
    for ranks in [2, 4] {
        let plan = PlanBuf::new("", Config { ranks, ..CONFIG }, Untied::PLAN.units);
        for (unit, placement) in plan.as_plan().units.iter().zip(plan.as_plan().placements) {
            assert!(placement.padded > unit.params, "{unit} has no padding, so it does not test padding");
        }
    }
}

fn assert_close(one: &Outcome, other: &Outcome, tolerance: f64) {
    for (a, b) in one.losses.iter().zip(&other.losses) {
        assert!((a - b).abs() < tolerance, "losses {a} and {b}");
    }
    // The root mean square: a single parameter whose gradient is zero but for rounding strays by the learning rate.
    let pairs = one.parameters.iter().flatten().zip(other.parameters.iter().flatten());
    let (squares, count) =
        pairs.fold((0.0, 0), |(squares, count), (a, b)| (squares + f64::from(a - b).powi(2), count + 1));
    let distance = (squares / f64::from(count)).sqrt();
    assert!(distance < tolerance, "parameters differ by {distance} (root mean square)");
}

#[test]
fn ranks_and_one_rank_agree_to_rounding_over_20_steps() {
    for stage in 0..4 {
        for ranks in [2, 3, 4] {
            let alone = run::<Untied>(Config { micro_batches: ranks, ..CONFIG.at_stage(stage) }, 20);
            let together = run::<Untied>(Config { ranks, ..CONFIG.at_stage(stage) }, 20);
            assert_close(&alone, &together, 2e-4);
        }
    }
}

#[test]
fn two_ranks_agree_with_one_of_twice_the_sequences() {
    let alone = run::<Wide>(Config { sequences: 4, ..CONFIG }, 20);
    let together = run::<Untied>(Config { ranks: 2, ..CONFIG.at_stage(3) }, 20);
    assert_close(&alone, &together, 2e-4);
}

#[test]
fn other_data_or_no_clipping_give_another_result() {
    // Else all of the above could pass by training on nothing.
    let config = Config { ranks: 2, ..CONFIG };
    let one = run::<Untied>(config, 3);
    let other = train::<Untied>(config, HYPER, 3, Start::Seed(7), &|_, _, _, ids, targets| {
        ids.fill(1);
        targets.fill(2);
    });
    assert!(one.losses != other.losses);
    let unclipped = train::<Untied>(config, Hyper { clip: None, ..HYPER }, 3, Start::Seed(7), &noise(config));
    assert!(one.parameters != unclipped.parameters);
}

#[test]
fn sent_bytes_and_arenas_are_those_of_the_plan() {
    for ranks in 1..=4 {
        for micro_batches in [1, 3] {
            for config in configurations(ranks, micro_batches) {
                let plan = PlanBuf::new("", config, Tied::PLAN.units);
                let plan = plan.as_plan();
                let outcome = run::<Tied>(config, 2);
                let mut planned = Traffic::of(&plan, plan.step);
                planned += planned;
                assert_eq!(outcome.sent, planned, "{config:?}");
                assert_eq!(outcome.arena_bytes, plan.memory.bytes_per_rank(), "{config:?}");
            }
        }
    }
}

#[test]
fn sent_bytes_are_the_published_volumes() {
    for ranks in [2, 3, 4] {
        for transport in [Transport::Local, Transport::Shm] {
            for stage in 0..4 {
                let config = Config { ranks, transport, ..CONFIG.at_stage(stage) };
                let plan = PlanBuf::new("", config, Untied::PLAN.units);
                let plan = plan.as_plan();
                // (N-1)/N of all padded parameters, and of the last unit's.
                let share = |elements: usize| elements / ranks * (ranks - 1) * 4;
                let psi = share(plan.padded());
                let last = share(plan.placements.last().expect("a unit").padded);
                let expected = [2 * psi, 2 * psi, 2 * psi, 3 * psi - last][usize::from(stage)];
                assert_eq!(run::<Untied>(config, 1).sent.payload_bytes(), expected, "{config:?}");
            }
        }
    }
}
