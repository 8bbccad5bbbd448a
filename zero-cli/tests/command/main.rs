//! The command as a person calls it: what it builds, writes, prints and refuses. Models are small programs in place of real ones,
//! but in `own` and `init`. Never trains on several ranks.

mod advise;
mod binaries;
mod checkpoints;
mod diff;
mod errors;
mod init;
mod kit;
mod launch;
mod offers;
mod own;
mod predictions;
mod sizes;
mod tokenize;
mod workspace;
