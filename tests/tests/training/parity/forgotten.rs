//! Forgotten: in a debug build, outputs that a layer does not write are NaN, so a step ends in an error that names its unit,
//! whatever the memory held before.

use zero_core::layer::cost::bytes;
use zero_core::model::Program;
use zero_engine::{Engine, FaultyPhase, RunError};
use zero_plan::PlanBuf;
use zero_ranks::transport::local;
use zero_runtime::author::{Backward, Context, Device, Forward, Init, Shape, Tensors};
use zero_runtime::prelude::*;
use zero_tests::tiny::{DIM, VOCAB};
use zero_tests::training::{CONFIG, HYPER, noise};

/// Multiplies each feature by a gain; forgets one output.
struct Forgets<const WHAT: usize>;

const OUTPUT: usize = 0;
const SAVED: usize = 1;
const WORK: usize = 2;
const WORK_OF_BACKWARD: usize = 3;
const DX: usize = 4;
const GRADS: usize = 5;
const NOTHING: usize = 6;

impl<S: Shape<Device = Cpu, Compute = f32>, const WHAT: usize> Layer<S, Features<DIM>> for Forgets<WHAT> {
    type Output = Features<DIM>;
    const PARAMS: usize = 1;
    const SAVED: usize = bytes::<f32>(1);
    const WORKSPACE: usize = bytes::<f32>(1);

    fn tensors(out: &mut Tensors) {
        out.add("gain", &[1], Init::Ones);
    }

    fn forward(_: &Context<Cpu>, pass: Forward<S, Features<DIM>>) {
        let (gain, work) = (pass.params.as_slice()[0], pass.work.take::<f32>(1).0.into_slice());
        if WHAT != WORK {
            work[0] = gain;
        }
        if WHAT != SAVED {
            pass.saved.take::<f32>(1).0.into_slice()[0] = gain;
        }
        if WHAT != OUTPUT {
            pass.y.into_slice().iter_mut().zip(pass.x.as_slice()).for_each(|(y, x)| *y = work[0] * x);
        }
    }

    fn backward(_: &Context<Cpu>, pass: Backward<S, Features<DIM>>) {
        let gain = pass.saved.take::<f32>(1).0.as_slice()[0];
        let work = pass.work.take::<f32>(1).0.into_slice();
        let dot: f32 = pass.x.as_slice().iter().zip(pass.dy.as_slice()).map(|(x, dy)| x * dy).sum();
        if WHAT != WORK_OF_BACKWARD {
            work[0] = gain;
        }
        if WHAT != DX {
            let dx = pass.dx.expect("it is not the first").into_slice();
            dx.iter_mut().zip(pass.dy.as_slice()).for_each(|(dx, dy)| *dx = work[0] * dy);
        }
        if WHAT != GRADS {
            pass.grads.into_parts().0.into_slice()[0] = dot;
        }
    }
}

/// The result of a step of a model with a layer that forgets an output.
fn step<D: Device>(program: &'static Program<D>) -> Result<f64, RunError> {
    let config = CONFIG.at_stage(2);
    let told = PlanBuf::new("", config, program.plan.units).with(|plan| {
        local::run(
            plan,
            |_| false,
            |transport| {
                let mut engine = Engine::new(program, transport);
                engine.initialize(7);
                let noise = noise(config);
                engine.step(&HYPER, |micro_batch, ids, targets| noise(0, 0, micro_batch, ids, targets))
            },
        )
    });
    told.expect("the memory of a tiny model").remove(0).map(|report| report.loss)
}

macro_rules! forgets {
    ($($name:ident: $what:ident, $expected:expr;)*) => {
        $(#[test]
        fn $name() {
            #[zero(stage = 0, ranks = 1, sequences = 2, length = 11)]
            struct Model {
                embed: Embedding<VOCAB, 12, DIM>,
                forgetful: Forgets<$what>,
                head: LmHead<DIM, VOCAB>,
            }
            let expected: Option<FaultyPhase> = if cfg!(debug_assertions) { $expected } else { None };
            match (step(Model::PROGRAM), expected) {
                (Err(RunError::NonFinite(found)), Some(phase)) => {
                    assert_eq!((found.unit.as_str(), found.phase), ("forgetful", phase));
                }
                (Ok(_), None) => {}
                (told, expected) => panic!("{told:?}, not {expected:?}"),
            }
        })*
    };
}

forgets! {
    an_output: OUTPUT, Some(FaultyPhase::Forward);
    what_backward_needs: SAVED, Some(FaultyPhase::Backward);
    scratch_that_forward_reads: WORK, Some(FaultyPhase::Forward);
    scratch_that_backward_reads: WORK_OF_BACKWARD, Some(FaultyPhase::Backward);
    the_gradient_of_the_input: DX, Some(FaultyPhase::Backward);
    gradients_of_parameters: GRADS, Some(FaultyPhase::Backward);
    nothing: NOTHING, None;
}
