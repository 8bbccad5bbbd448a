//! Errors of the command: they are found before anything is built, and reported once, with their place and a way out.

#[path = "../../../tests/tests/processes/pty.rs"]
mod pty;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use signal_hook::consts::SIGPIPE;
use zero_plan::diagnostic::CODES;

/// Writes `spec` to a directory of its own, runs `zero build` on it, and gives what that says on standard error.
fn errors_of(name: &str, spec: &str) -> String {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).expect("a directory");
    std::fs::write(directory.join("my.ron"), spec).expect("a spec");
    build(&directory, "my.ron")
}

fn build(directory: &Path, spec: &str) -> String {
    refused(directory, &["build", spec])
}

/// Runs `zero` with arguments that it must refuse, and gives what it says on standard error.
fn refused(directory: &Path, arguments: &[&str]) -> String {
    let output = zero(directory, arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).expect("text")
}

fn zero(directory: &Path, arguments: &[&str]) -> Output {
    command(directory, arguments).output().expect("the command")
}

fn command(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zero"));
    command.args(arguments).current_dir(directory).env_remove("NO_COLOR");
    command
}

/// Runs `zero explain` with arguments that it must take, and gives what it says on standard output.
fn explained(arguments: &[&str]) -> String {
    let output = zero(Path::new("."), &[&["explain"], arguments].concat());
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// As with `ulimit -s 64`.
#[test]
fn a_small_stack_is_enough() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("my.ron"), "(mesh: (zero: 3), zero: (stage: 4))").expect("a spec");
    std::fs::write(directory.path().join("ds.json"), r#"{"zero_optimization": {"stage": 3}}"#).expect("a config");
    for arguments in [&["--help"][..], &["explain"], &["plan", "my.ron"], &["import", "ds.json"]] {
        let whole = zero(directory.path(), arguments);
        let mut small = Command::new("bash");
        small.args(["-c", "ulimit -s 64; exec \"$@\"", "bash", env!("CARGO_BIN_EXE_zero")]).args(arguments);
        let small = small.current_dir(directory.path()).env_remove("NO_COLOR").output().expect("the command");
        assert_eq!(small, whole);
        assert!(whole.status.code().is_some(), "{whole:?}");
    }
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

/// A package of its own, whose binary must not be started: it would leave a file behind.
#[test]
fn z0148_package_without_a_model() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("plain");
    std::fs::create_dir_all(directory.join("src")).expect("a directory");
    let manifest = "[package]\nname = \"plain\"\nedition = \"2024\"\n\n[workspace]\n";
    std::fs::write(directory.join("Cargo.toml"), manifest).expect("a manifest");
    let main = "fn main() {\n    std::fs::write(\"started\", \"\").unwrap();\n}\n";
    std::fs::write(directory.join("src/main.rs"), main).expect("a program");
    std::fs::write(directory.join("my.ron"), "(model: Package(\"plain\"), zero: (stage: 1))").expect("a spec");
    let errors = build(&directory, "my.ron");
    let ours: Vec<_> = errors.lines().skip_while(|line| !line.starts_with("error")).collect();
    let expected =
        "error[Z0148]: my.ron names the model `plain`, but nothing in the binary of that package is under `#[zero]`";
    assert_eq!((ours.len(), ours[0]), (2, expected), "{errors}");
    assert!(!directory.join("started").exists());
}

#[test]
fn a_spec_is_text_with_or_without_a_mark() {
    let errors = errors_of("marked", "\u{feff}(model: Example(\"gtp\"), zero: (stage: 1))");
    assert!(errors.starts_with("error[Z0122]"), "{errors}");
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(directory.join("latin1.ron"), b"(zero: (stage: 1)) // caf\xE9").expect("a spec");
    let errors = build(&directory, "latin1.ron");
    let expected =
        "error[Z0118]: the spec is not UTF-8 text: the byte 0xE9 at 1:26 is not part of a character\n--> latin1.ron";
    assert!(errors.starts_with(expected), "{errors}");
}

#[test]
fn codes_are_explained() {
    let page = explained(&["z0107"]);
    assert!(page.starts_with("Z0107: unknown key\n\nThere is no such key in this section."), "{page}");
    assert!(page.ends_with("\nExample:\n\n    (zero: (stage: 3, prefech: 2))\n"), "{page}");
    let all = explained(&[]);
    let (codes, words) = all.split_once("\n\n").expect("two lists");
    assert_eq!(codes.lines().count(), CODES.len());
    assert!(codes.starts_with("Z0101  not RON\n"), "{all}");
    assert!(
        words.starts_with("words:\n  all-gather, ") && words.contains("\n\nnames of FSDP:\n  FULL_SHARD, "),
        "{all}"
    );
    assert!(words.lines().all(|line| line.len() <= 88), "{all}");
}

#[test]
fn words_are_explained() {
    let page = explained(&["reduce-scatter"]);
    assert!(page.starts_with("reduce-scatter, also reduce\n\nEach rank receives one shard of the sum"), "{page}");
    assert!(page.contains("\n    zero.bucket: a size from `B(1)` up"), "{page}");
    assert_eq!(explained(&["reduce", "scatter"]), page);
    assert!(explained(&["zero.prefetch"]).starts_with("zero.prefetch\n\nHow many units ahead"));
    let several = explained(&["activation_checkpointing"]);
    assert!(
        several.contains("recompute, also ") && several.contains("\n\n\nactivation_checkpointing, also "),
        "{several}"
    );
}

#[test]
fn z0129_unknown_code() {
    let errors = refused(Path::new("."), &["explain", "Z017"]);
    let expected = "error[Z0129]: `Z017` is not known: it is neither the code of a message nor a word\n  \
                    = help: did you mean Z0107, unknown key?";
    assert!(errors.starts_with(expected), "{errors}");
    let errors = refused(Path::new("."), &["explain", "reduce-scater"]);
    assert!(errors.contains("= help: did you mean `reduce-scatter`?"), "{errors}");
    let errors = refused(Path::new("."), &["explain", "quaternion"]);
    assert!(errors.ends_with("= help: `cargo zero explain` lists all codes and words\n"), "{errors}");
}

#[test]
fn z0120_directory_lists_its_specs() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("directory");
    std::fs::create_dir_all(directory.join("specs/none")).expect("a directory");
    std::fs::write(directory.join("specs/a.ron"), "()").expect("a spec");
    let errors = build(&directory, "specs");
    assert!(
        errors.starts_with("error[Z0120]: cannot read the spec specs: ") && errors.contains("specs/a.ron"),
        "{errors}"
    );
    let errors = build(&directory, "specs/b.ron");
    assert!(errors.contains("the specs in that directory are specs/a.ron"), "{errors}");
    let errors = build(&directory, "specs/none");
    assert!(errors.contains("a directory without specs"), "{errors}");
}

#[test]
fn z0132_arguments_of_the_binary_without_dashes() {
    let output = zero(Path::new("."), &["run", "x.ron", "--steps", "5"]);
    let errors = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.starts_with("error[Z0132]: unexpected argument '--steps' found\n"), "{errors}");
    assert!(
        errors.contains("tip: arguments of the binary come after `--`: `cargo zero run x.ron -- --steps 5`\n"),
        "{errors}"
    );
}

#[test]
fn z0133_path_that_is_not_utf8() {
    let name = OsStr::from_bytes(b"\xff.ron");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(directory.join(name), "(model: Package(\"gpt\"), zero: (stage: 1))").expect("a spec");
    let mut command = Command::new(env!("CARGO_BIN_EXE_zero"));
    let output = command.arg("build").arg(name).current_dir(directory).output().expect("the command");
    let errors = String::from_utf8(output.stderr).expect("text");
    assert!(errors.starts_with("error[Z0133]: ") && errors.contains("is not UTF-8"), "{errors}");
}

/// Outside of this workspace, so that no Cargo.toml is above.
fn elsewhere(manifest: Option<&str>) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("x.ron"), "(model: Package(\"x\"), zero: (stage: 1))").expect("a spec");
    manifest
        .into_iter()
        .for_each(|text| std::fs::write(directory.path().join("Cargo.toml"), text).expect("a manifest"));
    build(directory.path(), "x.ron")
}

#[test]
fn z0127_no_workspace_and_z0135_a_broken_one() {
    let errors = elsewhere(None);
    assert!(
        errors.starts_with("error[Z0127]: no cargo workspace or package around the current directory\n"),
        "{errors}"
    );
    let errors = elsewhere(Some("[package\n"));
    assert!(
        errors.starts_with("error[Z0135]: cargo cannot read the workspace around the current directory\n"),
        "{errors}"
    );
}

#[test]
fn each_error_is_red_on_a_terminal_alone() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    std::fs::write(directory.join("twice.ron"), "(mesh: (zero: 0), zero: (stage: 4))").expect("a spec");
    for (arguments, errors) in [(&["build", "twice.ron"][..], 2), (&["build", "twice.ron", "--stage", "3"][..], 1)] {
        let count = |shown: &str, word: &str| shown.matches(word).count();
        let mut command = command(directory, arguments);
        let (shown, succeeded) = pty::on_a_terminal(&mut command);
        assert_eq!((succeeded, count(&shown, "\u{1b}[31merror[Z01")), (false, errors), "{shown:?}");
        let (shown, _) = pty::on_a_terminal(command.env("NO_COLOR", "1"));
        assert_eq!((count(&shown, "error[Z01"), count(&shown, "\u{1b}")), (errors, 0), "{shown:?}");
        let piped = String::from_utf8(zero(directory, arguments).stderr).expect("text");
        assert_eq!((count(&piped, "error[Z01"), count(&piped, "\u{1b}")), (errors, 0), "{piped:?}");
    }
}

#[test]
fn a_command_that_nobody_reads_any_more_ends_without_a_word() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let command = Command::new(env!("CARGO_BIN_EXE_zero")).arg("explain").stdout(writer).output();
    let command = command.expect("the command");
    assert_eq!((command.status.signal(), String::from_utf8_lossy(&command.stderr).as_ref()), (Some(SIGPIPE), ""));
}

/// A full disk, and a closed one, under either output.
#[test]
fn output_that_cannot_be_written_is_no_panic() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    let place = tempfile::tempdir().expect("a directory");
    std::fs::write(place.path().join("ds.json"), "{\"train_batch_size\": 8, \"fp16\": {\"enabled\": true}}")
        .expect("a file");
    for arguments in
        [&["explain", "Z0107"][..], &["import", "ds.json", "--ranks", "2"], &["explain", "nothing"], &["run"]]
    {
        let ordinary = zero(place.path(), arguments).status.code();
        let mut command = Command::new(env!("CARGO_BIN_EXE_zero"));
        command.args(arguments).current_dir(place.path());
        assert_eq!(command.stderr(full()).output().expect("the command").status.code(), ordinary, "{arguments:?}");
        let mut shell = Command::new("sh");
        shell.args(["-c", "\"$0\" \"$@\" 2>&-", env!("CARGO_BIN_EXE_zero")]).args(arguments).current_dir(place.path());
        assert_eq!(shell.output().expect("a shell").status.code(), ordinary, "{arguments:?}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_zero"));
    let output = command.args(["explain", "Z0107"]).stdout(full()).output().expect("the command");
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.starts_with("error[Z0352]: cannot write to standard output"), "{errors}");
}

#[test]
fn z0319_restarts_in_a_job_that_another_launcher_starts() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("restarts");
    std::fs::create_dir_all(&directory).expect("a directory");
    let keys = "mesh: (nodes: 2, ranks_per_node: 2, zero: 4), zero: (stage: 3), batch: (sequences: 4, length: 128)";
    let spec = format!("(model: Example(\"gpt\"), {keys}, transport: Cluster)");
    std::fs::write(directory.join("my.ron"), spec).expect("a spec");
    let job = ["launch", "my.ron", "--slurm", "job.sh", "--", "--checkpoint", "run", "--restarts", "3"];
    let errors = refused(&directory, &job);
    assert!(errors.starts_with("error[Z0319]: --restarts 3 asks to restart ranks"), "{errors}");
    assert!(!directory.join("job.sh").exists());
}
