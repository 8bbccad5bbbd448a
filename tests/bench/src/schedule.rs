//! Schedule: the cost of an op apart from the layers, measured on one rank with a model of many layers that compute nothing.

use std::time::Instant;

use zero_core::model::Program;
use zero_core::view::{View, ViewMut};
use zero_engine::{Engine, Hyper, RunError};
use zero_ranks::transport::local;
use zero_runtime::author::{Backward, Context, Device, Entry, Forward, Head, Init, Loss, Shape, Tensors};
use zero_runtime::plan::{Config, PlanBuf};
use zero_runtime::prelude::*;

use crate::Outcome;

/// An optimizer with every part on.
pub const HYPER: Hyper =
    Hyper { lr: 1e-3, beta1: 0.9, beta2: 0.95, momentum: 0.95, epsilon: 1e-8, weight_decay: 0.1, clip: Some(1.0) };

/// A layer that computes nothing and has `P` parameters. Memory that it does not write stays zero, as mapped.
pub struct Empty<const P: usize>;

/// The same layer at the end of a model.
pub struct EmptyHead<const P: usize>;

macro_rules! does_nothing {
    ($layer:ident, $output:ty) => {
        impl<S: Shape<Device = Cpu, Compute = f32>, const P: usize> Layer<S, Features<1>> for $layer<P> {
            type Output = $output;
            const PARAMS: usize = P;
            const SAVED: usize = 0;
            const WORKSPACE: usize = 0;

            fn tensors(out: &mut Tensors) {
                if P > 0 {
                    out.add("weight", &[P], Init::Zeros);
                }
            }

            fn forward(_: &Context<Cpu>, pass: Forward<S, Features<1>, $output>) {
                // A debug build has filled the memory that a layer must write with NaN.
                if cfg!(debug_assertions) {
                    pass.y.into_slice().fill(0.0);
                }
            }

            fn backward(cx: &Context<Cpu>, pass: Backward<S, Features<1>, $output>) {
                if cfg!(debug_assertions) {
                    pass.grads.put(cx.device, (&[0.0; P][..]).into());
                    pass.dx.into_iter().for_each(|dx| dx.into_slice().fill(0.0));
                }
            }
        }
    };
}

does_nothing!(Empty, Features<1>);
does_nothing!(EmptyHead, Loss);

impl<const P: usize> Entry for Empty<P> {
    type Input = Features<1>;
}

impl<S: Shape<Device = Cpu, Compute = f32>, const P: usize> Head<S> for EmptyHead<P> {
    type Target = Tokens;
    const UNIT: &'static str = "nothing";
    const CLASSES: usize = 1;

    fn logits(_: &Cpu, _: View<Cpu, f32>, _: View<Cpu, f32>, _: ViewMut<Cpu, f32>) {}
}

/// Layers with one parameter each.
#[zero(stage = 0, ranks = 1, sequences = 1, length = 1)]
pub struct Tiny {
    layers: [Empty<1>; 63],
    head: EmptyHead<1>,
}

/// Layers without parameters.
#[zero(stage = 0, ranks = 1, sequences = 1, length = 1)]
pub struct Bare {
    layers: [Empty<0>; 63],
    head: EmptyHead<0>,
}

/// The plan of a model at a stage, each unit with a bucket of its own, and the number of ops of its step.
pub fn plan<D: Device>(program: &'static Program<D>, stage: u8) -> (PlanBuf, usize) {
    let prefetch = if stage == 3 && program.plan.params() > 0 { 2 } else { 0 };
    let config = Config { stage, prefetch, bucket_bytes: 1, ..program.plan.config };
    let plan = PlanBuf::new(program.plan.model, config, program.plan.units);
    let ops = plan.with(|plan| plan.pipeline_stages[0].step.len());
    (plan, ops)
}

/// Seconds of each of several steps of a model, after a few warm-up steps.
///
/// # Errors
/// The errors of a step, or too little memory on the host.
pub fn time<D: Device>(program: &'static Program<D>, plan: &PlanBuf, steps: u64) -> Outcome<Vec<f64>> {
    let ranks = plan.with(|plan| {
        local::run(plan, Result::is_err, |transport| {
            let mut engine = Engine::new(program, transport);
            engine.initialize(0);
            let mut seconds = Vec::new();
            for _ in 0..UNTIMED + steps {
                let start = Instant::now();
                engine.step(&HYPER, |_, _, _| {})?;
                seconds.push(start.elapsed().as_secs_f64());
            }
            Ok::<_, RunError>(seconds.split_off(UNTIMED as usize))
        })
    })?;
    Ok(ranks.into_iter().next().expect("a plan has a rank")?)
}

/// Steps before those that count.
const UNTIMED: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_op_that_one_rank_has_is_there() {
        let of_a_unit = |stage| plan(Tiny::PROGRAM, stage).1 / Tiny::PLAN.units.len();
        // Forward, backward, claim, reduce, settle, update; at stage 3 also a gather, a wait and a release for each use.
        assert!(of_a_unit(0) >= 5, "{}", of_a_unit(0));
        assert!(of_a_unit(3) >= 8, "{}", of_a_unit(3));
        for plan in [plan(Tiny::PROGRAM, 0).0, plan(Tiny::PROGRAM, 3).0] {
            assert_eq!(time(Tiny::PROGRAM, &plan, 3).unwrap().len(), 3);
        }
        assert_eq!(time(Bare::PROGRAM, &plan(Bare::PROGRAM, 0).0, 3).unwrap().len(), 3);
    }
}
