//! Compares the search with brute force over all specs, and checks the answers for published models.

use zero_plan::spec::{ModelSize, ModelSource, Size, parse};
use zero_plan::{Axis, Bytes, Config, Plan, PlanBuf, Precision, Recompute, Traffic, Unit, Width};

use super::question::{Effort, Judge, NoAdvice, Question, Simulated};
use super::transformer::{LLAMA_2_13B, LLAMA_3_8B, LLAMA_3_70B};
use super::*;
use crate::hardware::Hardware;
use crate::picture::{Picture, TimeAxis, Timed};
use crate::repository::text;
use crate::simulate::{Prediction, PredictionText, ShownTime, simulate};

pub(super) fn file(text: &str) -> Hardware {
    Hardware::parse(text).expect("a file of hardware")
}

fn named(name: &str) -> Hardware {
    file(&text(&format!("hardware/{name}.ron")))
}

pub(super) fn a100() -> Hardware {
    named("a100-80")
}

pub(super) fn ask<'a>(
    hardware: &'a Hardware,
    nodes: usize,
    length: usize,
    tokens_per_step: Option<usize>,
    units: &'a dyn Fn(Width, usize) -> Option<Vec<Unit>>,
) -> Question<'a> {
    Question {
        model: ModelSource::Example("llama".to_owned()),
        size: ModelSize::default(),
        name: "Llama",
        hardware,
        nodes,
        length,
        tokens_per_step,
        pins: Pins::default(),
        pure_bf16: false,
        effort: Effort::default(),
        offload: OffloadUse::IfNeeded,
        units,
    }
}

pub(super) fn pinned<'a>(question: Question<'a>, pins: &[&str]) -> Question<'a> {
    Question { pins: Pins::read(pins).unwrap(), ..question }
}

/// A small model: five units of unequal sizes. A bucket of 25 MiB holds one of them, and one of 100 MiB several.
pub(super) fn small(_: Width, sequences: usize) -> Option<Vec<Unit>> {
    let unit = |i: usize| Unit {
        field: "layers",
        index: Some(i),
        params: 4_000_000 + 3_000_000 * (i % 3),
        takes: 4_000_000 + 3_000_000 * (i % 3),
        source: i,
        saved_bytes: sequences * (2_000_000 + 1_000_000 * (i % 2)),
        workspace_bytes: 400_000,
        input_bytes: 400_000 * sequences,
        output_bytes: 400_000 * sequences,
        operations: sequences * (4_000_000_000 + 2_000_000_000 * (i % 3)),
        ..Unit::NONE
    };
    Some((0..5).map(unit).collect())
}

/// Nodes with two devices each, whose memory holds only a part of what the small model needs.
pub(super) fn tiny(memory_kib: u64) -> Hardware {
    file(&format!(
        "(name: \"tiny\", device: (name: \"d\", kind: Gpu, memory: KiB({memory_kib}), matmul: (f32: 1e12, bf16: 4e12), \
         bandwidth: 1e11, op: 1e-6), node: (devices: 2, link: (bandwidth: 2e10, latency: 2e-6)), \
         network: (bandwidth: 2e9, latency: 5e-6))"
    ))
}

/// A judge without a machine: it mixes bytes on the wire by axis, ops and memory as no simulation would.
struct Artificial(u64);

impl Judge for Artificial {
    fn step_s(&self, plan: &Plan) -> Option<f64> {
        let (mut cost, seed) = (0.0, self.0 as f64);
        for (number, pipeline_stage) in plan.pipeline_stages.iter().enumerate() {
            let traffic = Traffic::of(plan, plan.first_rank(number), pipeline_stage.step);
            for (i, axis) in Axis::ALL.into_iter().enumerate() {
                let weight = if plan.config.mesh.crosses_nodes(axis) { 7.0 } else { 1.0 };
                cost += weight * traffic.on(axis) as f64 * (1.0 + (seed * (i + 1) as f64).sin().abs());
            }
            cost += pipeline_stage.step.len() as f64 * 300.0 * (seed * 5.0).cos().abs();
            cost += pipeline_stage.memory.bytes_per_rank() as f64 * (seed * 3.0).sin().abs();
        }
        Some(cost)
    }
}

/// Values that are tried by brute force.
struct Tried {
    device: &'static str,
    sequences: &'static [usize],
    recompute: &'static [&'static str],
}

/// All texts of specs that a person could write for this model on these ranks, including symmetric specs.
fn every_spec(nodes: usize, ranks: usize, length: usize, tokens: usize, space: &Tried) -> Vec<String> {
    let (mut texts, device) = (Vec::new(), space.device);
    let withins =
        ["", "[Zero]", "[Replica]", "[Pipeline]", "[Zero, Replica]", "[Zero, Pipeline]", "[Replica, Pipeline]"];
    let precisions = [
        "",
        "precision: (compute: BF16, params: BF16, reduce: F32, master: F32, moments: F32),",
        "precision: (compute: BF16, params: BF16, reduce: BF16, master: F32, moments: F32),",
    ];
    let schedules = ["OneFOneB", "GPipe", "Interleaved(chunks: 2)", "Interleaved(chunks: 4)"];
    for zero in 1..=ranks {
        for replica in (1..=ranks).filter(|replica| ranks.is_multiple_of(zero * replica)) {
            let pipeline = ranks / zero / replica;
            let of_rank = tokens / (length * zero * replica);
            if of_rank * length * zero * replica != tokens {
                continue;
            }
            let batches = space.sequences.iter().filter(|n| of_rank.is_multiple_of(**n));
            let mut zeros = Vec::new();
            for stage in 0..=3 {
                for (bucket, reduce) in
                    ["MiB(25)", "MiB(100)", "MiB(400)"].iter().flat_map(|b| ["", "PerStep"].map(|r| (b, r)))
                {
                    let reduce = if reduce.is_empty() { String::new() } else { format!(", reduce: {reduce}") };
                    if stage < 3 {
                        zeros.push(format!("stage: {stage}, bucket: {bucket}{reduce}"));
                        continue;
                    }
                    for (prefetch, gather) in
                        [0, 1, 2, 4].iter().flat_map(|p| ["PerStep", "PerMicroBatch"].map(|g| (p, g)))
                    {
                        let prefetch = if zero == 1 { String::new() } else { format!("prefetch: {prefetch}, ") };
                        zeros.push(format!("stage: 3, {prefetch}bucket: {bucket}, gather: {gather}{reduce}"));
                    }
                }
            }
            for (n, within) in batches.flat_map(|n| withins.map(|within| (n, within))) {
                let within = if within.is_empty() { String::new() } else { format!(", within_node: {within}") };
                let mesh = format!("nodes: {nodes}, zero: {zero}, replica: {replica}, pipeline: {pipeline}{within}");
                let batch = format!("sequences: {n}, length: {length}, micro_batches: {}", of_rank / n);
                for (zeros, precision) in zeros.iter().flat_map(|zeros| precisions.map(|precision| (zeros, precision)))
                {
                    for recompute in space.recompute {
                        let rest = format!(
                            "(mesh: ({mesh}), zero: ({zeros}), batch: ({batch}), {precision} {recompute} {device},"
                        );
                        if pipeline == 1 {
                            texts.push(format!("{rest})"));
                            continue;
                        }
                        for (schedule, units) in schedules.iter().flat_map(|s| ["Balanced", "Even"].map(|u| (s, u))) {
                            texts.push(format!("{rest} pipeline: (schedule: {schedule}, units: {units}))"));
                        }
                    }
                }
            }
        }
    }
    texts
}

/// The fewest seconds per token of all specs that can be written, by each judge, and how many specs can run. Only the
/// first judge, which simulates, is asked about stages above 0 with one rank along `zero`. The other judges charge for
/// memory and ops, which differ there.
fn brute_force(question: &Question, judges: [&dyn Judge; 3], tokens: usize, space: &Tried) -> ([f64; 3], usize) {
    let (mut best_s, mut ran) = ([f64::INFINITY; 3], 0);
    let per_node = question.ranks_per_node().into_iter();
    let specs = |per_node| every_spec(question.nodes, question.nodes * per_node, question.length, tokens, space);
    for text in per_node.flat_map(specs) {
        let Ok(spec) = parse(&text) else { continue };
        let config = spec.config();
        let asked = if config.mesh.zero == 1 && config.stage > 0 { 1 } else { 3 };
        let units = (question.units)(config.precision.compute, config.sequences).unwrap();
        let gathered = units.iter().filter(|unit| unit.params > 0).count();
        let divides =
            spec.pipeline.units != zero_plan::spec::Units::Even || units.len().is_multiple_of(config.chunks());
        if config.chunks() > units.len() || !divides || config.stage == 3 && config.prefetch >= gathered {
            continue;
        }
        let plan = PlanBuf::new(question.name, config, &units);
        let bytes = plan.with(|plan| plan.total_bytes_max(&zero_plan::footprint::RunSize::LEAST));
        if bytes > question.budget(config.mesh.ranks_per_node()) {
            continue;
        }
        for (judge, best_s) in judges.iter().zip(&mut best_s).take(asked) {
            let step_s = plan.with(|plan| judge.step_s(plan)).unwrap();
            *best_s = best_s.min(step_s / config.tokens_per_step() as f64);
        }
        ran += 1;
    }
    (best_s, ran)
}

/// Nodes with two cores each.
fn cores(memory_kib: u64) -> Hardware {
    file(&format!(
        "(name: \"cores\", device: (name: \"c\", kind: Cpu, memory: KiB({memory_kib}), matmul: (f32: 1e11, bf16: 1e11), \
         bandwidth: 1e10, op: 1e-6), node: (devices: 2), network: (bandwidth: 1e9, latency: 5e-6))"
    ))
}

/// Compares the search with brute force, by each of three judges.
fn assert_finds_the_best(hardware: &Hardware, nodes: usize, space: &Tried, pins: &[&str]) {
    let (length, tokens, effort) = (8, 8 * 8, Effort { plans: usize::MAX });
    let question = Question { effort, ..pinned(ask(hardware, nodes, length, Some(tokens), &small), pins) };
    let judges: [&dyn Judge; 3] = [&Simulated(hardware), &Artificial(1), &Artificial(2)];
    let (best_s, ran) = brute_force(&question, judges, tokens, space);
    for (judge, best_s) in judges.into_iter().zip(best_s) {
        let found = search(&question, judge).unwrap();
        assert!(ran >= found.timed.len(), "{ran}");
        assert_eq!(found.timed[0].token_s, best_s, "{nodes} nodes, {}: {:?}", hardware.name, found.timed[0]);
        assert!(found.is_exhaustive && found.refused == 0, "{found:?}");
    }
}

const SOME_PINS: [&str; 2] = ["batch.sequences=2", "recompute=Every(2)"];

const fn some(device: &'static str) -> Tried {
    Tried { device, sequences: &[2], recompute: &["recompute: Every(2),"] }
}

#[test]
fn the_search_finds_what_brute_force_finds() {
    let recompute: &[&str] = &["", "recompute: Every(1),", "recompute: Every(2),"];
    let all = Tried { device: "device: Cuda", sequences: &[1, 2, 4, 8, 16], recompute };
    assert_finds_the_best(&tiny(440_000), 1, &all, &[]);
    assert_finds_the_best(&tiny(310_000), 2, &some("device: Cuda, transport: Nccl"), &SOME_PINS);
}

/// Ranks on processors may have several cores, and need other amounts of memory if `zero` crosses nodes.
#[test]
fn the_search_finds_what_brute_force_finds_on_processors() {
    assert_finds_the_best(&cores(1_000_000), 1, &some("transport: Shm"), &SOME_PINS);
    assert_finds_the_best(&cores(700_000), 2, &some("transport: Cluster"), &SOME_PINS);
}

/// With less effort, the answer is no better, it is reported as exhaustive only if it is, and bounds still hold.
#[test]
fn a_bounded_search_says_so() {
    let hardware = tiny(900_000);
    let (mut bounded, mut exhaustive) = (0, 0);
    for nodes in [1, 2] {
        let whole = Question { effort: Effort { plans: usize::MAX }, ..ask(&hardware, nodes, 8, Some(64), &small) };
        let best_s = search(&whole, &Simulated(&hardware)).unwrap().timed[0].token_s;
        for plans in [1, 2, 3, 10, 60, 400, 1200] {
            let question = Question { effort: Effort { plans }, ..ask(&hardware, nodes, 8, Some(64), &small) };
            let found = search(&question, &Simulated(&hardware)).unwrap();
            assert!(found.timed.len() <= plans.max(1) && found.timed[0].token_s >= best_s);
            assert!(!found.is_exhaustive || found.timed[0].token_s == best_s);
            assert!(found.untimed.iter().all(|(_, least_s, _)| *least_s > 0.0));
            bounded += usize::from(!found.is_exhaustive);
            exhaustive += usize::from(found.is_exhaustive && !found.untimed.is_empty());
        }
    }
    // Some searches prove their answer the best without timing everything, and other searches do not.
    assert!(bounded > 0 && exhaustive > 0, "{bounded} {exhaustive}");
}

/// The judged configuration is that of the spec, and no step is faster than its bound.
#[test]
fn texts_of_candidates_are_their_configurations() {
    let hardware = tiny(900_000);
    for nodes in [1, 2] {
        let question = Question { effort: Effort { plans: 300 }, ..ask(&hardware, nodes, 8, Some(128), &small) };
        let judge = Simulated(&hardware);
        for timed in search(&question, &judge).unwrap().timed {
            let text = timed.candidate.text(&question, &["Why.".to_owned()]);
            let config = parse(&text).unwrap().config();
            assert_eq!(config, timed.candidate.config(&question), "{text}");
            let units = small(config.precision.compute, config.sequences).unwrap();
            assert!(judge.least_s(&config, &units) <= timed.step_s, "{text}");
            let plan = PlanBuf::new("x", config, &units);
            let bytes = plan.with(|plan| plan.total_bytes_max(&zero_plan::footprint::RunSize::LEAST));
            assert_eq!(bytes, timed.bytes);
        }
    }
}

/// If only operations take time, one rank takes as long as the bound says: attention has its own rate, and a head that
/// leaves its forward to its backward recomputes nothing.
#[test]
fn a_rank_that_only_computes_takes_as_long_as_its_bound() {
    let mut hardware = tiny(900_000);
    (hardware.device.op, hardware.device.bandwidth) = (0.0, 1e18);
    let mut units = small(Width::BF16, 1).unwrap();
    units.iter_mut().for_each(|unit| unit.attending = unit.operations / 2);
    units[4].losses_in_backward = true;
    let config = Config { sequences: 1, length: 8, ..Config::PLAIN };
    for (recompute, compute) in
        [(Recompute::None, Width::BF16), (Recompute::Fields(&["layers"]), Width::BF16), (Recompute::None, Width::F32)]
    {
        let config = Config { recompute, precision: Precision { compute, ..config.precision }, ..config };
        for attention in [None, Some(0.1), Some(2.0)] {
            hardware.device.attention = attention;
            let judge = Simulated(&hardware);
            let step_s = PlanBuf::new("x", config, &units).with(|plan| judge.step_s(plan)).unwrap();
            let ratio = judge.least_s(&config, &units) / step_s;
            assert!((ratio - 1.0).abs() < 1e-6, "{recompute:?}, {compute:?}, {attention:?}: {ratio}");
        }
    }
}

#[test]
fn pins_leave_only_what_they_say() {
    let hardware = tiny(900_000);
    let pins = [
        "zero.stage=3",
        "mesh.pipeline=1",
        "zero.prefetch=3",
        "zero.bucket=KiB(300)",
        "precision.reduce=F32",
        "recompute=Every(3)",
        "batch.sequences=2",
    ];
    let question = pinned(ask(&hardware, 1, 8, Some(64), &small), &pins);
    let found = search(&question, &Simulated(&hardware)).unwrap();
    for timed in &found.timed {
        let config = timed.candidate.config(&question);
        assert_eq!((config.stage, config.mesh.pipeline, config.sequences), (3, 1, 2));
        assert_eq!((config.prefetch, config.bucket_bytes), (if config.mesh.zero > 1 { 3 } else { 1 }, 300 << 10));
        assert_eq!(config.precision.reduce, Width::F32);
        assert_eq!(config.recompute, zero_plan::Recompute::Every(3));
    }
}

#[test]
fn z0165_pin_that_is_not_understood() {
    for (pin, expected) in [
        ("zero.stage", "KEY=VALUE"),
        ("zero.stag=3", "did you mean `zero.stage`?"),
        ("zero.stage=4", "expected 0, 1, 2 or 3"),
        ("memory=GiB(1)", "the keys are"),
        ("recompute=Fields([\"a\"])", "Every(k)"),
    ] {
        let error = Pins::read(&[pin]).unwrap_err().to_string();
        assert!(error.starts_with("error[Z0165]") && error.contains(expected), "{error}");
    }
    assert!(Pins::read(&["zero.stage=1", "zero.stage=2"]).is_err());
}

#[test]
fn z0161_machines_that_are_not_there() {
    let mut hardware = tiny(900_000);
    for nodes in [0, 4096, usize::MAX] {
        let error = search(&ask(&hardware, nodes, 8, None, &small), &Artificial(1)).unwrap_err();
        assert!(error.code() == "Z0161" && error.to_string().contains("1 to 4096 ranks"), "{error}");
    }
    hardware.network = None;
    let error = search(&ask(&hardware, 2, 8, None, &small), &Artificial(1)).unwrap_err().to_string();
    assert!(error.contains("error[Z0161]: 2 nodes need a network, and `tiny` has none"), "{error}");
    hardware.node.link = None;
    let error = search(&ask(&hardware, 1, 8, None, &small), &Artificial(1)).unwrap_err().to_string();
    assert!(error.contains("`tiny` has no `node.link` between them\n  = help: add the key `node.link`"), "{error}");
}

#[test]
fn z0162_nothing_fits() {
    let mut hardware = a100();
    // Otherwise the optimizer's states would fit in the memory of the host.
    hardware.node.host_link = None;
    let units = |width, sequences| Some(LLAMA_3_70B.units(width, sequences, 4096));
    let error = advise(&ask(&hardware, 1, 4096, None, &units)).unwrap_err();
    assert!(matches!(error, NoAdvice::NothingFits { .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("error[Z0162]: no layout fits: the smallest layout needs "), "{text}");
    for expected in ["stage 3", "activations and workspace are "] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    // More ranks may need more tokens a step, which the way says.
    let asked = pinned(ask(&hardware, 1, 4096, Some(8 * 4096), &units), &["mesh.pipeline=1"]);
    assert_ways_lead_out(&asked, &advise(&asked).unwrap_err().to_string());
    let given = pinned(ask(&hardware, 1, 4096, None, &units), &["mesh.zero=8", "mesh.replica=1", "mesh.pipeline=1"]);
    let given = advise(&given).unwrap_err().to_string();
    assert!(!given.contains("--nodes"), "{given}");
    let alone = Hardware { network: None, ..hardware };
    let alone = pinned(ask(&alone, 1, 4096, None, &units), &["mesh.pipeline=1"]);
    let alone = advise(&alone).unwrap_err().to_string();
    assert!(alone.contains("` and a network between them (") && alone.contains("with `--nodes "), "{alone}");
}

/// 70 billion parameters on two nodes of eight H100 whose hosts keep no states: everything in two bytes fits, and so do three
/// nodes.
#[test]
fn what_fits_nowhere_has_ways_out() {
    let units = |width, sequences| Some(LLAMA_3_70B.units(width, sequences, 4096));
    let mut hardware = named("h100");
    hardware.node.host_link = None;
    let of_nodes = |nodes| pinned(ask(&hardware, nodes, 4096, None, &units), &["mesh.pipeline=1"]);
    let question = of_nodes(2);
    let text = advise(&question).unwrap_err().to_string();
    assert!(text.contains("it fits with `--pure-bf16`") && text.contains("or with `--nodes 3` (24 ranks): "), "{text}");
    assert_ways_lead_out(&question, &text);
    // What is asked for already is no way out.
    let everything = Question { pure_bf16: true, ..of_nodes(1) };
    let text = advise(&everything).unwrap_err().to_string();
    assert!(!text.contains("--pure-bf16"), "{text}");
    assert_ways_lead_out(&everything, &text);
}

/// Asks again with each change that an error names: a layout fits then, and none on one node less.
fn assert_ways_lead_out(question: &Question, error: &str) {
    let word = |after: &str| {
        let rest = error.split(after).nth(1)?;
        Some(rest.split([' ', '`']).next()?.to_owned())
    };
    let same = || super::space::with_nodes(question, question.nodes);
    let fits = |other: &Question| {
        search(
            &Question { effort: Effort { plans: 1 }, ..super::space::with_nodes(other, other.nodes) },
            &Artificial(1),
        )
        .is_ok()
    };
    if error.contains("--pure-bf16") {
        assert!(fits(&Question { pure_bf16: true, ..same() }), "{error}");
    }
    if let Some(nodes) = word("--nodes ") {
        let nodes: usize = nodes.parse().unwrap();
        let tokens_per_step =
            word("--tokens-per-step ").map(|tokens| tokens.parse().unwrap()).or(question.tokens_per_step);
        let on = |nodes| Question { nodes, tokens_per_step, ..same() };
        assert!(fits(&on(nodes)) && !fits(&on(nodes - 1)), "{error}");
    }
    let memory: f64 = word("if a rank has ").expect("memory always helps").parse().unwrap();
    let mut hardware = question.hardware.clone();
    hardware.device.memory = Size::B((memory * f64::from(1 << 30)) as u64);
    assert!(fits(&Question { hardware: &hardware, ..same() }), "{error}");
}

#[test]
fn z0163_tokens_that_cannot_be_shared_out() {
    let hardware = tiny(900_000);
    for tokens in [0, 12, 24] {
        let question = pinned(ask(&hardware, 1, 8, Some(tokens), &small), &["mesh.pipeline=1"]);
        let error = search(&question, &Artificial(1)).unwrap_err().to_string();
        assert!(error.contains("error[Z0163]") && error.contains("such as "), "{error}");
    }
    assert!(search(&ask(&hardware, 1, 8, Some(32), &small), &Artificial(1)).is_ok());
    // More micro-batches than a plan can have.
    for tokens in [1 << 30, usize::MAX - 7] {
        let error = search(&ask(&hardware, 1, 8, Some(tokens), &small), &Artificial(1)).unwrap_err().to_string();
        assert!(error.contains("error[Z0163]") && error.contains("at most 2097152"), "{error}");
    }
}

#[test]
fn z0164_no_layout_with_these_values() {
    let hardware = tiny(900_000);
    let question = pinned(ask(&hardware, 1, 8, None, &small), &["mesh.zero=3"]);
    let error = search(&question, &Artificial(1)).unwrap_err().to_string();
    assert!(error.contains("error[Z0164]: no layout has the values that are given"), "{error}");
    let unknown = |_, _| None;
    let error = search(&ask(&hardware, 1, 8, None, &unknown), &Artificial(1)).unwrap_err();
    assert_eq!(error.code(), "Z0164");
}

/// What `advise`, `simulate` and `view` say about one spec, on two nodes, where a collective uses two kinds of links.
#[test]
fn one_figure_has_one_value_in_all_commands() {
    let units = |width, sequences| Some(LLAMA_3_8B.units(width, sequences, 1024));
    let hardware = named("h100");
    let question = pinned(ask(&hardware, 2, 1024, None, &units), &["zero.stage=3", "mesh.zero=16"]);
    let advice = advise(&question).unwrap();
    let (pick, page) = (&advice.picks[0], memo(&question, &advice));
    let config = parse(&pick.candidate.text(&question, &[])).unwrap().config();
    let units = units(config.precision.compute, config.sequences).unwrap();
    PlanBuf::new("Llama", config, &units).with(|plan| {
        let prediction = Prediction::of(plan, &hardware, None).unwrap();
        let simulated = PredictionText(&prediction).to_string();
        let timeline = simulate(plan, &hardware).unwrap();
        let timed = Timed { timeline: &timeline, clock: TimeAxis::Nanoseconds, hardware: None, memory_bytes: None };
        let picture = Picture::of(plan, timed, "a.ron", "()");
        let stage = &picture.pipeline_stages[0];
        let row = |name: &str| simulated.lines().find(|line| line.trim_start().starts_with(name)).expect("a row");
        for (drawn, flow) in [("gradient reduce-scatter", "reduce-scatter"), ("parameter all-gather", "all-gather")] {
            let sent = stage.traffic.iter().find(|part| part.name == drawn).expect("it is sent").bytes;
            let shown = Bytes(sent).to_string();
            assert!(page.contains(&format!("| {flow} | network | {shown} | ")), "{flow} {shown}: {page}");
            assert!(row(&format!("{flow}, network")).contains(&format!(" {shown} ")), "{flow} {shown}: {simulated}");
        }
        let taken = picture.outside_bytes + stage.memory.arena_bytes;
        assert_eq!((taken, taken), (pick.need.bytes, prediction.pipeline_stages[0].memory_bytes));
        let all: usize = stage.traffic.iter().map(|part| part.bytes).sum();
        let told = answer(&question, &advice);
        for shown in [Bytes(taken).to_string(), ShownTime(timeline.step_s).to_string()] {
            assert!(simulated.contains(&shown) && page.contains(&shown) && told.contains(&shown), "{shown}: {told}");
        }
        assert!(told.contains(&format!("sends {},", Bytes(all))), "{all}: {told}");
    });
}

/// The text of the page before the memo.
const MEMO_HEAD: &str = "\
<!-- Written by a test: UPDATE_EXPECT=1 cargo test -p zero-study --lib thirteen -->
<!-- As `cargo zero advise --model llama --size 13B --on a100-80 --length 4096 --tokens-per-step 131072 --memo FILE.md` writes it. -->

";

/// Checks that the README has the figures of the memo.
fn assert_readme_tells(advice: &Advice) {
    let readme = text("README.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let (pick, shown) = (&advice.picks[0], |bytes: usize| Bytes(bytes).to_string());
    let least = |stage: usize| advice.stages[stage].least_bytes.map_or(String::new(), shown);
    let second = advice.rivals.iter().find(|rival| rival.value == "stage 2").expect("it fits");
    let Price::Slower(factor) = second.loss else { panic!("{second:?}") };
    let (need, budget, count) = (shown(pick.need.bytes), shown(pick.budget_bytes), pick.candidate.micro_batches);
    for told in [
        format!("takes stage {}, {need} of {budget} a rank with {count} micro-batches", pick.candidate.stage),
        format!("Stage 2 fits as well and is {:.1} % slower;", 100.0 * (factor - 1.0)),
        format!("stages 0 and 1 need {} and {}.", least(0), least(1)),
    ] {
        assert!(readme.contains(&told), "README.md does not say {told:?}");
    }
}

/// The memo in the repository, and those of its figures that can be computed by hand.
#[test]
fn thirteen_billions_on_eight_a100() {
    let units = |width, sequences| Some(LLAMA_2_13B.units(width, sequences, 4096));
    let hardware = a100();
    let question = ask(&hardware, 1, 4096, Some(8 * 4 * 4096), &units);
    let advice = advise(&question).unwrap();
    let page = format!("{MEMO_HEAD}{}", memo(&question, &advice));
    expect_test::expect_file!["../../../../docs/memo-13b.md"].assert_eq(&page);
    let json = json(&question, &advice);
    crate::documented::assert_documented(&json);
    assert_eq!((&json["format"], &json["is_exhaustive"]), (&"zero-advise-1".into(), &advice.is_exhaustive.into()));
    assert_eq!(json["best"][0]["memory_bytes"], advice.picks[0].need.bytes);
    assert!(json["others"].as_array().unwrap().len() == advice.rivals.len() && json["stages"][0]["fits"] == false);
    // The text has the same figures.
    let text = answer(&question, &advice);
    for expected in
        ["does everything fit on each device (stage 0)?", "no ZeRO stage shrinks activations", "why not another"]
    {
        assert!(text.contains(expected), "{text}");
    }
    // `busy_s` is bytes over bandwidth alone, here at 230 GB/s.
    for sent in &advice.picks[0].sent {
        assert!(
            (sent.busy_s / (sent.bytes as f64 / 230e9) - 1.0).abs() < 1e-9 && sent.link_s > sent.busy_s,
            "{sent:?}"
        );
    }
    // The answer says that no untimed layout can be faster, and most layouts were not timed.
    assert!(advice.is_exhaustive && advice.untimed > advice.timed, "{} {}", advice.timed, advice.untimed);
    assert_readme_tells(&advice);
    // By the formula, plain data parallelism takes 208 GB; the budget is 78.
    assert_eq!(advice.stages[0].states.total(), 16 * 13_015_864_320);
    assert!(!advice.stages[0].fits && advice.stages[3].fits);
}
