//! Whole programs as a person starts them: what they print, how they end, and that nothing of them is left. Each test
//! runs real binaries, most of them on three ranks; none looks inside. `rendezvous` alone has threads for ranks.

mod checkpoints;
mod deadlines;
mod faults;
mod findings;
mod launchers;
mod memory;
mod output;
mod profile;
mod pty;
mod rendezvous;
mod requests;
mod restarts;
mod run;
mod survival;
mod system;
mod teardown;
mod terminal;
mod training;
mod waits;
mod weights;
