//! Long: slow tests run only if `ZERO_TEST_FULL` is set, as `.ci/full` sets it; and skipped tests are reported. Never
//! decides which tests are slow. Those are the tests of several hosts, Slurm and torchrun, long tests on pretend
//! devices, and kills at each system call of a save or a tier.

use std::fs::OpenOptions;
use std::io::Write;

/// Whether the calling test, or a part of it, is skipped because it takes long. Reports a skipped test.
pub fn is_left_out(what: &str) -> bool {
    let is_left_out = std::env::var_os("ZERO_TEST_FULL").is_none();
    if is_left_out {
        report_skipped(what, "it takes long, and ZERO_TEST_FULL is not set");
    }
    is_left_out
}

/// Prints what a test lacks, even if the test passes, and adds the line to the file that `ZERO_TEST_SKIPPED` names, so that skipped
/// tests can be counted.
///
/// # Panics
/// If the file cannot be written.
pub fn report_skipped(what: &str, why: &str) {
    let line = format!("SKIPPED: no {what}: {why}\n");
    // Output of the macros is not shown for a test that passes.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("ZERO_TEST_SKIPPED") {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("a file to count in");
    }
}
