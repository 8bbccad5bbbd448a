//! A head of one's own that returns features.
use zero_runtime::{author::{Backward, Context, Forward, Head, Shape, Tensors}, prelude::*};
use zero_core::view::{View, ViewMut};

struct Pairs;

impl<S: Shape<Device = Cpu, Compute = f32>> Layer<S, Features<8>> for Pairs {
    type Output = Features<2>;
    const PARAMS: usize = 0;
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;

    fn tensors(_: &mut Tensors) {}
    fn forward(_: &Context<Cpu>, _: Forward<S, Features<8>, Features<2>>) {}
    fn backward(_: &Context<Cpu>, _: Backward<S, Features<8>, Features<2>>) {}
}

impl<S: Shape<Device = Cpu, Compute = f32>> Head<S> for Pairs {
    type Target = Tokens;
    const UNIT: &'static str = "nats";
    const CLASSES: usize = 65;

    fn logits(_: &Cpu, _: View<Cpu, f32>, _: View<Cpu, f32>, _: ViewMut<Cpu, f32>) {}
}

#[zero(stage = 0, ranks = 1, sequences = 1, length = 4)]
struct Gpt {
    embed: Embedding<65, 4, 8>,
    head: Pairs,
}

fn main() {}
