//! Hardware: runs the tests for a GPU without a GPU, with the pretend libraries in place of CUDA's own. A test that uses a feature
//! that only the pretend libraries have fails here. On a GPU, these tests run directly.

use std::process::Command;

use zero_tests::pretend;

/// Tests that use features of the pretend libraries, or start processes. Slow tests that only compute are left out.
const TESTS: [&str; 5] = ["failures::", "graphs::memory", "spine::graphs::", "spine::queues::", "training::ranks"];

#[test]
fn tests_of_a_gpu_ask_for_nothing_else() {
    if zero_tests::long::is_left_out("tests as on a GPU") || pretend::libraries().is_none() {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--test-threads=1").args(TESTS);
    command.envs(pretend::variables().expect("libraries")).env("ZERO_TEST_GPU", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
