//! Expansions: structs that `#[zero]` and `#[derive(Layer)]` accept without a warning, and the units, names and options that
//! they become. Never trains.
#![deny(warnings)]

mod alternating;
mod device;
mod gpt;
mod mlp;
mod published;
mod vocabulary;
