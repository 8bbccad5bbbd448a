//! States: a run that starts from the states that another run read from its engines continues it to the bit.

use std::convert::Infallible;

use zero_core::model::Model;
use zero_engine::Engine;
use zero_plan::place::State;
use zero_plan::{Config, Mesh, OptimizerKind, PlanBuf, Precision, TransportKind, Width};
use zero_ranks::transport::{Shared, local};
use zero_runtime::device::Cpu;
use zero_tests::tiny::Tied;
use zero_tests::training::{CONFIG, HYPER, noise};

type Ranks<'p> = Engine<'p, Cpu, Shared<'p, Cpu>>;

/// A rank's data of a unit: all parameters, and each stored state with the element at which it begins.
type Kept = (Vec<f32>, Vec<(State, usize, Vec<f32>)>);

const OPTIMIZERS: [OptimizerKind; 2] = [OptimizerKind::AdamW, OptimizerKind::Muon];

const STATES: [State; 3] = [State::Master, State::FirstMoment, State::SecondMoment];

/// Bits of the losses of some steps.
fn losses(engine: &mut Ranks, config: Config, steps: std::ops::Range<u64>) -> Vec<u64> {
    let (batch, rank) = (noise(config), engine.arena().coordinates().data_rank(&config.mesh));
    let loss =
        |step| engine.step(&HYPER, |part, ids, targets| batch(step, rank, part, ids, targets)).expect("a step").loss;
    steps.map(loss).map(f64::to_bits).collect()
}

fn kept(engine: &mut Ranks) -> Vec<Kept> {
    let of_unit = |unit| {
        let parameters = engine.parameters(unit).expect("no rank fails").expect("one pipeline stage");
        let states = STATES
            .into_iter()
            .filter_map(|state| engine.state(state, unit).map(|(stretch, numbers)| (state, stretch.start, numbers)));
        (parameters, states.collect())
    };
    (0..Tied::PLAN.units.len()).map(of_unit).collect()
}

#[test]
fn a_run_is_taken_up_where_another_ended() {
    let narrow = Precision { params: Width::BF16, ..Precision::default() };
    for (stage, optimizer) in (0..4).flat_map(|stage| OPTIMIZERS.map(|optimizer| (stage, optimizer))) {
        for (precision, transport) in [(Precision::default(), TransportKind::Shm), (narrow, TransportKind::Local)] {
            let config = Config { mesh: Mesh::of_zero(2), precision, transport, optimizer, ..CONFIG.at_stage(stage) };
            PlanBuf::new("", config, Tied::PLAN.units).with(|plan| {
                let first = |transport: Shared<'_, Cpu>| {
                    let mut engine = Ranks::new(Tied::PROGRAM, transport);
                    engine.initialize(7);
                    losses(&mut engine, config, 0..2);
                    (kept(&mut engine), losses(&mut engine, config, 2..4))
                };
                let first = local::run(plan, |_| false, first).expect("memory");
                let second = |transport: Shared<'_, Cpu>| {
                    let mut engine = Ranks::new(Tied::PROGRAM, transport);
                    let kept = &first[engine.arena().rank()].0;
                    (0..).zip(kept).for_each(|(unit, (parameters, _))| engine.load(unit, parameters));
                    for (unit, (_, states)) in kept.iter().enumerate() {
                        for (state, first, numbers) in states {
                            let fill = |start: usize, values: &mut [f32]| {
                                values.copy_from_slice(&numbers[start - first..][..values.len()]);
                                Ok::<_, Infallible>(())
                            };
                            engine.set_state(*state, unit, fill).unwrap_or_else(|never| match never {});
                        }
                    }
                    engine.set_steps_done(2);
                    losses(&mut engine, config, 2..4)
                };
                for (rank, found) in local::run(plan, |_| false, second).expect("memory").iter().enumerate() {
                    assert_eq!(*found, first[rank].1, "rank {rank}: {config:?}");
                }
            });
        }
    }
}
