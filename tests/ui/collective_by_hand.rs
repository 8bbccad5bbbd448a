use zero_engine::Engine;
use zero_core::model::DeviceOf;
use zero_runtime::plan::place::Place;
use zero_runtime::prelude::*;
use zero_ranks::transport::Transport;

fn peek<'p, M: Model, T: Transport<'p, DeviceOf<M>>>(engine: &Engine<'p, DeviceOf<M>, T>, place: Place) -> usize {
    engine.transport().peer(0, place).len()
}

fn main() {}
