//! `cargo zero init` makes a crate that trains at once, and refuses names and folders that cannot be used.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn zero(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zero"));
    command.args(arguments).current_dir(directory).env_remove("ZERO_SPEC").env_remove("ZERO_TEXT");
    command
}

fn init(directory: &Path, arguments: &[&str]) -> Output {
    zero(directory, &[&["init"], arguments].concat()).output().expect("the command")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// That it compiles and trains is tested by the commands of its own CI workflow, in `.ci/full`.
#[test]
fn a_new_crate_is_complete() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = init(directory.path(), &["mine"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("zero-runtime, which this command was built from; `--zero PATH`"));
    let own = directory.path().join("mine");
    for file in
        [".github/workflows/ci.yml", ".gitignore", "Cargo.lock", "Cargo.toml", "README.md", "spec.ron", "src/main.rs"]
    {
        let text = fs::read_to_string(own.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(!text.contains("@NAME@") && !text.contains("@CLONE@"), "{file}: {text}");
    }
}

/// The crate's CI workflow checks this.
#[test]
fn a_new_crate_is_formatted() {
    let directory = tempfile::tempdir().expect("a directory");
    assert!(init(directory.path(), &["mine"]).status.success());
    let source = directory.path().join("mine/src/main.rs");
    let output = Command::new("rustfmt").args(["--edition", "2024", "--check"]).arg(source).output().expect("rustfmt");
    assert!(output.status.success(), "{}", text(&output.stdout));
}

#[test]
fn z0158_crate_that_cannot_be_made() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join("taken")).expect("a directory");
    fs::write(directory.path().join("taken/notes.txt"), "mine").expect("a file");
    fs::write(directory.path().join("file"), "mine").expect("a file");
    for (name, why) in [
        ("taken", "there is a folder of that name with files in it"),
        ("file", "there is a file of that name"),
        ("7b", "it does not begin with a letter"),
        ("a/b", "a name has only letters"),
    ] {
        let output = init(directory.path(), &[name]);
        let errors = text(&output.stderr);
        assert!(errors.starts_with(&format!("error[Z0158]: cannot create the crate `{name}` here: {why}")), "{errors}");
        assert_eq!(output.status.code(), Some(1));
    }
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 2, "nothing was written");
    // An empty folder is filled.
    fs::create_dir(directory.path().join("empty")).expect("a directory");
    assert!(init(directory.path(), &["empty"]).status.success());
}

#[test]
fn z0159_clone_without_a_runtime() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = init(directory.path(), &["mine", "--zero", "."]);
    assert!(text(&output.stderr).starts_with("error[Z0159]: no zero-runtime in "), "{}", text(&output.stderr));
    assert!(!directory.path().join("mine").exists());
    let clone = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = init(directory.path(), &["mine", "--zero", clone.to_str().expect("text")]);
    assert!(output.status.success() && text(&output.stdout).contains("as given by `--zero`"), "{output:?}");
}
