//! Storeys: the crates of the workspace on which each of its crates may depend, so that a program that trains contains no advice,
//! and the command no engine. Ignores dependencies of tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use expect_test::expect_file;

/// The folder of each crate, and the crates of the workspace that it names as its dependencies.
const STOREYS: &[(&str, &[&str])] = &[
    ("zero-plan", &[]),
    ("zero-plan/study", &["zero-plan"]),
    ("zero-macros", &["zero-plan"]),
    ("zero-runtime/core", &["zero-plan"]),
    ("zero-runtime/cpu", &["zero-core", "zero-plan"]),
    ("zero-runtime/cuda", &["zero-core", "zero-plan"]),
    ("zero-runtime/engine", &["zero-core", "zero-plan"]),
    ("zero-runtime/files", &["zero-core", "zero-plan"]),
    ("zero-runtime/publish", &["zero-core", "zero-files", "zero-plan"]),
    ("zero-runtime/ranks", &["zero-core", "zero-plan"]),
    ("zero-runtime/serve", &["zero-core", "zero-files", "zero-publish"]),
    (
        "zero-runtime",
        &[
            "zero-core",
            "zero-cpu",
            "zero-cuda",
            "zero-engine",
            "zero-files",
            "zero-macros",
            "zero-plan",
            "zero-publish",
            "zero-ranks",
            "zero-serve",
        ],
    ),
    ("zero-cli", &["zero-core", "zero-cpu", "zero-files", "zero-plan", "zero-publish", "zero-ranks", "zero-study"]),
];

/// The crates of the workspace in the section `[dependencies]` of a manifest, in order.
fn dependencies(manifest: &str) -> Vec<&str> {
    let section = manifest.split("\n[dependencies]\n").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    let names = section.lines().filter_map(|line| line.split([' ', '.', '=']).next());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("zero-")).collect();
    names.sort();
    names
}

#[test]
fn crates_stand_only_on_those_below_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (folder, allowed) in STOREYS {
        let manifest = fs::read_to_string(root.join(folder).join("Cargo.toml")).expect("a manifest");
        assert_eq!(dependencies(&manifest), *allowed, "`{folder}` stands on other crates than before");
    }
}

/// A program that neither publishes nor computes on a GPU depends on these crates and no others: what serves its parameters is only in
/// programs that do that. `UPDATE_EXPECT=1` lists them anew.
#[test]
fn a_program_depends_on_what_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "tree",
        "--offline",
        "--locked",
        "--package",
        "gpt",
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]);
    let output = cargo.args(["--target", "x86_64-unknown-linux-gnu"]).current_dir(root).output().expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let names: BTreeSet<String> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.split(' ').next().map(|name| format!("{name}\n")))
        .collect();
    expect_file!["../../golden/dependencies.txt"].assert_eq(&names.into_iter().collect::<String>());
}
