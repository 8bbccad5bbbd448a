//! What the command says of two specs, and of one plan as data, with a program in place of a model that prints a
//! model's sizes.

use std::path::Path;
use std::process::{Command, Output};

use crate::workspace::{Workspace, said};
use serde_json::Value;
use zero_plan::{Probe, Unit, Width};

/// Prints the sizes in probes.json, and the spec that it was compiled with.
const PROGRAM: &str = r#"
fn main() {
    if std::env::args().nth(1).as_deref() == Some("--sizes") {
        let spec = format!("{:?}", include_str!(env!("ZERO_SPEC")));
        print!("{{\"model\":\"Tiny\",\"spec\":{spec},\"probes\":{}}}", include_str!("probes.json"));
    }
    std::hint::black_box(env!("NAME"));
}
"#;

fn workspace() -> Workspace {
    let workspace = Workspace::new(PROGRAM);
    let unit = |field, source| Unit {
        field,
        source,
        params: 30_720,
        takes: 30_720,
        saved_bytes: 4096,
        input_bytes: 2048,
        output_bytes: 2048,
        operations: 1_000_000,
        ..Unit::NONE
    };
    let units = vec![unit("embed", 0), unit("blocks", 1), unit("head", 2)];
    let probe = Probe { compute: Width::F32, sequences: 4, length: 256, units };
    workspace.write("probes.json", &serde_json::to_string(&[probe]).expect("figures"));
    workspace.write("a.ron", "(model: Package(\"model\"), mesh: (zero: 4), zero: (stage: 2))\n");
    workspace.write("b.ron", "(model: Package(\"model\"), mesh: (zero: 4), zero: (stage: 3, prefetch: 1))\n");
    workspace.write(
        "same.ron",
        "// The same.\n(zero: (stage: 2), model: Package(\"model\"), mesh: (zero: 4, replica: 1))\n",
    );
    workspace
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

#[test]
fn two_steps_differ_as_code() {
    let workspace = workspace();
    let run = |line: &str| workspace.command(line).output().expect("the command");
    let code_of = |spec: &str| text(&run(&format!("expand {spec}")).stdout).to_owned();
    let (first, second) = (code_of("a.ron"), code_of("b.ron"));
    assert!(first.starts_with("// `Tiny` under a.ron, as `cargo zero expand` writes it.\n"), "{first}");
    let different = run("diff a.ron b.ron --code");
    assert_eq!(code(&different), Some(1), "{}", text(&different.stderr));
    let shown = text(&different.stdout);
    assert!(shown.starts_with("--- a.ron\n+++ b.ron\n@@ "), "{shown}");
    for (sign, lines, others) in [('-', &first, &second), ('+', &second, &first)] {
        let changed: Vec<&str> = shown.lines().skip(2).filter_map(|line| line.strip_prefix(sign)).collect();
        assert!(!changed.is_empty() && changed.iter().all(|line| lines.contains(line)), "{shown}");
        // Stage 2 keeps parameters, and stage 3 releases them.
        let releases = |text: &str| text.contains("rank.release(EMBED, ");
        assert_eq!(releases(lines) && !releases(others), sign == '+', "{lines}");
    }
    assert!(code(&run("diff a.ron b.ron --code --json")) == Some(2));

    let written = run("expand a.ron --out a.rs");
    assert_eq!((code(&written), text(&written.stdout)), (Some(0), ""));
    assert_eq!(workspace.read("a.rs").trim_end(), first.trim_end());
    let refused = run("expand a.ron --out none/a.rs");
    assert!(text(&refused.stderr).contains("error[Z0172]: cannot write none/a.rs: "), "{}", text(&refused.stderr));
    // Every build keeps it.
    assert_eq!(code(&run("build b.ron")), Some(0));
    let kept = workspace.read("target/zero/expanded/b.rs");
    assert_eq!(kept.trim_end(), second.trim_end());
}

#[test]
fn two_specs_differ_by_their_plans() {
    let workspace = workspace();
    let run = |line: &str| workspace.command(line).output().expect("the command");
    let different = run("diff a.ron b.ron");
    let shown = text(&different.stdout);
    assert_eq!(code(&different), Some(1), "{}", text(&different.stderr));
    assert!(shown.starts_with("a.ron -> b.ron: Tiny\n\nkeys "), "{shown}");
    assert!(
        shown.contains("  zero.stage") && shown.contains("schedules first differ in\n  pipeline stage 0, op 0: "),
        "{shown}"
    );
    let same = run("diff a.ron same.ron");
    assert_eq!((code(&same), text(&same.stdout)), (Some(0), "a.ron and same.ron give the same plan of Tiny\n"));
    let timed = run("diff a.ron b.ron --on a100-80");
    assert!(text(&timed.stdout).contains("\npredicted step: "), "{}", text(&timed.stderr));
}

#[test]
fn a_difference_is_data_too() {
    let workspace = workspace();
    let output = workspace.command("diff a.ron b.ron --json").output().expect("the command");
    assert_eq!(code(&output), Some(1));
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(text(&output.stdout).starts_with("{\n  \"format\": \"zero-diff-1\","), "{json}");
    assert_eq!((&json["is_equal"], &json["step_s"]), (&Value::Bool(false), &Value::Null));
    let keys: Vec<_> = json["keys"].as_array().expect("a list").iter().map(|it| it["key"].as_str()).collect();
    assert_eq!(keys, [Some("zero.stage"), Some("zero.prefetch")]);
    // A rank holds all of the parameters at stage 2, and a quarter at stage 3.
    let params = &json["memory"][0];
    assert_eq!(params["what"], "parameters");
    assert_eq!(params["first"].as_u64(), params["second"].as_u64().map(|bytes| 4 * bytes));
}

#[test]
fn z0120_what_cannot_be_compared_ends_with_2() {
    let workspace = workspace();
    workspace.write("bad.ron", "(model: Package(\"model\"), zero: (stage: 4))\n");
    for (line, expected) in [
        ("diff a.ron nowhere.ron", "error[Z0120]: cannot read the spec nowhere.ron"),
        ("diff a.ron bad.ron", "error[Z0105]: stage 4 does not exist"),
        ("diff checkpoints", "error[Z0120]: checkpoints is not a spec to compare"),
        ("diff a.ron", "error[Z0120]: git has no a.ron to compare with"),
    ] {
        let output = workspace.command(line).output().expect("the command");
        let errors = text(&output.stderr);
        assert_eq!((code(&output), output.stdout.is_empty()), (Some(2), true), "{line}: {errors}");
        assert!(errors.lines().any(|it| it.starts_with(expected)), "{line}: {errors}");
    }
}

fn git(root: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"];
    let output = Command::new("git").args(identity).args(arguments).current_dir(root).output().expect("git");
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_spec_alone_is_compared_with_what_was_committed() {
    let workspace = workspace();
    let root = &workspace.root;
    git(root, &["init", "-q"]);
    git(root, &["add", "a.ron"]);
    git(root, &["commit", "-q", "-m", "a spec"]);
    let run = || workspace.command("diff a.ron").output().expect("the command");
    let before = run();
    let same = "HEAD:a.ron and a.ron give the same plan of Tiny\n";
    assert_eq!((code(&before), text(&before.stdout)), (Some(0), same), "{}", text(&before.stderr));
    workspace.write("a.ron", "(model: Package(\"model\"), mesh: (zero: 4), zero: (stage: 1))\n");
    let after = run();
    assert_eq!(code(&after), Some(1));
    assert!(text(&after.stdout).starts_with("HEAD:a.ron -> a.ron: Tiny\n"), "{}", text(&after.stdout));
}

#[test]
fn a_plan_is_data_too() {
    let workspace = workspace();
    let shown = said(workspace.command("plan b.ron --json").output().expect("the command"));
    assert!(shown.starts_with("{\n  \"format\": \"zero-plan-2\","), "{shown}");
    let json: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!((&json["model"], json["params"].as_u64()), (&Value::from("Tiny"), Some(3 * 30_720)));
    assert_eq!(json["proof"]["ranks"].as_u64(), Some(4));
    let pipeline_stage = &json["pipeline_stages"][0];
    let sum =
        pipeline_stage["memory"].as_array().expect("regions").iter().filter_map(|it| it["bytes"].as_u64()).sum::<u64>();
    assert_eq!(pipeline_stage["arena_bytes"].as_u64(), Some(sum));
}
