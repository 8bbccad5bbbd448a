use zero_runtime::engine::Engine;
use zero_runtime::prelude::*;
use zero_runtime::transport::Transport;

fn peek<'p, M: Model, T: Transport<'p>>(engine: &Engine<'p, M, T>) -> f32 {
    engine.transport().gathered(0).as_slice()[0]
}

fn main() {}
