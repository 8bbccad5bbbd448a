//! Long: tests that take so long that they only run where `ZERO_TEST_FULL` is set, as `.ci/full` does; and the report of what is
//! skipped. Never decides which tests these are.

use std::fs::OpenOptions;
use std::io::Write;

/// Whether the calling test, or a part of it, is left out because it takes long. Reports it then.
pub fn is_left_out(what: &str) -> bool {
    let is_left_out = std::env::var_os("ZERO_TEST_FULL").is_none();
    if is_left_out {
        report_skipped(what, "it takes long, and ZERO_TEST_FULL is not set");
    }
    is_left_out
}

/// Prints what a test lacks, even if it passes, and adds the line to the file that `ZERO_TEST_SKIPPED` names, so that
/// skipped tests can be counted.
///
/// # Panics
/// If there can be no such file.
pub fn report_skipped(what: &str, why: &str) {
    let line = format!("SKIPPED: no {what}: {why}\n");
    // Output of the macros is not shown for a test that passes.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(path) = std::env::var_os("ZERO_TEST_SKIPPED") {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("a file to count in");
    }
}
