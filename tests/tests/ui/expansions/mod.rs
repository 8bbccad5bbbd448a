//! Expansions: structs that `#[zero]` and `#[derive(Layer)]` accept without a warning, and the resulting units, names and options.
//! Never trains.
#![deny(warnings)]

mod alternating;
mod device;
mod gpt;
mod mlp;
mod published;
mod vocabulary;
