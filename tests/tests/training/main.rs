//! Training on ranks that are threads: the same results under every plan, those of other implementations, what is saved and
//! published of them, and the architectures of `examples/`. Never starts a process of several ranks, `parity::specs` apart.

mod checkpoints;
mod emulated;
mod golden;
mod models;
mod parity;
mod published;
mod weights;
