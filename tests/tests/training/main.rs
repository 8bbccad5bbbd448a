//! Training on ranks that are threads: the same results under every plan and as in other implementations, saved and published
//! states, and the architectures of `examples/`. Starts no ranks as processes, except in `parity::specs`.

mod checkpoints;
mod emulated;
mod golden;
mod models;
mod parity;
mod published;
mod weights;
