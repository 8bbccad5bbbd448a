//! Errors of the command: found before anything is built, told once, with their place and a way out.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use zero_plan::diagnostic::CODES;

/// Writes `spec` to a directory of its own and runs `zero build` on it: what it says on standard error.
fn errors_of(name: &str, spec: &str) -> String {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join("my.ron"), spec).expect("a spec");
    build(&directory, "my.ron")
}

fn build(directory: &Path, spec: &str) -> String {
    refused(directory, &["build", spec])
}

/// Runs `zero` with arguments that it must refuse: what it says on standard error.
fn refused(directory: &Path, arguments: &[&str]) -> String {
    let output = zero(directory, arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).expect("text")
}

fn zero(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zero"));
    command.args(arguments).current_dir(directory).output().expect("the command")
}

/// Runs `zero explain` with arguments that it must take: what it says on standard output.
fn explained(arguments: &[&str]) -> String {
    let output = zero(Path::new("."), &[&["explain"], arguments].concat());
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn z0107_misspelled_key_is_shown_where_it_stands() {
    let errors = errors_of("misspelled", "(\n    model: Example(\"gpt\"),\n    zero: (stage: 3, prefech: 2),\n)\n");
    let expected = "\
error[Z0107]: unknown key `prefech` in `zero`
 --> my.ron:3:22
  |
3 |     zero: (stage: 3, prefech: 2),
  |                      ^^^^^^^ did you mean `prefetch`?";
    assert!(errors.starts_with(expected), "{errors}");
}

#[test]
fn all_errors_of_a_spec_come_at_once() {
    let errors = errors_of("several", "(\n    mesh: (zero: 0),\n    zero: (stage: 4, bukket: KiB(1)),\n)\n");
    for code in ["Z0106", "Z0105", "Z0107"] {
        assert_eq!(errors.matches(&format!("error[{code}]")).count(), 1, "{errors}");
    }
}

#[test]
fn a_plan_of_a_faulty_spec_is_refused_before_any_build() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(directory.join("stages.ron"), "(model: Example(\"gpt\"), zero: (stage: 4))").expect("a spec");
    let errors = refused(directory, &["plan", "stages.ron"]);
    assert!(errors.starts_with("error[Z0105]: stage 4 does not exist"), "{errors}");
}

#[test]
fn z0120_missing_spec() {
    let errors = build(Path::new(env!("CARGO_TARGET_TMPDIR")), "nowhere.ron");
    assert!(errors.starts_with("error[Z0120]: cannot read the spec nowhere.ron"), "{errors}");
}

#[test]
fn z0121_spec_without_a_model() {
    let errors = errors_of("modelless", "(zero: (stage: 1))");
    assert!(errors.starts_with("error[Z0121]: my.ron names no model"), "{errors}");
}

#[test]
fn z0122_unknown_model_lists_the_known_ones() {
    let errors = errors_of("unknown", "(model: Example(\"gtp\"), zero: (stage: 1))");
    assert!(errors.starts_with("error[Z0122]: my.ron names the model `gtp`"), "{errors}");
    assert!(errors.contains("gpt"), "{errors}");
}

#[test]
fn codes_are_explained() {
    let page = explained(&["z0107"]);
    assert!(page.starts_with("Z0107: unknown key\n\nThere is no such key in this section."), "{page}");
    assert!(page.ends_with("\nExample:\n\n    (zero: (stage: 3, prefech: 2))\n"), "{page}");
    let all = explained(&[]);
    assert_eq!(all.lines().count(), CODES.len());
    assert!(all.starts_with("Z0101  not RON\n"), "{all}");
}

#[test]
fn z0129_unknown_code() {
    let errors = refused(Path::new("."), &["explain", "Z017"]);
    let expected = "error[Z0129]: no message has the code `Z017`\n  = help: did you mean Z0107, unknown key?";
    assert!(errors.starts_with(expected), "{errors}");
    let errors = refused(Path::new("."), &["explain", "prefetch"]);
    assert!(errors.ends_with("= help: `cargo zero explain` lists all codes\n"), "{errors}");
}
