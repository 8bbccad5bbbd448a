//! Which binary starts, where it lies and which text lies beside it: with a workspace that has a small program in place of a model,
//! and a script in place of cargo that compiles it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command};

use crate::workspace::{Workspace, said};

/// Prints its name, the spec that it was compiled with, and its arguments. When it is asked to prove its plan, it acts
/// like another build that ends: it moves the file that OTHER names to its own path.
const PROGRAM: &str = r#"
fn main() {
    let path = std::env::args().next().unwrap();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments != ["--prove"] {
        print!("{} {} {arguments:?}", env!("NAME"), include_str!(env!("ZERO_SPEC")));
    } else if let Ok(other) = std::env::var("OTHER") {
        std::fs::rename(other, path).unwrap();
    }
}
"#;

#[test]
fn specs_of_one_stem_are_two_binaries() {
    let workspace = Workspace::new(PROGRAM);
    workspace.spec("a/x.ron").spec("b/x.ron");
    let (a, b) = (workspace.built("a/x.ron"), workspace.built("b/x.ron"));
    for (path, name) in [(a, "a/x.ron"), (b, "b/x.ron")] {
        assert_eq!(path, workspace.root.join("target/zero/bin").join(name).join("model"));
        assert!(said(Command::new(path).output().expect("a binary")).contains(name));
    }
    // All at once: each command starts the binary that it has built.
    let names = ["a/x.ron", "b/x.ron", "a/x.ron", "b/x.ron"];
    let start = |name: &str| workspace.command(&format!("run {name} -- --steps 5")).spawn().expect("the command");
    let runs: Vec<Child> = names.iter().map(|name| start(name)).collect();
    for (run, name) in runs.into_iter().zip(names) {
        let said = said(run.wait_with_output().expect("the command"));
        assert!(said.starts_with("model ") && said.contains(name) && said.ends_with(r#"["--steps", "5"]"#), "{said}");
    }
}

#[test]
fn a_binary_is_told_what_to_do_instead_of_training() {
    let workspace = Workspace::new(PROGRAM);
    workspace.spec("x.ron");
    for (line, arguments) in [
        ("sample x.ron -- --prompt a", r#"["--only=sample", "--prompt", "a"]"#),
        ("sample x.ron", r#"["--only=sample"]"#),
        ("evaluate x.ron -- --data b", r#"["--only=evaluate", "--data", "b"]"#),
    ] {
        let said = workspace.said(line);
        assert!(said.starts_with("model ") && said.trim_end().ends_with(arguments), "{line}: {said}");
    }
}

/// It also lies elsewhere, so that no run starts it.
#[test]
fn a_program_that_is_only_asked_is_compiled_without_optimising_its_crate() {
    let workspace =
        Workspace::new(r#"fn main() { print!("{} {}", std::env::args().next().unwrap(), env!("ARGUMENTS")) }"#);
    workspace.spec("x.ron");
    for (line, binary, is_optimised) in [
        ("plan x.ron", "x.ron/asked/model", false),
        ("plan x.ron --schedule", "x.ron/asked/model", false),
        ("run x.ron", "x.ron/model", true),
    ] {
        let said = workspace.said(line);
        assert!(said.contains(&format!("target/zero/bin/{binary} build --release ")), "{line}: {said}");
        assert_eq!(
            !said.contains(" --config profile.release.package.\"model\".opt-level=0 "),
            is_optimised,
            "{line}: {said}"
        );
    }
}

#[test]
fn a_build_waits_for_another_one() {
    let workspace = Workspace::new(PROGRAM);
    workspace.spec("x.ron").write("target/zero/build/lock", "");
    let lock = fs::File::open(workspace.root.join("target/zero/build/lock")).expect("a lock");
    lock.lock().expect("the lock");
    let mut build = workspace.command("build x.ron").spawn().expect("the command");
    let mut errors = BufReader::new(build.stderr.take().expect("standard error")).lines();
    let first = errors.next().expect("a line before the lock is free").expect("text");
    assert_eq!(first, "waiting for another `cargo zero` to build");
    drop(lock);
    assert!(errors.next().expect("a line").expect("text").contains("target/zero/bin/x.ron/model.txt: "));
    assert!(said(build.wait_with_output().expect("the command")).contains("x.ron"));
}

#[test]
fn what_starts_is_what_was_proven_even_if_another_build_replaces_it() {
    let workspace = Workspace::new(PROGRAM);
    workspace.spec("x.ron").spec("y.ron");
    let other = workspace.root.join("other");
    fs::copy(workspace.built("y.ron"), &other).expect("a copy");
    let said = said(workspace.command("run x.ron").env("OTHER", &other).output().expect("the command"));
    assert!(said.contains("x.ron"), "{said}");
    assert!(!other.exists(), "the other one was not put in its place");
}

#[test]
fn no_spec_overwrites_what_the_command_keeps_for_itself() {
    let workspace = Workspace::new(PROGRAM);
    workspace.spec("fresh.ron").spec("lock.ron").spec("build/lock");
    for name in ["fresh.ron", "lock.ron", "build/lock"] {
        assert!(workspace.said(&format!("run {name}")).contains(name));
    }
}

#[test]
fn what_git_ignores_is_not_beside_a_binary_and_what_is_can_be_listed() {
    let workspace = Workspace::new(PROGRAM);
    workspace.spec("x.ron").write("secret.toml", "token = \"not for others\"\n");
    workspace.write("notes.md", "for everybody\n");
    workspace.write(".gitignore", "secret.toml\n");
    let output = workspace.command("build x.ron").output().expect("the command");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        errors.contains("model.txt: 4 files of the workspace, ") && errors.contains("`cargo zero build --list`"),
        "{errors}"
    );
    let beside = || fs::read_to_string(workspace.root.join("target/zero/bin/x.ron/model.txt")).expect("a text");
    assert!(beside().starts_with("==> Cargo.toml <==\n"), "{}", beside());
    assert!(beside().contains("for everybody") && !beside().contains("not for others"));
    // A changed text is put there, and the program is the same.
    let built = fs::read(said(output).trim_end()).expect("a binary");
    workspace.write("notes.md", "for all of us\n");
    assert!(fs::read(workspace.built("x.ron")).expect("a binary") == built);
    assert!(beside().contains("for all of us") && !beside().contains("for everybody"));
    // A text that cannot be made ends no build.
    workspace.write(".gitignore", "[z-a]\n");
    let output = workspace.command("build x.ron").output().expect("the command");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && errors.contains("model.txt is left as it is: "), "{errors}");
    assert!(beside().contains("for all of us"));
    workspace.write(".gitignore", "secret.toml\n");
    workspace.write("notes.md", "for everybody\n");
    let list = workspace.said("build --list");
    let names: Vec<_> = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
    assert_eq!(names[..2], [["12", "Cargo.toml"], ["14", "notes.md"]]);
    assert_eq!(names.iter().map(|line| line[1]).collect::<Vec<_>>(), ["Cargo.toml", "notes.md", "program.rs", "x.ron"]);
}

#[test]
fn a_package_of_several_binaries_has_one_place_for_each() {
    let workspace = Workspace::new(PROGRAM);
    workspace.spec("x.ron");
    assert!(workspace.said("run x.ron --bin other").starts_with("other "));
    assert!(workspace.said("run x.ron").starts_with("model "));
    assert!(workspace.built("x.ron --bin other").ends_with("x.ron/other"));
}

/// Cargo finds the command by the alias that `init` and `completions` write, and warns of nothing: not in a workspace with an alias of its
/// own, as a clone has, either.
#[test]
fn cargo_finds_the_command() {
    let workspace = Workspace::new(PROGRAM);
    workspace.spec("x.ron");
    let installed = workspace.root.join("installed");
    fs::create_dir(&installed).expect("a directory");
    for binary in [env!("CARGO_BIN_EXE_zero"), env!("CARGO_BIN_EXE_cargo-zero-installed")] {
        let name = Path::new(binary).file_name().expect("a name");
        std::os::unix::fs::symlink(binary, installed.join(name)).expect("a link");
    }
    let path = std::env::join_paths([installed].into_iter().chain(std::env::split_paths(env!("PATH"))));
    let path = path.expect("a path");
    let cargo = |words: &[&str]| {
        let mut cargo = Command::new(env!("CARGO"));
        let output = cargo.args(words).current_dir(&workspace.root).env("PATH", &path).output().expect("cargo");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("warning"), "{output:?}");
        said(output)
    };
    let alias = cargo(&["zero-installed", "completions", "cargo"]);
    fs::create_dir(workspace.root.join(".cargo")).expect("a directory");
    fs::write(workspace.root.join(".cargo/config.toml"), alias).expect("a file");
    assert!(cargo(&["zero", "explain", "Z0107"]).starts_with("Z0107: unknown key\n"));
    fs::write(workspace.root.join(".cargo/config.toml"), "[alias]\nzero = \"version\"\n").expect("a file");
    assert!(cargo(&["zero"]).starts_with("cargo "));
}

/// If the command and a program asked for different features of a crate, it and all crates that depend on it would
/// compile twice. That would take minutes before a newcomer's first step.
#[test]
fn the_command_and_a_program_are_built_on_the_same_crates() {
    let features = |package: &str| {
        let mut tree = Command::new(env!("CARGO"));
        tree.args(["tree", "--offline", "--edges", "normal,build", "--prefix", "none", "--format", "{p}|{f}"]);
        // As the alias of a clone builds the command.
        let output = tree.args(["--no-default-features", "--package", package]).output().expect("cargo");
        assert!(output.status.success(), "{output:?}");
        // One set of features for crates that a program links, and perhaps another for those that run while it
        // compiles.
        let mut features = BTreeMap::<String, BTreeSet<String>>::new();
        for line in String::from_utf8(output.stdout).expect("text").lines() {
            if let Some((package, of)) = line.trim_end_matches(" (*)").split_once('|') {
                features.entry(package.to_owned()).or_default().insert(of.to_owned());
            }
        }
        features
    };
    let (command, program) = (features("zero-command"), features("gpt"));
    let shared: Vec<_> = program.iter().filter_map(|(name, of)| Some((name, of, command.get(name)?))).collect();
    assert!(shared.len() > 100, "{shared:?}");
    for (name, of_program, of_command) in shared {
        let same = of_program.intersection(of_command).next().is_some();
        assert!(same, "{name}: a program asks for {of_program:?}, the command for {of_command:?}");
    }
}
