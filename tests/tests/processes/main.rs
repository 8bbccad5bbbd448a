//! Whole programs as a user starts them: their output, their exit codes, and that nothing of them is left. Each test runs real
//! binaries, most of them on three ranks, and none uses their internals. Only in `rendezvous` are ranks threads.

mod changes;
mod checkpoints;
mod deadlines;
mod disk;
mod faults;
mod findings;
mod launchers;
mod memory;
mod offload;
mod output;
mod profile;
mod pty;
mod publish;
mod rendezvous;
mod requests;
mod restarts;
mod run;
mod serve;
mod survival;
mod system;
mod teardown;
mod terminal;
mod tokens;
mod training;
mod waits;
mod weights;
