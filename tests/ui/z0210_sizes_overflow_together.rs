//! Each size fits in an integer, but their sum in bytes does not.
use zero_runtime::{layers::Classifier, prelude::*};

#[zero(stage = 3, sequences = 65536, length = 65536, micro_batches = 64)]
struct Mlp {
    wide: Linear<32768, 32768>,
    head: Classifier<32768, 10>,
}

fn main() {
    println!("{}", Mlp::PLAN.params());
}
