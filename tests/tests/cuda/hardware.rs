//! Hardware: the tests that run on a GPU, without one. They take the pretend libraries for CUDA's own, so that what they ask of the
//! pretend ones alone shows here. Where a GPU is, they run by themselves.

use std::process::Command;

use zero_tests::pretend;

/// Those that ask the pretend libraries for something, or start processes; and not those that take long, and only compute.
const TESTS: [&str; 5] = ["failures::", "graphs::memory", "spine::graphs::", "spine::queues::", "training::ranks"];

#[test]
fn tests_of_a_gpu_ask_for_nothing_else() {
    if pretend::libraries().is_none() {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--test-threads=1").args(TESTS);
    command.envs(pretend::variables().expect("libraries")).env("ZERO_TEST_GPU", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
