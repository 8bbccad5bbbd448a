//! Parameters are released when the call ends.
use zero_runtime::{author::{Activation, Backward, Context, Forward, Init, Shape, Tensors}, prelude::*};

use std::cell::Cell;
use zero_core::view::View;

thread_local!(static KEPT: Cell<Option<View<'static, Cpu, f32>>> = const { Cell::new(None) });

struct Hoarder;

impl<S: Shape<Device = Cpu, Compute = f32>, X: Activation> Layer<S, X> for Hoarder {
    type Output = X;
    const PARAMS: usize = 1;
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;

    fn tensors(out: &mut Tensors) {
        out.add("factor", &[1], Init::Ones);
    }

    fn forward(_: &Context<Cpu>, pass: Forward<S, X>) {
        KEPT.set(Some(pass.params));
    }

    fn backward(_: &Context<Cpu>, _: Backward<S, X>) {}
}

fn main() {}
