//! Checkpoints: a save that ends anywhere leaves a whole newest checkpoint. `disk` has a file system that forgets what
//! was not flushed, and one whose operations fail; `crash` ends saves on the first, `failing` goes on after errors of
//! the other.

mod crash;
mod disk;
mod failing;
mod save;
