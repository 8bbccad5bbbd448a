//! A layer of one's own that does not declare its input.
use zero_runtime::{author::{Activation, Backward, Context, Forward, Shape, Tensors}, prelude::*};

struct Twice;

impl<S: Shape<Device = Cpu, Compute = f32>, X: Activation> Layer<S, X> for Twice {
    type Output = X;
    const PARAMS: usize = 0;
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;

    fn tensors(_: &mut Tensors) {}
    fn forward(_: &Context<Cpu>, _: Forward<S, X>) {}
    fn backward(_: &Context<Cpu>, _: Backward<S, X>) {}
}

#[zero(stage = 3)]
struct Gpt {
    twice: Twice,
    head: LmHead<8, 65>,
}

// Not `zero_runtime::main::<Gpt>()`, which would get the same error.
fn main() {}
