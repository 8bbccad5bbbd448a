//! What a build adds to the compiler's error where a rank needs more than its budget, with a script in place of cargo
//! and a program that prints sizes.

#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::workspace::Workspace;
use zero_plan::footprint::RunSize;
use zero_plan::spec::{KEYS, KeyChange, Spec, parse};
use zero_plan::{PlanBuf, Probe, Unit, Width};

/// Prints the sizes in probes.json.
const PROGRAM: &str = r#"
fn main() {
    if std::env::args().nth(1).as_deref() == Some("--sizes") {
        print!("{{\"model\":\"Tiny\",\"spec\":\"\",\"probes\":{}}}", include_str!("probes.json"));
    }
    std::hint::black_box(env!("NAME"));
}
"#;

/// A cargo that finds every spec with a budget to be over it.
const CARGO: &str = r#"#!/bin/sh
if [ "$1" = build ] && grep -q memory "$ZERO_SPEC"; then
    echo '{"reason":"compiler-message","message":{"rendered":"error: [Z0201] a rank needs more than its budget"}}'
    exit 101
fi
. "$(dirname "$0")/plain.sh"
"#;

fn units(sequences: usize) -> Vec<Unit> {
    let unit = |field, source| Unit {
        field,
        source,
        params: 1 << 20,
        takes: 1 << 20,
        saved_bytes: sequences << 20,
        input_bytes: sequences << 12,
        output_bytes: sequences << 12,
        operations: 1_000_000,
        ..Unit::NONE
    };
    vec![unit("embed", 0), unit("blocks", 1), unit("more", 2), unit("head", 3)]
}

fn workspace() -> Workspace {
    let workspace = Workspace::new(PROGRAM);
    let probe = |n| Probe { compute: Width::F32, sequences: n, length: 256, units: units(n) };
    let probes: Vec<Probe> = [1, 2, 4, 8, 16].map(probe).into();
    workspace.write("probes.json", &serde_json::to_string(&probes).expect("figures"));
    fs::rename(workspace.root.join("cargo"), workspace.root.join("plain.sh")).expect("a script");
    workspace.write("cargo", CARGO);
    fs::set_permissions(workspace.root.join("cargo"), fs::Permissions::from_mode(0o755)).expect("a script");
    workspace
}

fn needs(spec: &Spec) -> usize {
    let config = spec.config();
    PlanBuf::new("Tiny", config, &units(config.sequences)).with(|plan| plan.total_bytes_max(&RunSize::LEAST))
}

/// A spec with these keys and a budget.
fn asked(keys: &str, budget: usize) -> String {
    format!(
        "(model: Package(\"model\"), mesh: (zero: 4), zero: (stage: 0), batch: (sequences: 4, length: 256), {keys} \
         memory: B({budget}))\n"
    )
}

/// Each offer, written into the spec, is within its budget on the device and over the transport of the spec; it was timed on a
/// machine that has the device.
#[test]
fn what_is_offered_for_a_budget_is_within_it() {
    let workspace = workspace();
    for (keys, machine) in [
        ("", "8 cores, AVX-512, no matrix unit"),
        ("transport: Local,", "8 cores, AVX-512, no matrix unit"),
        ("device: Cuda,", "8 x A100 SXM 80 GB, NVLink, 8 x HDR 200 Gb/s"),
    ] {
        let budget = needs(&parse(&asked(keys, 1)).expect("a spec")) - (20 << 20);
        workspace.write("over.ron", &asked(keys, budget));
        let output = workspace.command("build over.ron").output().expect("the command");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains("[Z0201] a rank"), "{errors}");
        let fits =
            format!("these fit, with the same ranks, widths and tokens of a step, the fastest first on {machine}:");
        let (_, offers) = errors.split_once(&fits).unwrap_or_else(|| panic!("{keys}: {errors}"));
        let offers: Vec<&str> = offers.lines().filter(|line| line.starts_with("    `")).collect();
        assert!(!offers.is_empty(), "{errors}");
        for offer in offers {
            let mut spec = parse(&asked(keys, budget)).expect("a spec");
            for change in offer.split('`').skip(1).step_by(2) {
                let (key, value) = change.split_once(": ").expect("a key and a value");
                let row = KEYS.iter().find(|row| row.path == key).expect("a key");
                KeyChange { key: row.path, first: None, second: Some(value.to_owned()) }.apply(&mut spec);
            }
            assert!(needs(&spec) <= budget, "{keys}: {offer}");
        }
    }
}
