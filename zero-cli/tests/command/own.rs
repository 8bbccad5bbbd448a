//! A crate outside of this repository compiles under a spec with nothing but `zero-runtime`. Whether it trains is not
//! tested: that takes a release build, which takes too long here.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Copies the crate of `tests/own` out of the workspace, with the versions that the workspace is locked to, and checks it
/// as cargo does for a user: without network, under the spec of its attribute and then under that of `ZERO_SPEC`.
#[test]
fn a_crate_of_ones_own_compiles_and_obeys_its_spec() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Cargo's directory for the files of tests is below the workspace, so a crate there would be taken for a member.
    let directory = tempfile::tempdir().expect("a directory");
    let own = directory.path().join("a crate");
    fs::create_dir_all(own.join("src")).expect("a directory");
    for file in ["src/main.rs", "my.ron"] {
        fs::copy(here.join("tests/own").join(file), own.join(file)).expect("a file");
    }
    fs::copy(here.join("../Cargo.lock"), own.join("Cargo.lock")).expect("a lock file");
    // The crate has the profiles and the target folder of the workspace, so what was compiled or checked there serves here too.
    let workspace = fs::read_to_string(here.join("../Cargo.toml")).expect("a manifest");
    let (_, profiles) = workspace.split_once("[profile.").expect("profiles");
    let manifest = format!(
        "[package]\nname = \"mine\"\nedition = \"2024\"\n\n[dependencies]\nzero-runtime = {{ path = {:?} }}\n\n[profile.{profiles}",
        here.join("../zero-runtime")
    );
    fs::write(own.join("Cargo.toml"), manifest).expect("a manifest");

    let check = |spec: Option<&str>| {
        let mut cargo = Command::new(env!("CARGO"));
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("..");
        cargo.args(["check", "--offline", "--all-targets"]).current_dir(&own).env("CARGO_TARGET_DIR", target);
        cargo.env_remove("ZERO_SPEC").env_remove("ZERO_TEXT").envs(spec.map(|spec| ("ZERO_SPEC", spec)));
        let output = cargo.output().expect("cargo");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (compiles, errors) = check(None);
    assert!(compiles, "{errors}");
    let bad = fs::read_to_string(own.join("my.ron")).expect("a spec").replace("prefetch", "prefech");
    fs::write(own.join("bad.ron"), bad).expect("a spec");
    // Relative to the workspace, which is the crate's directory here.
    let (compiles, errors) = check(Some("bad.ron"));
    assert!(!compiles && errors.contains("[Z0107] unknown key `prefech` in `zero`"), "{errors}");
    assert!(errors.contains("bad.ron:4:22"), "{errors}");
}
