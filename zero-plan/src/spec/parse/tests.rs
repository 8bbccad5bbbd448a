//! Tests of the values that are read from a text, and of the place of each mistake. Never checks values together.

use super::super::tokens::tokens;
use super::super::*;
use super::*;
use crate::config::{Often, OptimizerKind, TierKind, UpdatePlace, UpdateTime, Width};
use crate::diagnostic::line_column;
use crate::mesh::Axis;

/// Code, line, column, message and label of each mistake in the text.
type Found = (&'static str, usize, usize, String, String);

fn mistakes(text: &str) -> Vec<Found> {
    let problems = parse(text).expect_err(text);
    let found = problems.into_iter().map(|problem| {
        let (line, column) = line_column(text, problem.span.expect("a place").start);
        (problem.code, line, column, problem.message, problem.label)
    });
    found.collect()
}

#[track_caller]
fn one(text: &str, code: &str, place: (usize, usize), message: &str, label: &str) {
    let found = mistakes(text);
    let expected = (code, place.0, place.1, message, label);
    let all: Vec<_> = found.iter().map(|(c, l, k, m, b)| (*c, *l, *k, m.as_str(), b.as_str())).collect();
    assert_eq!(all, [expected], "{text}");
}

/// No spec has `host` and `disk`, because all that leaves a device goes to the same tier.
const FULL: &str = r#"// A spec with every key but `host`.
(
    model: Example("gpt", size: "11M", layers: 3, width: 64, heads: 4, key_heads: 2, inner: 256, vocab: 512),
    mesh: (nodes: 2, ranks_per_node: 8, replica: 2, pipeline: 2, zero: 4, within_node: [Zero, Replica]),
    zero: (stage: 3, prefetch: 2, bucket: MiB(8), gather: PerStep, reduce: PerStep),
    pipeline: (schedule: Interleaved(chunks: 2), units: Split([1, 2, 2, 1])),
    batch: (sequences: 2, length: 64, micro_batches: 4),
    precision: (compute: F32, params: BF16, reduce: BF16, master: F32, moments: BF16),
    recompute: Fields(["blocks"]),
    checkpoint: (snapshot: false),
    device: Cpu,
    transport: Local,
    optimizer: AdamW,
    memory: GiB(1),
    offload: (optimizer: Disk, gradients: Device, parameters: Device, activations: Device, prefetch: 3, piece: MiB(2), update: AfterStep, update_on: Device),
    disk: GB(40),
    publish: (dtype: BF16, copies: 3),
    serve: (slots: 3, staged: false),
)
"#;

fn full() -> Spec {
    Spec {
        model: Some(ModelSource::Example("gpt".to_owned())),
        size: ModelSize {
            size: Some("11M".to_owned()),
            layers: Some(3),
            width: Some(64),
            heads: Some(4),
            key_heads: Some(2),
            inner: Some(256),
            vocab: Some(512),
        },
        mesh: MeshKeys {
            nodes: Some(2),
            ranks_per_node: Some(8),
            replica: 2,
            pipeline: 2,
            zero: 4,
            within_node: vec![Axis::Zero, Axis::Replica],
        },
        zero: ZeroKeys {
            stage: Stage::new(3).unwrap(),
            prefetch: Some(2),
            bucket: Size::MiB(8),
            gather: Often::PerStep,
            reduce: Often::PerStep,
        },
        pipeline: Pipeline { schedule: Schedule::Interleaved { chunks: 2 }, units: Units::Split(vec![1, 2, 2, 1]) },
        batch: Batch { sequences: 2, length: 64, micro_batches: 4 },
        precision: Precision {
            compute: Width::F32,
            params: Width::BF16,
            reduce: Width::BF16,
            master: Width::F32,
            moments: Width::BF16,
        },
        recompute: Some(RecomputedUnits::Fields(vec!["blocks".to_owned()])),
        checkpoint: CheckpointKeys { snapshot: false },
        device: DeviceKind::Cpu,
        transport: Some(TransportKind::Local),
        optimizer: OptimizerKind::AdamW,
        memory: Some(Size::GiB(1)),
        offload: OffloadKeys {
            optimizer: TierKind::Disk,
            gradients: TierKind::Device,
            parameters: TierKind::Device,
            activations: TierKind::Device,
            prefetch: 3,
            piece: Size::MiB(2),
            update: UpdateTime::AfterStep,
            update_on: UpdatePlace::Device,
        },
        host: None,
        disk: Some(Size::GB(40)),
        publish: PublishKeys { dtype: Some(Width::BF16), copies: Some(3) },
        serve: ServeKeys { slots: 3, staged: false },
    }
}

#[test]
fn every_key_is_read_and_written() {
    assert_eq!(parse(FULL), Ok(full()));
    assert_eq!(parse(&full().to_string()), Ok(full()));
    let named = FULL.replace("(stage", "Zero(stage").replace("GiB(1)", "Some(GiB(1))");
    assert_eq!(parse(&named), Ok(full()));
    for key in KEYS {
        assert_eq!(locate(FULL, key.path).is_some(), key.path != "host", "{}", key.path);
    }
}

/// A field without a row would be an undocumented key.
#[test]
fn every_field_has_a_row_of_its_own() {
    fn paths(section: &locate::Section, path: &str) -> Vec<String> {
        let inside = |entry: &locate::KeyValue| {
            let path = keys::join(path, &entry.key);
            let deeper = entry.section.iter().flat_map(|section| paths(section, &path)).collect::<Vec<_>>();
            [vec![path], deeper].concat()
        };
        section.entries.iter().flat_map(inside).collect()
    }
    let written = Spec { host: Some(Size::GiB(64)), ..full() }.to_string();
    let mut found = paths(&root(&written).unwrap(), "");
    let mut rows: Vec<_> = KEYS.iter().map(|key| key.path.to_owned()).collect();
    found.sort();
    rows.sort();
    assert_eq!(found, rows);
}

#[test]
fn a_spec_stands_for_constants() {
    let config = full().config();
    let mesh = crate::mesh::Mesh { nodes: 2, zero: 4, replica: 2, pipeline: 2, order: Axis::ALL };
    assert_eq!((config.mesh, config.stage, config.prefetch, config.bucket_bytes), (mesh, 3, 2, 8 << 20));
    assert_eq!((config.gather, config.reduce), (Often::PerStep, Often::PerStep));
    assert_eq!(config.order, config::Order::Interleaved { chunks: 2 });
    assert_eq!(config.split, config::Split::Units(&[1, 2, 2, 1]));
    assert_eq!(config.recompute, config::Recompute::Fields(&["blocks"]));
    let precision = (config.precision.params, config.precision.reduce, config.precision.master);
    assert_eq!(precision, (Width::BF16, Width::BF16, Width::F32));
    assert_eq!(config.precision.moments, Width::BF16);
    assert_eq!((config.sequences, config.length, config.micro_batches), (2, 64, 4));
    assert_eq!((config.transport, config.memory_bytes), (TransportKind::Local, Some(1 << 30)));
    let offload = Offload { optimizer: TierKind::Disk, prefetch: 3, piece_bytes: 2 << 20, ..Offload::NONE };
    assert_eq!((config.offload, config.disk_bytes), (offload, Some(40_000_000_000)));
    let at_use = parse("(zero: (stage: 3), offload: (optimizer: Disk, update: AtUse))").unwrap().config();
    assert!(at_use.updates_at_use() && !config.updates_at_use());
    let of_gpu = parse("(zero: (stage: 1), device: Cuda, offload: (optimizer: Host), host: GiB(3))").unwrap().config();
    assert_eq!((of_gpu.offload.optimizer, of_gpu.host_bytes), (TierKind::Host, Some(3 << 30)));
    let on_host =
        parse("(zero: (stage: 1), device: Cuda, offload: (optimizer: Host, update_on: Host))").unwrap().config();
    assert!(on_host.updates_on_host() && !of_gpu.updates_on_host());
    let plain =
        parse("(zero: (stage: 0, bucket: B(18446744073709551615)), mesh: (zero: 1), batch: (sequences: 1, length: 1))");
    assert_eq!(plain.unwrap().config(), config::Config::PLAIN);
    let every = parse("(zero: (stage: 0), recompute: Every(3))").unwrap();
    assert_eq!(every.config().recompute, config::Recompute::Every(3));
}

#[test]
fn defaults_are_as_documented() {
    let spec = parse("(zero: (stage: 3))").unwrap();
    assert_eq!((spec.mesh.zero, spec.zero.prefetch()), (2, 1));
    assert_eq!(spec.zero.bucket.bytes(), 25 << 20);
    assert_eq!((spec.batch.sequences, spec.batch.length, spec.batch.micro_batches), (4, 256, 1));
    assert_eq!((spec.transport(), spec.model, spec.memory), (TransportKind::Shm, None, None));
    assert_eq!((spec.mesh.replica, spec.mesh.pipeline, spec.mesh.nodes(), spec.mesh.within_node), (1, 1, 1, vec![]));
    assert_eq!((spec.zero.gather, spec.zero.reduce), (Often::PerMicroBatch, Often::PerMicroBatch));
    assert_eq!((spec.pipeline.schedule, spec.pipeline.units), (Schedule::OneFOneB, Units::Balanced));
    assert_eq!((spec.precision, spec.recompute), (config::Config::PLAIN.precision, None));
    assert_eq!(parse("(zero: (stage: 2))").unwrap().zero.prefetch(), 0);
}

#[test]
fn z0101_syntax() {
    let message = "the spec cannot be read: a comma is missing before `mesh`";
    one("(\n    zero: (stage: 3)\n    mesh: (zero: 2),\n)", "Z0101", (3, 5), message, "reading stops here");
    let message = "the spec cannot be read: a `(` is never closed";
    one("(zero: (stage: 3)", "Z0101", (1, 18), message, "the text ends here");
    one("", "Z0101", (1, 1), "the spec cannot be read: it is empty", "reading stops here");
    let message = "the spec cannot be read: expected struct `Spec` but found `Plan`";
    one("Plan(zero: (stage: 3, stage: 2))", "Z0101", (1, 1), message, "reading stops here");
    assert_eq!(mistakes("(zero: (stage: 9, bad: 1), oops").len(), 1, "nothing after a syntax error");
}

#[test]
fn z0102_missing_key() {
    let label = "`stage` has no default";
    one("(\n    zero: (bucket: MiB(2)),\n)", "Z0102", (2, 5), "missing key `stage` in `zero`", label);
    one("(zero: ())", "Z0102", (1, 2), "missing key `stage` in `zero`", label);
    one("// none\n()", "Z0102", (2, 1), "missing key `zero` in the spec", "`zero` has no default");
    one("(mesh: (zero: 2)) // )", "Z0102", (1, 1), "missing key `zero` in the spec", "`zero` has no default");
}

#[test]
fn z0103_wrong_type() {
    let number = "expected a number of units from 0 to 4294967295";
    let message = |found| format!("`zero.prefetch` expects a number of units from 0 to 4294967295, found `{found}`");
    for found in ["\"two\"", "2.5", "two", "(1)", "[1]", "true"] {
        let text = format!("(zero: (stage: 3, prefetch: {found}))");
        one(&text, "Z0103", (1, 29), &message(found), number);
    }
    let size = "expected a size from `B(1)` up, such as `MiB(25)`";
    for found in ["25", "MiB", "MiB(\"x\")", "MiB(1, 2)", "\"25 MiB\""] {
        let text = format!("(zero: (stage: 3, bucket: {found}))");
        one(&text, "Z0103", (1, 27), &format!("`zero.bucket` expects {}, found `{found}`", &size[9..]), size);
    }
    for (found, quoted) in [("3", "3"), ("[\n  1,\n]", "[ 1, ]"), ("Shm", "Shm"), ("Foo(zero: 2)", "Foo(zero: 2)")] {
        let text = format!("(zero: (stage: 3), mesh: {found})");
        let message = format!("`mesh` expects a section such as `(zero: 2)`, found `{quoted}`");
        one(&text, "Z0103", (1, 26), &message, "expected a section such as `(zero: 2)`");
    }
    one(
        "(zero: 3)",
        "Z0103",
        (1, 8),
        "`zero` expects a section such as `(stage: 3)`, found `3`",
        "expected a section such as `(stage: 3)`",
    );
    one(
        "(zero: (stage: x))",
        "Z0103",
        (1, 16),
        "`zero.stage` expects 0, 1, 2 or 3, found `x`",
        "expected 0, 1, 2 or 3",
    );
}

#[test]
fn z0103_unknown_variant() {
    let message = "unknown variant `shm` for `transport`, expected `Local`, `Shm`, `Peer`, `Nccl` or `Cluster`";
    one("(zero: (stage: 3), transport: shm)", "Z0103", (1, 31), message, "did you mean `Shm`?");
    let message = "unknown variant `Mpi` for `transport`, expected `Local`, `Shm`, `Peer`, `Nccl` or `Cluster`";
    one(
        "(zero: (stage: 3), transport: Mpi)",
        "Z0103",
        (1, 31),
        message,
        "expected `Local`, `Shm`, `Peer`, `Nccl` or `Cluster`",
    );
    let message = "unknown variant `F16` for `precision.params`, expected `F32` or `BF16`";
    one("(zero: (stage: 3), precision: (params: F16))", "Z0103", (1, 40), message, "expected `F32` or `BF16`");
    let text = "(zero: (stage: 3), precision: (params: F16, moments: BF32))";
    assert_eq!(mistakes(text)[1].4, "did you mean `F32`?");
    let text = "(zero: (stage: 3, bucket: Mib(25)))";
    let problem = &parse(text).unwrap_err()[0];
    assert_eq!((problem.code, problem.span.clone()), ("Z0103", Some(26..29)));
    assert_eq!(problem.label, "did you mean `MiB`?");
}

#[test]
fn z0104_duplicate_key() {
    let text = "(\n    zero: (stage: 3, stage: 2),\n    zero: (stage: 9),\n)";
    let problems = parse(text).unwrap_err();
    let places: Vec<_> = problems
        .iter()
        .map(|problem| {
            let (first, label) = problem.also.clone().unwrap();
            assert_eq!((problem.label.as_str(), label.as_str()), ("given again", "first given here"));
            let second = problem.span.clone().unwrap();
            (problem.code, problem.message.as_str(), line_column(text, second.start), line_column(text, first.start))
        })
        .collect();
    assert_eq!(
        places,
        [("Z0104", "duplicate key `zero.stage`", (2, 22), (2, 12)), ("Z0104", "duplicate key `zero`", (3, 5), (2, 5)),]
    );
}

#[test]
fn z0105_no_such_stage() {
    for stage in ["4", "-1", "300", "99999999999999999999999"] {
        let text = format!("(\n    zero: (prefetch: 2, stage: {stage}),\n)");
        one(&text, "Z0105", (2, 32), &format!("stage {stage} does not exist"), "expected 0, 1, 2 or 3");
    }
    let help = parse("(zero: (stage: 4))").unwrap_err()[0].help.clone().unwrap();
    assert!(help.contains("3 the parameters too"), "{help}");
}

#[test]
fn z0107_unknown_key() {
    let text = "// see `prefech`\n(\n    zero: (stage: 3, /* prefech: 1 */ prefech: 2),\n)";
    one(text, "Z0107", (3, 39), "unknown key `prefech` in `zero`", "did you mean `prefetch`?");
    let help = parse(text).unwrap_err()[0].help.clone();
    assert_eq!(help.as_deref(), Some("the keys of `zero` are `stage`, `prefetch`, `bucket`, `gather`, `reduce`"));
    let text = "(zero: (stage: 3), r#messh: (stage: 9, zero: \"x\"))";
    one(text, "Z0107", (1, 22), "unknown key `messh` in the spec", "did you mean `mesh`?");
    let text = "(zero: (stage: 3), prefetch: 2)";
    one(text, "Z0107", (1, 20), "unknown key `prefetch` in the spec", "did you mean `zero.prefetch`?");
    let text = "(zero: (stage: 3), weights: \"a\")";
    one(text, "Z0107", (1, 20), "unknown key `weights` in the spec", "not a key of the spec");
}

#[test]
fn z0107_a_key_that_is_gone() {
    let text = "(zero: (stage: 3), attention: Cudnn)";
    let reason = "gone: cuDNN's attention was slower than zero's own, which is the only one now";
    one(text, "Z0107", (1, 20), "unknown key `attention` in the spec", reason);
    assert_eq!(parse(text).unwrap_err()[0].help.as_deref(), Some("remove `attention`"));
}

#[test]
fn z0107_key_of_another_section() {
    for (section, key, label) in [
        ("pipeline", "microbatches", "did you mean `batch.micro_batches`?"),
        ("pipeline", "micro_batches", "did you mean `batch.micro_batches`?"),
        ("pipeline", "stages", "did you mean `mesh.pipeline`?"),
        ("mesh", "pp", "did you mean `mesh.pipeline`?"),
        ("mesh", "tp", "no such axis: ranks lie along `replica`, `pipeline` and `zero`"),
        ("batch", "size", "did you mean `batch.sequences`?"),
        ("batch", "steps", "not part of a spec: it is an argument of the binary, which `--help` lists"),
        ("pipeline", "chunks", "did you mean `pipeline.schedule.chunks`?"),
        ("mesh", "tensor", "no such axis: ranks lie along `replica`, `pipeline` and `zero`"),
        ("mesh", "ranks", "did you mean `mesh.zero`?"),
        ("zero", "recompute", "did you mean `recompute`?"),
        ("precision", "weights", "not a key of `precision`"),
    ] {
        let text = format!("(zero: (stage: 3{}), {section}: ({key}: 2))", if section == "zero" { ", " } else { "" });
        let text = text.replace(", ), zero: (", ", ");
        let column = text.rfind(key).unwrap() + 1;
        one(&text, "Z0107", (1, column), &format!("unknown key `{key}` in `{section}`"), label);
    }
}

#[test]
fn a_variant_with_something_wrong_inside_is_one_mistake() {
    let schedule = "`GPipe`, `OneFOneB` or `Interleaved(chunks: 2)`";
    let units = "`Balanced`, `Even` or `Split([3, 4])`";
    let recompute = "`Every(2)` or another number from 1 up, or `Fields([\"blocks\"])` with at least one field";
    let axes = "a list of `Zero`, `Replica` and `Pipeline`";
    for (path, value, expected) in [
        ("pipeline.schedule", "Interleaved(2)", schedule),
        ("pipeline.schedule", "Interleaved", schedule),
        ("pipeline.schedule", "GPipe(2)", schedule),
        ("pipeline.schedule", "\"GPipe\"", schedule),
        ("pipeline.schedule", "GPipe(chunks: 2)", schedule),
        ("pipeline.units", "Split(\"x\")", units),
        ("pipeline.units", "Split(3)", units),
        ("pipeline.units", "Split(3, 4)", units),
        ("pipeline.units", "Split([3, \"x\"])", units),
        ("pipeline.units", "Split(a: 3)", units),
        ("pipeline.units", "Split()", units),
        ("pipeline.units", "[3, 4]", units),
        ("recompute", "Every(\"x\")", recompute),
        ("recompute", "Every", recompute),
        ("recompute", "Every(k: 2)", recompute),
        ("recompute", "Fields(\"a\")", recompute),
        ("recompute", "Fields([3])", recompute),
        ("recompute", "2", recompute),
        ("mesh.within_node", "Zero", axes),
        ("mesh.within_node", "[3]", axes),
        ("mesh.within_node", "[Zero(3)]", axes),
        ("precision.params", "16", "`F32` or `BF16`"),
        ("checkpoint.snapshot", "1", "`true` or `false`"),
        ("optimizer", "\"Muon\"", "`AdamW` or `Muon`"),
    ] {
        let entry = match path.split_once('.') {
            Some((section, key)) => format!("{section}: ({key}: {value})"),
            None => format!("{path}: {value}"),
        };
        let text = format!("(zero: (stage: 1), {entry})");
        let column = text.rfind(value).unwrap() + 1;
        let message = format!("`{path}` expects {expected}, found `{value}`");
        one(&text, "Z0103", (1, column), &message, &format!("expected {expected}"));
    }
}

#[test]
fn a_key_of_a_variant_has_a_place() {
    let text = |inside| format!("(zero: (stage: 1), pipeline: (schedule: Interleaved({inside}), units: Even))");
    let message = "unknown key `chunk` in `pipeline.schedule`";
    one(&text("chunk: 2"), "Z0107", (1, 53), message, "did you mean `chunks`?");
    let message = "missing key `chunks` in `pipeline.schedule`";
    one(&text(""), "Z0102", (1, 31), message, "`chunks` has no default");
    let message = "unknown key `depth` in `pipeline.schedule`";
    one(&text("depth: 2"), "Z0107", (1, 53), message, "not a key of `pipeline.schedule`");
    let number = "a number of chunks from 2 to 4294967295";
    let message = format!("`pipeline.schedule.chunks` expects {number}, found `\"2\"`");
    one(&text("chunks: \"2\""), "Z0103", (1, 61), &message, &format!("expected {number}"));
    one(&text("chunks: 2, chunks: 3"), "Z0104", (1, 64), "duplicate key `pipeline.schedule.chunks`", "given again");
}

/// The size follows the name of a model, which is a form that `ron` alone does not read.
#[test]
fn a_size_is_read_after_the_name_of_its_model() {
    let text = |model: &str| format!("(model: {model}, zero: (stage: 1))");
    let read =
        |model: &str| parse(&text(model)).map(|spec| (spec.size.size.clone(), spec.size.parts().collect::<Vec<_>>()));
    let named = |name: &str| Some(name.to_owned());
    assert_eq!(read(r#"Example("a")"#), Ok((None, vec![])));
    assert_eq!(read(r#"Package("é", /* , */ size: "8B",)"#), Ok((named("8B"), vec![])));
    assert_eq!(read("Example(\"a\",\n // of the first\n layers: 3)"), Ok((None, vec![("layers", 3)])));
    for model in [r#"Example("a", size: "8B", inner: 7)"#, r#"Package("a")"#] {
        let spec = parse(&text(model)).unwrap();
        assert_eq!(spec.size.entry(&spec.model.unwrap()), model);
    }
    let size = "`model.size` expects the name of a size, such as `\"3.1-8B\"`, found `8`";
    for (model, code, column, message) in [
        (r#"Example("a", size: 8)"#, "Z0103", 28, size),
        (r#"Example("a", sise: "8B")"#, "Z0107", 22, "unknown key `sise` in `model`"),
        (r#"Example("a", size: "8B", size: "9B")"#, "Z0104", 34, "duplicate key `model.size`"),
        (r#"Example("a", layers: 0)"#, "Z0106", 30, "`model.layers` is out of range: `0`"),
        (r#"Example("a" size: "8B")"#, "Z0101", 21, "the spec cannot be read: a comma is missing before `size`"),
        (
            r#"Example("a", size: "8B" layers: 2)"#,
            "Z0101",
            33,
            "the spec cannot be read: a comma is missing before `layers`",
        ),
    ] {
        let found = mistakes(&text(model));
        let found: Vec<_> = found.iter().map(|(code, _, column, message, _)| (*code, *column, &**message)).collect();
        assert_eq!(found, [(code, column, message)], "{model}");
    }
    let found = mistakes(&text(r#"Exampel("a", size: "8B", layers: -1)"#));
    assert_eq!(found.iter().map(|it| (it.0, it.2)).collect::<Vec<_>>(), [("Z0103", 9), ("Z0106", 42)]);
    for other in [
        r#"(zero: Zero("x", stage: 1))"#,
        r#"("x", zero: (stage: 1))"#,
        r#"(zero: (stage: 1), mesh: Mesh("x", zero: 2))"#,
    ] {
        assert!(parse(other).is_err(), "{other}");
    }
}

#[test]
fn a_name_in_a_list_or_variant_is_pointed_at() {
    let text = "(zero: (stage: 1), mesh: (nodes: 2, within_node: [Zero, Repica]))";
    let message =
        "unknown variant `Repica` for `mesh.within_node`, expected a list of `Zero`, `Replica` and `Pipeline`";
    one(text, "Z0103", (1, 57), message, "did you mean `Replica`?");
    let text = "(zero: (stage: 1), pipeline: (schedule: Interleave(chunks: 2)))";
    let found = mistakes(text);
    assert_eq!((found.len(), found[0].2, found[0].4.as_str()), (1, 41, "did you mean `Interleaved`?"));
}

#[test]
fn a_misspelled_stage_is_not_missing_too() {
    one("(zero: (stag: 3))", "Z0107", (1, 9), "unknown key `stag` in `zero`", "did you mean `stage`?");
    one("(zro: (stage: 3))", "Z0107", (1, 2), "unknown key `zro` in the spec", "did you mean `zero`?");
    one("(stage: 3)", "Z0107", (1, 2), "unknown key `stage` in the spec", "did you mean `zero.stage`?");
}

#[test]
fn all_mistakes_are_found_together_in_order() {
    let text = r#"(
    transport: Smh,
    memory: GiB(0),
    zero: (prefech: 2, bucket: KiB(0), prefetch: "2", /* é */ prefetch: 1),
    mesh: (zero: -4),
    batch: (length: 0, size: 1, sequences: [1]),
    model: Exampel("gpt"))"#;
    let found: Vec<_> = mistakes(text).into_iter().map(|(code, line, column, ..)| (code, line, column)).collect();
    assert_eq!(
        found,
        [
            ("Z0103", 2, 16),
            ("Z0106", 3, 13),
            ("Z0102", 4, 5),
            ("Z0107", 4, 12),
            ("Z0106", 4, 32),
            ("Z0103", 4, 50),
            ("Z0104", 4, 63),
            ("Z0106", 5, 18),
            ("Z0106", 6, 21),
            ("Z0107", 6, 24),
            ("Z0103", 6, 44),
            ("Z0103", 7, 12),
        ]
    );
}

/// Whatever a token is replaced by, reading ends and finds at most one mistake, with a place.
#[test]
fn any_token_may_be_wrong() {
    let spans = tokens(FULL);
    for span in spans.iter().map(|token| token.span.clone()) {
        for other in ["", "x", "\"x\"", "0", "-1", "Even", "[]", "()", "(a: 1)", "Split([0, 7])", ",", ")", "None"] {
            let text = format!("{}{other}{}", &FULL[..span.start], &FULL[span.end..]);
            let problems = parse(&text).err().unwrap_or_default();
            // Another stage leaves two options without effect.
            assert!(problems.len() <= 1 || other == "0", "{text}: {problems:#?}");
            for problem in problems {
                let place = problem.span.clone().unwrap_or_else(|| panic!("{text}: {problem:?}"));
                assert!(place.end <= text.len() && !problem.render("a.ron", &text).is_empty());
            }
        }
    }
}
