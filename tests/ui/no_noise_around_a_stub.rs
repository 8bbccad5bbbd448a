//! The model is used in every way, but only the attribute is wrong.
use zero_runtime::prelude::*;

#[zero(stage = 4)]
struct Mlp {
    hidden: [Linear<8, 8>; 2],
    head: LmHead<8, 65>,
}

const STAGE: u8 = Mlp::PLAN.config.stage;
static UNITS: [u8; Mlp::PLAN.units.len()] = [STAGE; _];

fn takes_features<M: Model<Input = Features<8>>>() -> usize {
    M::PROGRAM.head.classes
}

fn main() {
    println!("{} {} {}", takes_features::<Mlp>(), UNITS.len(), Mlp::SEQUENCES);
}
