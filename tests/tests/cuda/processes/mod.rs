//! Ranks that are processes, each with its own device. They share their memory with one another, as in real runs.

mod failures;
mod measuring;
mod training;

use std::process::Command;

use zero_tests::pretend;
use zero_tests::training::Told;

use crate::run::{Run, program};

/// A program of the tests on CUDA devices; none without pretend devices.
pub fn on_cuda(path: &str) -> Option<Command> {
    let mut command = program(&pretend::carried(path).to_string_lossy());
    command.envs(pretend::variables()?);
    Some(command)
}

/// Each rank's report of training under a layout, with further variables such as `PRETEND_SEED`, which determines the order in
/// which the pretend devices work.
///
/// # Panics
/// If it fails, or there are no devices.
pub fn told(name: &str, words: &[&str], variables: &[(&str, &str)]) -> Vec<Told> {
    let mut command = on_cuda(env!("CARGO_BIN_EXE_spec")).expect("devices");
    let end = Run::start(command.arg(name).args(words).envs(variables.iter().copied())).end();
    // On a busy machine, a rank may wait long enough to report it.
    let told: Vec<_> = end.errors.lines().filter(|line| !line.starts_with("note: rank ")).collect();
    assert_eq!((end.code, told), (Some(0), vec![]), "{name} {words:?}, {variables:?}");
    end.lines.iter().map(|line| Told::read(line)).collect()
}
