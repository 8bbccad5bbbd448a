//! A tuple whose last layer declares, as only a head may, that its backward computes the losses.
use zero_runtime::{author::{Backward, Context, Forward, Shape, Tensors}, prelude::*};

struct Same;

impl<S: Shape<Device = Cpu, Compute = f32>> Layer<S, Features<8>> for Same {
    type Output = Features<8>;
    const PARAMS: usize = 0;
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;
    const LOSSES_IN_BACKWARD: bool = true;

    fn tensors(_: &mut Tensors) {}
    fn forward(_: &Context<Cpu>, _: Forward<S, Features<8>, Features<8>>) {}
    fn backward(_: &Context<Cpu>, _: Backward<S, Features<8>, Features<8>>) {}
}

#[zero(stage = 0, ranks = 1, sequences = 1, length = 4)]
struct Gpt {
    embed: Embedding<65, 4, 8>,
    both: (Linear<8, 8>, Same),
    head: LmHead<8, 65>,
}

fn main() {}
