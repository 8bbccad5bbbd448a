//! A layer of one's own that is written for f32, in a model that computes in bf16.
use zero_runtime::{author::{Backward, Context, Forward, Shape, Tensors}, prelude::*};

struct Twice;

impl<S: Shape<Device = Cpu, Compute = f32>> Layer<S, Features<8>> for Twice {
    type Output = Features<8>;
    const PARAMS: usize = 0;
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;

    fn tensors(_: &mut Tensors) {}
    fn forward(_: &Context<Cpu>, _: Forward<S, Features<8>>) {}
    fn backward(_: &Context<Cpu>, _: Backward<S, Features<8>>) {}
}

#[zero(stage = 0, ranks = 1, sequences = 1, length = 4, compute = BF16)]
struct Gpt {
    embed: Embedding<65, 4, 8>,
    twice: Twice,
    head: LmHead<8, 65>,
}

fn main() {}
