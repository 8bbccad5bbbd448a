//! Predictions: what the command says of plans on hardware, for a program that only prints the sizes of a model.

use serde_json::Value;
use zero_plan::spec::Size;
use zero_plan::{Config, PlanBuf, Probe, Sizes, Unit, Width, spec};
use zero_study::hardware::{Hardware, Link};
use zero_study::simulate::Prediction;

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
/// Says that it has measured two GPUs if it has no arguments, and that each op of a step of [`MEASURED`] took a
/// millisecond.
const MEASURED_PROGRAM: &str = r#"
fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map_or("", String::as_str) {
        "" => print!("{}", include_str!("gpus.json")),
        "--sizes" => print!("{}", include_str!("sizes.json")),
        "--prove" => {}
        _ => {
            let profile = arguments.iter().position(|word| word == "--profile").expect("--profile") + 1;
            std::fs::write(&arguments[profile], include_str!("profile.json")).expect("a file");
        }
    }
}
"#;
/// What is measured on GPUs of [`SPEC`].
const MEASURED: &str =
    "(model: Package(\"model\"), device: Cuda, mesh: (zero: 1), zero: (stage: 0), batch: (sequences: 1, length: 8))";
const SPEC: &str = "(model: Package(\"model\"), mesh: (zero: 2), zero: (stage: 3), batch: (sequences: 1, length: 8))";

/// Four units of an invented model.
fn units() -> Vec<Unit> {
    let unit = Unit { field: "layers", params: 1024, takes: 1024, operations: 1 << 20, input_bytes: 512, ..Unit::NONE };
    (0..4).map(|index| Unit { index: Some(index), source: index, output_bytes: 512, ..unit }).collect()
}

fn workspace() -> Workspace {
    workspace_of(PROGRAM, SPEC)
}

/// With a program that says that it was built from `spec`.
fn workspace_of(program: &str, spec: &str) -> Workspace {
    let workspace = Workspace::new(program);
    workspace.write("x.ron", SPEC);
    let probe = Probe { compute: Width::F32, sequences: 1, length: 8, units: units() };
    let sizes = Sizes { model: "Layers".to_owned(), spec: spec.to_owned(), probes: vec![probe] };
    workspace.write("sizes.json", &serde_json::to_string(&sizes).expect("JSON"));
    workspace
}

/// The same for GPUs.
fn on_gpus() -> String {
    SPEC.replacen('(', "(device: Cuda, ", 1)
}

/// What a command that must fail says on standard error, without its progress.
fn refused(workspace: &Workspace, line: &str) -> String {
    let output = workspace.command(line).output().expect("the command");
    assert_eq!(output.status.code(), Some(1), "{line}");
    let said = String::from_utf8(output.stderr).expect("text");
    said[said.find("error[").expect("an error")..].to_owned()
}

#[test]
fn what_is_simulated_is_the_plan_of_the_spec() {
    let workspace = workspace();
    let text = std::fs::read_to_string("../hardware/cpu-2.ron").expect("a file of hardware");
    let hardware = Hardware::parse(&text).expect("hardware");
    let config: Config = spec::parse(SPEC).expect("a spec").config();
    let expected = PlanBuf::new("Layers", config, &units()).with(|plan| Prediction::of(plan, &hardware, None));
    let expected = serde_json::to_string_pretty(&expected.expect("a prediction")).expect("JSON");
    let found = workspace.said("simulate x.ron --on cpu-2 --json");
    assert_eq!(found.trim_end(), expected);
    assert!(found.starts_with("{\n  \"format\": \"zero-simulate-2\",\n"), "{found}");
    let text = workspace.said("simulate x.ron --on cpu-2");
    for part in [
        "Layers on 2 cores",
        "share of peak (MFU): ",
        "critical path",
        "if it were 10 % faster",
        "memory of a rank",
        "\n\ncheckpoint: ",
    ] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
    // Where devices have their own memory, gathers copy over a link.
    let on_device: Value = serde_json::from_str(&workspace.said("simulate x.ron --on a10g-2 --json")).expect("JSON");
    assert_eq!(on_device["traffic"][0]["link"], "Node");
}

#[test]
fn z0177_a_mesh_that_hardware_has_not() {
    let workspace = workspace();
    let error = refused(&workspace, "simulate x.ron --on gh200");
    assert!(error.starts_with("error[Z0177]: x.ron cannot run on "), "{error}");
    assert!(
        error.contains("2 ranks, but a node of the hardware has 1 devices") && error.contains("= help: "),
        "{error}"
    );
}

#[test]
fn states_on_disk_take_the_time_of_a_disk_that_is_known() {
    let spec = SPEC.replacen('(', "(offload: (optimizer: Disk), ", 1);
    let workspace = workspace_of(PROGRAM, &spec);
    workspace.write("offload.ron", &spec);
    // To a GPU, bytes also pass its link to the host.
    for hardware in ["cpu-2", "h100"] {
        let text = workspace.said(&format!("simulate offload.ron --on {hardware}"));
        for part in ["fetches, disk", "stores, disk", "disk: a rank reads ", "a node writes "] {
            assert!(text.contains(part), "no `{part}` in {text}");
        }
    }
    let known = std::fs::read_to_string("../hardware/cpu-2.ron").expect("a file of hardware");
    let unknown: Vec<&str> = known.lines().filter(|line| !line.contains("direct: ")).collect();
    workspace.write("unknown.ron", &unknown.join("\n"));
    for (hardware, why, help) in [
        ("unknown.ron", "but the hardware has no `node.disk.direct`", "add the key `node.disk.direct`"),
        ("a10g-2", "but the hardware has no `node.disk.direct`", "add the key `node.disk.direct`"),
    ] {
        let error = refused(&workspace, &format!("simulate offload.ron --on {hardware}"));
        assert!(error.starts_with("error[Z0177]: offload.ron cannot run on "), "{error}");
        assert!(error.contains(why) && error.contains(&format!("= help: {help}")), "{error}");
    }
}

#[test]
fn z0178_a_program_that_tells_no_sizes() {
    let workspace = workspace();
    workspace.write("sizes.json", "a program of another kind\n");
    let error = refused(&workspace, "simulate x.ron --on cpu-2");
    assert!(error.starts_with("error[Z0178]: ") && error.contains("does not report its sizes"), "{error}");
}

#[test]
fn z0179_a_model_that_cannot_be_measured() {
    let workspace = workspace();
    let error = refused(&workspace, "measure x.ron --out here.ron");
    assert!(error.starts_with("error[Z0179]: the units of x.ron cannot be measured: its run failed"), "{error}");
    assert!(
        !workspace.root.join("here.ron").exists(),
        "a file without a description is left, which the next try refuses"
    );
    workspace.write("gpu.ron", &on_gpus());
    for (line, expected) in [
        ("measure gpu.ron x.ron", "gpu.ron has `device: Cuda` and x.ron has not"),
        ("measure gpu.ron --threads 1,2", "--threads is for ranks on a processor, but gpu.ron has `device: Cuda`"),
        ("measure gpu.ron", "the GPUs of this machine cannot be measured for gpu.ron: the program for it failed"),
    ] {
        let error = refused(&workspace, &format!("{line} --out here.ron"));
        assert!(error.starts_with(&format!("error[Z0179]: {expected}")), "{error}");
    }
}

#[test]
fn z0180_a_file_that_exists_is_not_written_over() {
    let workspace = workspace();
    workspace.write("here.ron", "mine");
    let error = refused(&workspace, "measure --out here.ron");
    assert!(error.starts_with("error[Z0180]: cannot write here.ron"), "{error}");
    assert_eq!(std::fs::read_to_string(workspace.root.join("here.ron")).expect("a file"), "mine");
}

#[test]
fn a_machine_that_was_measured_can_be_simulated_on() {
    let workspace = workspace();
    workspace.said("measure --out here.ron");
    let text = std::fs::read_to_string(workspace.root.join("here.ron")).expect("a file");
    let hardware = Hardware::parse(&text).expect("hardware");
    assert!(hardware.device.matmul.f32 > 1e6 && hardware.device.bandwidth > 1e6, "{text}");
    assert!(hardware.node.disk.is_some() && hardware.node.handover.is_some(), "{text}");
    assert!(hardware.device.sums.is_some(), "{text}");
    assert!(workspace.said("simulate x.ron --on here.ron").contains("Layers on this machine"));
}

#[test]
fn gpus_that_were_measured_can_be_simulated_on() {
    let workspace = workspace_of(MEASURED_PROGRAM, MEASURED);
    workspace.write("gpu.ron", &on_gpus());
    let figures = r#"{"name": "Example", "devices": 2, "memory_bytes": 25165824000, "taken_bytes": 524288000,
        "multiplied_per_s": [3e13, 1.2e14], "attended_per_s": 9e13, "copied_per_s": 6e11, "op_s": 2e-6,
        "host_link": [2.5e10, 2.4e10, 4e10, 1e-5], "link": {"Ok": [5e-6, 2.5e10]}}"#;
    workspace.write("gpus.json", figures);
    let config = spec::parse(MEASURED).expect("a spec").config();
    let ops = PlanBuf::new("Layers", config, &units()).with(|plan| plan.of_rank(0).step.len());
    let event = |name: &str, ts: usize| {
        format!(r#"{{"name":"{name}","ph":"X","pid":1,"ts":{ts}.0,"dur":1000.0,"args":{{"core_us":1.0}}}}"#)
    };
    let events = (0..ops).map(|op| event("an op", op * 1000));
    let events: Vec<_> = [event("step 3", 0)].into_iter().chain(events).collect();
    workspace.write("profile.json", &format!(r#"{{"traceEvents":[{}]}}"#, events.join(",")));
    workspace.said("measure gpu.ron --out here.ron");
    let text = std::fs::read_to_string(workspace.root.join("here.ron")).expect("a file");
    let hardware = Hardware::parse(&text).expect("hardware");
    let expected = Hardware::of_gpus(&serde_json::from_str(figures).expect("figures"), None, None);
    assert_eq!((&hardware.device, hardware.node.devices), (&expected.device, 2));
    assert_eq!((hardware.device.memory, hardware.device.attention), (Size::MiB(24_000), Some(0.75)));
    assert_eq!(hardware.node.link, Some(Link { bandwidth: 2.5e10, latency: 5e-6, shared_by: 1 }));
    assert!(hardware.node.disk.is_some() && hardware.node.handover.is_none(), "{text}");
    assert!(hardware.node.host_updates.is_some_and(|rate| rate > 1e8), "{text}");
    let [unit] = &hardware.measured[..] else { panic!("{text}") };
    assert_eq!((unit.ranks, unit.threads, unit.tokens), (1, 1, 8), "{text}");
    assert_eq!([unit.forward, unit.backward, unit.update].map(|time| time.seconds), [1e-3; 3], "{text}");
    let json = workspace.said("simulate gpu.ron --on here.ron --json");
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["units_are_measured"], true, "{json}");
}
