//! Checkpoints: a save that ends anywhere leaves a whole newest checkpoint. `disk` has a file system that loses unflushed data, and
//! one whose operations fail; `crash` ends saves on the first, `failing` continues after errors of the other.

mod crash;
mod disk;
mod failing;
mod save;
