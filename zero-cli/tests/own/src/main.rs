//! A language model with a layer of its own, in a crate of its own.

use zero_runtime::author::*;
use zero_runtime::prelude::*;

/// Multiplies every feature by one learned factor.
struct Scale<const W: usize>;

impl<S: Shape<Device = Cpu, Compute = f32>, const W: usize> Layer<S, Features<W>> for Scale<W> {
    type Output = Features<W>;
    const PARAMS: usize = 1;
    const SAVED: usize = 0;
    const WORKSPACE: usize = 0;

    fn tensors(out: &mut Tensors) {
        out.add("factor", &[1], Init::Ones);
    }

    fn forward(_: &Context<Cpu>, pass: Forward<S, Features<W>>) {
        let factor = pass.params.as_slice()[0];
        for (y, x) in pass.y.into_slice().iter_mut().zip(pass.x.as_slice()) {
            *y = factor * x;
        }
    }

    fn backward(cx: &Context<Cpu>, pass: Backward<S, Features<W>>) {
        let (x, dy) = (pass.x.as_slice(), pass.dy.as_slice());
        let dot: f32 = x.iter().zip(dy).map(|(x, dy)| x * dy).sum();
        pass.grads.put(cx.device, (&[dot][..]).into());
        if let Some(dx) = pass.dx {
            let factor = pass.params.as_slice()[0];
            for (dx, dy) in dx.into_slice().iter_mut().zip(dy) {
                *dx = factor * dy;
            }
        }
    }
}

#[zero(spec = "my.ron")]
struct Mine {
    embed: Embedding<256, 64, 32>,
    blocks: [(LayerNorm<32>, Linear<32, 32>, Gelu, Scale<32>); 2],
    head: LmHead<32, 256>,
}

fn main() -> std::process::ExitCode {
    zero_runtime::main::<Mine>()
}

#[test]
fn the_gradient_is_right() {
    struct Small;
    impl Shape for Small {
        type Device = Cpu;
        type Compute = f32;
        const SEQUENCES: usize = 2;
        const LENGTH: usize = 3;
    }
    zero_runtime::testing::gradcheck::<Small, Features<5>, Scale<5>>();
}
