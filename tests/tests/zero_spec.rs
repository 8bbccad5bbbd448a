//! A build under `ZERO_SPEC`: what its errors of constants say. Never trains.

use std::path::Path;
use std::process::Command;

/// The spec that was really used, the place of the key in it and what is a default, in the words of that file.
#[test]
fn errors_of_constants_name_the_file_of_zero_spec() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let spec = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tight.ron");
    std::fs::write(&spec, "(\n    zero: (stage: 0),\n    memory: KiB(64),\n)\n").unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let check = Command::new(env!("CARGO"))
        .args(["check", "--package", "gpt", "--target-dir"])
        .arg(target)
        .current_dir(root)
        .env("ZERO_SPEC", &spec)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&check.stderr);
    assert!(!check.status.success(), "{said}");
    for expected in [
        "[Z0201] a rank needs ",
        "`memory` is KiB(64) at ",
        "tight.ron:3:5",
        "`sequences` is at its default, 4, in ",
        "`length` is at its default, 256, in ",
    ] {
        assert!(said.contains(expected), "no {expected:?} in\n{said}");
    }
    assert!(!said.contains("stage = "), "the words of an attribute, but the spec is a file:\n{said}");
}
