//! A build under `ZERO_SPEC`: the text of errors from constants. Never trains.

use std::path::Path;
use std::process::Command;

/// The output of cargo for the example that a spec names, checked under that spec.
fn check(name: &str, spec: &str) -> (bool, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, spec).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let check = Command::new(env!("CARGO"))
        .args(["check", "--package", "gpt", "--target-dir"])
        .arg(target)
        .current_dir(root)
        .env("ZERO_SPEC", &path)
        .output()
        .unwrap();
    (check.status.success(), String::from_utf8_lossy(&check.stderr).into_owned())
}

/// Without the feature that `cargo zero` would have enabled: one error, and no fallback to the processor.
#[test]
fn z0222_a_device_that_the_build_leaves_out() {
    let (succeeds, said) = check("gpus.ron", "(zero: (stage: 3), device: Cuda)\n");
    assert!(!succeeds && said.contains("[Z0222] `device` is Cuda, but zero-runtime is built without"), "{said}");
    assert_eq!(said.matches("error: [").count(), 1, "{said}");
}

/// The spec that was used, the place of the key in it, and which values are defaults.
#[test]
fn errors_of_constants_name_the_file_of_zero_spec() {
    let (succeeds, said) = check("tight.ron", "(\n    zero: (stage: 0),\n    memory: KiB(64),\n)\n");
    assert!(!succeeds, "{said}");
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
