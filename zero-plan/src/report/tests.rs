//! Tests that compare reports of whole plans with the texts in `golden`, and of what must be true of any report.

use super::*;
use crate::build::PlanBuf;
use crate::config::{DeviceKind, Often, Order, Recompute, TransportKind, Width};
use crate::mesh::Mesh;
use crate::plan::PipelineStage;
use crate::schedule::Op;
use crate::unit::Unit;

const DIM: usize = 192;
const TOKENS: usize = 512;

/// A small GPT of `blocks` blocks, with roughly realistic sizes.
fn gpt(blocks: usize) -> Vec<Unit> {
    let wide = 4 * DIM * TOKENS;
    let unit = |field, params, saved: usize, operations| Unit {
        field,
        params,
        takes: params,
        saved_bytes: 4 * saved * TOKENS,
        workspace_bytes: 4 * wide,
        input_bytes: wide,
        output_bytes: wide,
        operations: operations * TOKENS,
        ..Unit::NONE
    };
    let embed = Unit { input_bytes: 4 * TOKENS, ..unit("embed", 384 * DIM, 0, 0) };
    let block = |i| Unit { index: Some(i), ..unit("blocks", 12 * DIM * DIM + 13 * DIM, 16 * DIM, 24 * DIM * DIM) };
    let norm = unit("norm", 2 * DIM + 1, 2, 8 * DIM);
    let head = Unit { output_bytes: 4, targets_bytes: 4 * TOKENS, ..unit("head", 256 * DIM, 256, 2 * 256 * DIM) };
    let units = [embed].into_iter().chain((0..blocks).map(block)).chain([norm, head]);
    units.enumerate().map(|(source, unit)| Unit { source, ..unit }).collect()
}

const ZERO3: Config = Config {
    mesh: Mesh::of_zero(2),
    stage: 3,
    prefetch: 2,
    bucket_bytes: 2 << 20,
    sequences: 4,
    length: 128,
    memory_bytes: Some(256 << 20),
    ..Config::PLAIN
};

/// ZeRO-3 inside a node, a pipeline across.
const HYBRID: Config = Config { mesh: Mesh { nodes: 2, pipeline: 2, ..Mesh::of_zero(4) }, micro_batches: 8, ..ZERO3 };

/// ZeRO-3 inside a node, replicas across.
const HSDP: Config = Config { mesh: Mesh { nodes: 2, replica: 2, ..Mesh::of_zero(4) }, ..ZERO3 };

const BF16: Precision = Precision { params: Width::BF16, reduce: Width::BF16, ..Config::PLAIN.precision };

fn report(config: Config, blocks: usize) -> String {
    PlanBuf::new("Gpt", config, &gpt(blocks)).with(|plan| Report(plan).to_string())
}

#[track_caller]
fn require_text(text: &str, expected: &str) {
    assert!(text == expected.trim_end(), "the text is now\n{text}");
}

#[test]
fn one_axis_is_short() {
    require_text(&report(ZERO3, 4), include_str!("golden/zero3.txt"));
}

#[test]
fn zero_in_nodes_and_a_pipeline_across() {
    require_text(&report(HYBRID, 6), include_str!("golden/hybrid.txt"));
}

#[test]
fn zero_in_nodes_and_replicas_across() {
    require_text(&report(HSDP, 4), include_str!("golden/hsdp.txt"));
}

#[test]
fn schedule_text() {
    let config = Config { micro_batches: 2, ..HYBRID };
    let text = PlanBuf::new("Gpt", config, &gpt(2)).with(|plan| ScheduleText(plan).to_string());
    require_text(&text, include_str!("golden/hybrid-schedule.txt"));
}

#[test]
fn sections_that_do_not_apply_are_left_out() {
    let text = report(Config::PLAIN, 2);
    for section in ["mesh", "pipeline", "precision", "recompute", "budget", "held", "gathered", "all-gather"] {
        assert!(!text.contains(section), "{section} in\n{text}");
    }
}

#[test]
fn widths_and_recomputed_units_are_named() {
    let text = report(Config { precision: BF16, recompute: Recompute::Fields(&["blocks"]), ..ZERO3 }, 4);
    let precision = "precision: compute F32, parameters BF16, gradients BF16, master F32, moments F32";
    assert!(text.contains(&format!("\n{precision}\n  2 + 2 + 12 bytes a parameter\n")), "{text}");
    // By hand: blocks of 24 d^2 operations a token run 4 times instead of 3, norm has 8 d, head 512 d: d = 192.
    let percent = 100.0 * (4.0 * 24.0 * 192.0) / (3.0 * (4.0 * 24.0 * 192.0 + 8.0 + 512.0));
    assert!(text.contains(&format!("\nrecompute: {percent:.1} % more operations; blocks[0..4]\n")), "{text}");
}

#[test]
fn bubbles_say_of_what() {
    let interleaved = Config { order: Order::Interleaved { chunks: 2 }, ..HYBRID };
    let text = report(interleaved, 6);
    assert!(text.contains("5.9 % of the step, (p-1)/(v m+p-1); 6.2 % over ideal time, (p-1)/(v m)\n"), "{text}");
    assert!(text.contains("interleaved 1F1B over 2 pipeline stages with 2 chunks each"), "{text}");
}

#[test]
fn choices_of_what_is_held_mark_the_plan() {
    let text = report(Config { gather: Often::PerStep, reduce: Often::PerStep, ..HYBRID }, 6);
    let choices: Vec<_> = text.lines().filter(|line| line.starts_with("  gather: ")).collect();
    assert_eq!(choices.len(), 4);
    let marked: Vec<_> = choices.iter().map(|line| line.ends_with("this plan")).collect();
    assert_eq!(marked, [false, false, false, true]);
    let arena = PlanBuf::new("Gpt", HYBRID, &gpt(6)).with(|plan| plan.bytes_per_rank_max());
    assert!(choices[0].contains(&crate::message::Bytes(arena).to_string()), "{text}");
}

/// Configurations that differ in everything that reports show.
fn all_sorts() -> Vec<(Config, usize)> {
    let large = |pipeline, zero, replica| Mesh { nodes: 4, pipeline, replica, ..Mesh::of_zero(zero) };
    let interleaved = Order::Interleaved { chunks: 3 };
    vec![
        (Config::PLAIN, 1),
        (ZERO3, 4),
        (HYBRID, 6),
        (HSDP, 4),
        (Config { mesh: large(8, 8, 16), recompute: Recompute::Every(2), precision: BF16, ..HYBRID }, 62),
        (Config { mesh: large(64, 4, 2), order: Order::GPipe, micro_batches: 64, ..HYBRID }, 100),
        (Config { mesh: large(4, 2, 2), order: interleaved, transport: TransportKind::Local, ..HYBRID }, 96),
        (Config { mesh: large(2, 6, 1), stage: 0, ..HYBRID }, 9),
    ]
}

#[test]
fn no_line_is_too_long() {
    for (config, blocks) in all_sorts() {
        let text = report(config, blocks);
        require_narrow(&text);
    }
}

#[test]
fn many_fields_are_wrapped() {
    let units: Vec<_> = gpt(36).into_iter().map(|unit| Unit { index: None, ..unit }).collect();
    let config = Config { order: Order::Interleaved { chunks: 2 }, recompute: Recompute::Every(1), ..HYBRID };
    PlanBuf::new("Gpt", config, &units).with(|plan| require_narrow(&Report(plan).to_string()));
}

#[track_caller]
fn require_narrow(text: &str) {
    assert!(text.lines().all(|line| line.len() <= WIDTH && line.trim_end() == line), "{text}");
}

#[test]
fn every_rank_has_a_place_among_a_few_lines() {
    for (config, blocks) in all_sorts().into_iter().filter(|(config, _)| long_axes(config).len() > 1) {
        let text = report(config, blocks);
        let lines = text.lines().skip_while(|line| !line.starts_with("  ranks ")).skip(1);
        let spans: Vec<(usize, usize)> = lines
            .map_while(|line| line.split_whitespace().next())
            .map(|span| span.split_once('-').unwrap_or((span, span)))
            .map(|(first, last)| (first.parse().expect("a rank"), last.parse().expect("a rank")))
            .collect();
        assert!(spans.len() <= 16, "{text}");
        assert_eq!((spans[0].0, spans[spans.len() - 1].1 + 1), (0, config.mesh.ranks()), "{text}");
        assert!(spans.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0), "{text}");
    }
}

/// Ops that differ from `op` in one number.
fn changed(op: Op) -> Vec<Op> {
    match op {
        Op::Gather { unit, slot } => vec![Op::Gather { unit, slot: slot + 1 }, Op::Convert { unit, slot }],
        Op::Receive { parcel, unit, micro_batch, slot } => vec![
            Op::Receive { parcel, unit, micro_batch: micro_batch + 1, slot },
            Op::Receive { parcel, unit, micro_batch, slot: slot + 1 },
        ],
        Op::Send { parcel, unit, micro_batch } => vec![Op::Send { parcel, unit, micro_batch: micro_batch + 1 }],
        Op::Forward { unit, micro_batch, slot } => vec![
            Op::Forward { unit, micro_batch: micro_batch + 1, slot },
            Op::Forward { unit, micro_batch, slot: slot + 1 },
            Op::Backward { unit, micro_batch, slot },
        ],
        Op::Backward { unit, micro_batch, slot } => vec![
            Op::Backward { unit, micro_batch: micro_batch + 1, slot },
            Op::Backward { unit, micro_batch, slot: slot + 1 },
            Op::Recompute { unit, micro_batch, slot },
        ],
        Op::Reduce { bucket, round } => vec![Op::Reduce { bucket, round: round + 1 }, Op::Settle { bucket, round }],
        Op::Settle { bucket, round } => vec![Op::Settle { bucket, round: round + 1 }, Op::Combine { bucket, round }],
        Op::Spread { bucket, .. } => Axis::ALL.map(|axis| Op::Spread { bucket, axis }).to_vec(),
        Op::Wait { unit } => vec![Op::Wait { unit: unit + 1 }, Op::Release { unit }, Op::Update { unit, piece: None }],
        _ => vec![Op::Agree],
    }
}

/// Ops of a device with streams are numbered, and show their stream and the op that they wait for.
#[test]
fn streams_are_told() {
    let config = Config { device: DeviceKind::Cuda, transport: TransportKind::Peer, mesh: Mesh::of_zero(2), ..HYBRID };
    let text = PlanBuf::new("Gpt", config, &gpt(1)).with(|plan| ScheduleText(plan).to_string());
    let expected = "  evaluation, 16 ops
    F mb 0 slot 0 | 0 gather embed -> 0 (stream gather) | 1 gather blocks[0] -> 1 (stream gather) |
        2 gather norm -> 2 (stream gather) | 3 wait embed (after 0) | 4 forward embed | 5 release embed |
        6 gather head -> 0 (stream gather after 5) | 7 wait blocks[0] (after 1) | 8 forward blocks[0] |
        9 release blocks[0] | 10 wait norm (after 2) | 11 forward norm | 12 release norm | 13 wait head (after 6) |
        14 forward head | 15 release head";
    assert_eq!(&text[text.find("  evaluation").expect("an evaluation")..], expected);
    assert!(text.lines().all(|line| line.len() <= 120), "{text}");
}

#[test]
fn different_schedules_have_different_texts() {
    let mesh = Mesh { replica: 2, ..HYBRID.mesh };
    let mut units = gpt(4);
    let head = units.len() - 1;
    units[head] = Unit { params: 0, source: 0, ..units[head] };
    PlanBuf::new("Gpt", Config { mesh, micro_batches: 2, ..HYBRID }, &units).with(|plan| {
        let original = plan.pipeline_stages[0].step;
        let mut schedules = vec![original.to_vec()];
        for i in 0..original.len() {
            let (before, after) = (&original[..i], &original[i + 1..]);
            schedules.push([before, after].concat());
            schedules.push([before, after, &original[i..=i]].concat());
            schedules.extend(changed(original[i]).into_iter().map(|op| [before, &[op], after].concat()));
        }
        let text = |step: &[Op]| {
            let pipeline_stages = [PipelineStage { step, ..plan.pipeline_stages[0] }, plan.pipeline_stages[1]];
            ScheduleText(&Plan { pipeline_stages: &pipeline_stages, ..*plan }).to_string()
        };
        schedules.sort_by_key(|ops| format!("{ops:?}"));
        schedules.dedup();
        let mut texts: Vec<_> = schedules.iter().map(|ops| text(ops)).collect();
        assert!(texts.iter().all(|text| text.lines().all(|line| line.len() <= 120)));
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), schedules.len());
    });
}
