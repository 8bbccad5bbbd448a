//! What the command makes of configurations of other frameworks, and scripts for shells.

use std::path::Path;
use std::process::{Command, Output};

use zero_plan::TierKind;
use zero_plan::spec::parse;

fn zero(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zero"));
    command.args(arguments).current_dir(directory).output().expect("the command")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

const DEEPSPEED: &str = r#"{
  "train_micro_batch_size_per_gpu": 2,
  "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}
}
"#;

#[test]
fn a_configuration_becomes_a_spec_with_remarks() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("ds.json"), DEEPSPEED).expect("a file");
    let arguments = ["import", "ds.json", "--ranks", "8", "--length", "512", "--model", "gpt"];
    let output = zero(folder.path(), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let spec = parse(text(&output.stdout)).expect("a valid spec");
    let config = spec.config();
    assert_eq!((config.stage, config.mesh.zero, config.sequences, config.length), (3, 8, 2, 512));
    assert_eq!(config.offload.optimizer, TierKind::Host);
    // The remark is on standard error, where it is seen, and in the spec.
    for said in [text(&output.stderr), text(&output.stdout)] {
        assert!(said.contains("zero_optimization.offload_optimizer.device: `offload: "), "{said}");
    }
    let output = zero(folder.path(), &[&arguments[..], &["--out", "my.ron"]].concat());
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    let written = std::fs::read_to_string(folder.path().join("my.ron")).expect("a spec");
    assert_eq!(parse(&written).as_ref(), Ok(&spec));
}

#[test]
fn mistakes_of_a_configuration_are_shown_where_they_stand() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("ds.json"), DEEPSPEED.replace("offload_optimizer", "offload_optimiser"))
        .expect("a file");
    let output = zero(folder.path(), &["import", "ds.json", "--ranks", "8"]);
    let expected = "\
error[Z0155]: unknown key `offload_optimiser` in `zero_optimization`
 --> ds.json:3:37
  |
3 |   \"zero_optimization\": {\"stage\": 3, \"offload_optimiser\": {\"device\": \"cpu\"}}
  |                                     ^^^^^^^^^^^^^^^^^^^ did you mean `offload_optimizer`?";
    assert!(text(&output.stderr).starts_with(expected), "{}", text(&output.stderr));
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(1), true));
}

#[test]
fn z0125_a_spec_that_is_there_is_not_overwritten() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("ds.json"), DEEPSPEED).expect("a file");
    std::fs::write(folder.path().join("my.ron"), "mine").expect("a file");
    let output = zero(folder.path(), &["import", "ds.json", "--ranks", "8", "--out", "my.ron"]);
    assert!(text(&output.stderr).starts_with("error[Z0125]: cannot write my.ron: "), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_to_string(folder.path().join("my.ron")).expect("a file"), "mine");
}

#[test]
fn z0120_configuration_that_is_not_there() {
    let output = zero(Path::new("."), &["import", "nowhere.json"]);
    assert!(text(&output.stderr).starts_with("error[Z0120]: cannot read nowhere.json: "), "{}", text(&output.stderr));
}

#[test]
fn each_shell_gets_a_script_that_names_all_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = zero(Path::new("."), &["completions", shell]);
        let script = text(&output.stdout);
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}");
        for word in ["zero", "simulate", "import", "completions", "--ranks"] {
            // Some shells write options without their dashes.
            assert!(script.contains(word.trim_start_matches('-')), "{shell}: {word}");
        }
    }
}

/// What bash offers for the last of these words, where something else completes cargo as well.
const ASK: &str = r#"
_others() { COMPREPLY=("$1, $2 and $3"); }
complete -F _others cargo
# Twice, as a shell does that reads its startup file again.
source ./script && source ./script
[[ "$(complete -p "$1")" =~ " -F "([^ ]+) ]] && asked="${BASH_REMATCH[1]}"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
"$asked" "$1" "${@: -1}" "${@: -2:1}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

#[test]
fn bash_completes_cargo_zero_and_leaves_the_rest_of_cargo_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = zero(folder.path(), &["completions", "bash"]).stdout;
    std::fs::write(folder.path().join("script"), script).expect("a file");
    for (words, expected) in [
        ("cargo zero sim", "simulate\n"),
        ("cargo +nightly -q zero plan --sch", "--schedule\n"),
        ("cargo zero completions fi", "fish\n"),
        ("zero advise --no", "--nodes\n"),
        ("cargo bui", "cargo, bui and cargo\n"),
        ("cargo build ze", "cargo, ze and build\n"),
        ("cargo ze", "cargo, ze and cargo\n"),
        ("cargo zero", "cargo, zero and cargo\n"),
    ] {
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", ASK, "bash"]).args(words.split(' ')).current_dir(folder.path());
        let output = bash.output().expect("bash");
        assert_eq!((text(&output.stdout), text(&output.stderr)), (expected, ""), "{words}");
    }
}

#[test]
fn scripts_that_do_not_complete_cargo_zero_say_so() {
    for (shell, says) in [("elvish", true), ("powershell", true), ("bash", false), ("fish", false)] {
        let output = zero(Path::new("."), &["completions", shell]);
        let first = text(&output.stdout).lines().next().unwrap_or_default().to_owned();
        assert_eq!(first.starts_with("# This completes `zero`"), says, "{shell}: {first}");
    }
}
