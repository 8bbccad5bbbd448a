//! Packages: the crates that can be published have all that a registry asks for, and no page tells a reader to install a package of
//! somebody else. Packs nothing: `tests/packed.sh` does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Cargo's description of the packages of this workspace.
fn packages() -> Vec<Value> {
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]).current_dir(root());
    let output = metadata.output().expect("cargo");
    assert!(output.status.success(), "{output:?}");
    let mut metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    serde_json::from_value(metadata["packages"].take()).expect("a list")
}

/// Whether cargo would publish it.
fn is_published(package: &Value) -> bool {
    package["publish"].is_null()
}

#[test]
fn crates_can_be_published() {
    let packages = packages();
    let published: Vec<&Value> = packages.iter().filter(|package| is_published(package)).collect();
    let names: Vec<&str> = published.iter().filter_map(|package| package["name"].as_str()).collect();
    assert!(names.contains(&"zero-command") && names.contains(&"zero-runtime"), "{names:?}");
    for package in &published {
        let name = &package["name"];
        for key in ["description", "readme", "license", "rust_version"] {
            assert!(package[key].as_str().is_some_and(|text| !text.is_empty()), "{name} has no {key}");
        }
        // As many as crates.io takes.
        let keywords = package["keywords"].as_array().map_or(0, Vec::len);
        assert!((1..=5).contains(&keywords), "{name} has {keywords} keywords");
        let folder = Path::new(package["manifest_path"].as_str().expect("a path")).parent().expect("a folder");
        assert!(folder.join(package["readme"].as_str().expect("a path")).is_file(), "{name} has no README");
        // All are of one release. Cargo asks for the versions of all crates that a published one depends on.
        assert_eq!(package["version"], published[0]["version"], "{name}");
        for dependency in package["dependencies"].as_array().expect("a list") {
            if dependency["path"].is_string() {
                let (of, version) = (&dependency["name"], published[0]["version"].as_str().expect("a version"));
                assert!(
                    names.contains(&of.as_str().expect("a name")),
                    "{name} depends on {of}, which is not published"
                );
                assert_eq!(dependency["req"], format!("={version}"), "{name} depends on another {of}");
            }
        }
    }
}

/// The packages that a text has cargo install, by name.
fn installed(text: &str) -> Vec<&str> {
    let commands = text.split("cargo install").skip(1).map(|rest| rest.lines().next().unwrap_or_default());
    let words = commands.map(|command| command.split(|end| "`#&;\"".contains(end)).next().unwrap_or_default());
    let by_name = words.filter(|words| !words.contains("--path"));
    by_name.flat_map(|words| words.split_whitespace().filter(|word| !word.starts_with('-')).take(1)).collect()
}

/// All files that people read, and those from which `cargo zero init` makes others.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let ending = path.extension().unwrap_or_default();
        if path.is_dir() && !path.is_symlink() && !super::SKIPPED.iter().any(|skipped| path.ends_with(skipped)) {
            pages(&path, found);
        } else if ["md", "txt", "rs", "sh"].iter().any(|it| ending == *it) {
            found.push(path);
        }
    }
}

#[test]
fn nobody_is_told_to_install_a_package_of_others() {
    let mut found = Vec::new();
    pages(&root(), &mut found);
    let own: Vec<Value> = packages().into_iter().filter(is_published).collect();
    let mut commands = 0;
    for path in found.iter().filter(|path| !path.ends_with("sources/packages.rs")) {
        let Ok(text) = fs::read_to_string(path) else { continue };
        commands += text.matches("cargo install").count();
        for name in installed(&text) {
            let name = name.split('@').next().unwrap_or_default();
            assert!(own.iter().any(|package| package["name"] == name), "{} installs `{name}`", path.display());
        }
    }
    assert!(commands > 5, "pages are read in another way");
}

#[test]
fn what_a_command_installs_is_recognized() {
    for (text, names) in [
        ("cargo install zero", &["zero"][..]),
        ("`cargo install --locked cargo-zero`, and", &["cargo-zero"]),
        ("cargo install --locked zero-command@0.1.0\ncargo install zero-cli", &["zero-command@0.1.0", "zero-cli"]),
        ("cargo install --locked --path zero-cli\n", &[]),
    ] {
        assert_eq!(installed(text), names, "{text}");
    }
}
