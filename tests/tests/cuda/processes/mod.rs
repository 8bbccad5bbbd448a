//! Ranks that are processes, each with a device of its own, which hand their memory to one another: as real runs start.

mod failures;
mod training;

use std::process::Command;

use zero_tests::pretend;

use crate::run::program;

/// A program of the tests on pretended devices; none where these cannot be built.
fn on_cuda(path: &str) -> Option<Command> {
    let mut command = program(path);
    command.envs(pretend::variables()?);
    Some(command)
}
