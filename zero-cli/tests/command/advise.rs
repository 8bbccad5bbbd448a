//! Advise: what the command answers for a program that only prints the sizes of a model, and what the command writes.

use serde_json::Value;
use zero_plan::{Probe, Sizes, Unit, Width, spec};

use crate::workspace::Workspace;

/// Prints its sizes, and trains nothing.
const PROGRAM: &str = r#"
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments[0].as_str() {
        "--sizes" => print!("{}", include_str!("sizes.json")),
        "--prove" => {}
        _ => std::process::exit(1),
    }
}
"#;

/// A model of five units with `params` parameters each.
fn workspace(params: usize) -> Workspace {
    let workspace = Workspace::new(PROGRAM);
    let unit = |sequences: usize, index: usize| Unit {
        field: "layers",
        index: Some(index),
        source: index,
        params,
        takes: params,
        operations: 16 * sequences * params,
        saved_bytes: 4096 * sequences,
        input_bytes: 512 * sequences,
        output_bytes: 512 * sequences,
        ..Unit::NONE
    };
    let shapes = [Width::F32, Width::BF16].into_iter().flat_map(|width| [1, 2, 4, 8, 16].map(|n| (width, n)));
    let probe = |(compute, sequences)| {
        let units = (0..5).map(|index| unit(sequences, index)).collect();
        Probe { compute, sequences, length: 8, units }
    };
    let sizes = Sizes { model: "Layers".to_owned(), spec: String::new(), probes: shapes.map(probe).collect() };
    workspace.write("sizes.json", &serde_json::to_string(&sizes).expect("JSON"));
    workspace
}

fn refused(workspace: &Workspace, line: &str) -> String {
    let output = workspace.command(line).output().expect("the command");
    assert_eq!(output.status.code(), Some(1), "{line}");
    let said = String::from_utf8(output.stderr).expect("text");
    said[said.find("error[").expect("an error")..].to_owned()
}

#[test]
fn the_best_layouts_are_told_and_written() {
    let workspace = workspace(1 << 20);
    let line = "advise --model model --on a10g-2 --length 8 --tokens-per-step 128";
    let text = workspace.said(&format!("{line} --write best --memo memo.md"));
    for part in ["Layers on 1 node of 2 x A10G", "why not another", "the decision", "does everything fit", "exhaustive"]
    {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    for i in 1..=3 {
        let written = std::fs::read_to_string(workspace.root.join(format!("best/best-{i}.ron"))).expect("a spec");
        assert!(written.starts_with("// Planned for 1 x 2 x A10G"), "{written}");
        let config = spec::parse(&written).expect("a spec that is read").config();
        assert_eq!((config.tokens_per_step(), config.mesh.ranks()), (128, 2));
    }
    let memo = std::fs::read_to_string(workspace.root.join("memo.md")).expect("a memo");
    for part in ["## Memory", "2Ψ + 2Ψ/N + 12Ψ/N", "## Traffic and time", "## What would change it", "```ron\n"] {
        assert!(memo.contains(part), "no `{part}` in {memo}");
    }
    // The size that was asked for is a part of each spec, so that it is planned in this size.
    workspace.said(&format!("{line} --size 8B --layers 5 --write sized"));
    let written = workspace.read("sized/best-1.ron");
    assert!(written.contains("    model: Example(\"model\", size: \"8B\", layers: 5),\n"), "{written}");
    let size = spec::parse(&written).expect("a spec that is read").size;
    assert_eq!((size.size.as_deref(), size.layers), (Some("8B"), Some(5)));
    let json: Value = serde_json::from_str(&workspace.said(&format!("{line} --json"))).expect("JSON");
    assert_eq!((&json["format"], &json["model"]), (&"zero-advise-1".into(), &"Layers".into()));
    let pinned = workspace.said(&format!("{line} --json --pin zero.stage=3 --pin precision.compute=F32"));
    let json: Value = serde_json::from_str(&pinned).expect("JSON");
    assert_eq!(json["best"][0]["choices"]["Stage"], "stage 3");
}

#[test]
fn what_cannot_be_advised_is_told_before_anything_is_built() {
    let workspace = workspace(1 << 20);
    for (line, code) in [
        ("advise --model model --on a10g-3", "Z0160"),
        ("advise --model model --on h100 --nodes 1000", "Z0161"),
        ("advise --model model --on gh200 --offload", "Z0161"),
        ("advise --model model --on h100 --length 8 --tokens-per-step 12", "Z0163"),
        ("advise --model model --on h100 --pin zero.stag=3", "Z0165"),
    ] {
        let error = refused(&workspace, line);
        assert!(error.starts_with(&format!("error[{code}]: ")), "{line}: {error}");
    }
    let error = refused(&workspace, "advise --model model --on a10g-2 --length 8 --pin mesh.zero=3");
    assert!(error.starts_with("error[Z0164]: "), "{error}");
}

#[test]
fn a_model_that_fits_nowhere_says_what_would_help() {
    let workspace = workspace(1 << 29);
    let error = refused(&workspace, "advise --model model --on a10g-2 --length 8");
    assert!(error.starts_with("error[Z0162]: no layout fits: "), "{error}");
    for way in ["it fits with `--pure-bf16`", "or with `--nodes ", "or if a rank has "] {
        assert!(error.contains(way), "no `{way}` in {error}");
    }
}
