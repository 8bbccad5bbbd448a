//! A perceptron: a derived layer that begins with an activation, one that begins the model, the longest tuple, and fields
//! with attributes for the compiler.
use zero_runtime::author::Shape;
use zero_runtime::prelude::*;

#[derive(Layer)]
struct Hidden<const W: usize> {
    act: Relu,
    map: Linear<W, W>,
}

#[derive(Layer)]
struct Stem {
    embed: Embedding<10, 8, 4>,
    widen: Linear<4, 32>,
}

#[zero(stage = 2, ranks = 4, bucket = KiB(4), sequences = 2, length = 8, transport = Local)]
struct Mlp {
    /// The compiler's attributes are kept.
    stem: Stem,
    #[allow(unused)]
    #[rustfmt::skip]
    long: (Relu, Gelu, Relu, Gelu, Relu, Gelu, Relu, Gelu, Relu, Gelu, Relu, Linear<32, 32>),
    hidden: [Hidden<32>; 1 + 1],
    head: LmHead<32, 10>,
}

#[test]
fn a_perceptron_has_the_options_of_its_attribute() {
    let config = &Mlp::PLAN.config;
    assert_eq!((config.stage, config.mesh.zero, config.bucket_bytes, config.prefetch), (2, 4, 4096, 0));
    assert_eq!((Mlp::SEQUENCES, Mlp::LENGTH), (2, 8));
    assert_eq!(Mlp::PLAN.params(), (10 + 8) * 4 + (4 * 32 + 32) + 3 * (32 * 32 + 32) + 10 * 32);
    assert_eq!(Mlp::PROGRAM.code.len(), 4);
}
