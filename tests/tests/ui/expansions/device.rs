//! A device that is a type of this crate, with a spec that names another device.
use zero_runtime::author::Shape;
use zero_runtime::prelude::*;

mod own {
    pub type Processor = zero_runtime::device::Cpu;
}

#[zero(spec = "ui/specs/zero3.ron", device = own::Processor)]
struct Gpt {
    embed: Embedding<65, 256, 8>,
    norm: LayerNorm<8>,
    head: LmHead<8, 65>,
}

#[test]
fn a_device_may_be_a_type_of_the_crate() {
    let _: own::Processor = <Gpt as Shape>::Device::default();
    assert_eq!(Gpt::PLAN.config.stage, 3);
}
